"""Lookups of every kind return a superset under Spark equality, each row once, never fewer.

Spark compares text byte by byte, NULL equals nothing unless the join says so, NaN equals itself and
zero has no sign. Databases think otherwise (case, trailing blanks, composed letters): what they
find beyond is joined again by the asker, what they would not find is a row lost for good.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa

from tests.sources.conformance.changes import ARROW, Bag, Row, Word, comparable, inserts
from tests.sources.conformance.database import Database
from tests.sources.conformance.reading import Follower, lookup_of, rows_of, snapshot_at
from viewkeeper.updates.source_protocol import Snapshot

Key = tuple[Any, ...]

TEXTS = ["", " ", "a", "A", "a ", "a  ", " a", "ä", "a\u0308", "Ä", "ß", "ss", "SS", "İ", "i"]
TEXTS += [
    "é",
    "e\u0301",
    "𝄞",
    "𝄞\U0001f600",
    "01",
    "1",
    "1.0",
    "null",
    "NULL",
    "O'Hara",
    'a"b',
    "a\\b",
]
TEXTS += ["x%", "x_", "a,b", "{a}", "line\nbreak", "\t", "2024-01-01", "ﬁ", "fi", "ａ", "x" * 200]
MOMENTS = ["0001-01-01", "1969-12-31T23:59:59.999999", "2024-02-29T12:00", "9999-12-31"]
MOMENTS += ["2024-03-31T02:30", "2024-03-31T02:30:00.000001", "1582-10-10"]
VALUES: dict[Word, list[Any]] = {
    "int": [0, 1, -1, 2**31, -(2**63), 2**63 - 1, 2**53, 2**53 + 1],
    "text": TEXTS,
    "decimal": [Decimal(n) / 100 for n in (0, 1, -1, 10, 100, 150, 999_999_999_999_999)],
    "date": [datetime.datetime.fromisoformat(moment).date() for moment in MOMENTS[:4]],
    "timestamp": [datetime.datetime.fromisoformat(moment) for moment in MOMENTS],
    "double": [0.0, 1.0, 0.1, -1.5, 5e-324, 1.7e308, 2.0**53],
    "bytes": [b"", b"\0", b"a", b"A", b"a ", b"\xff\xfe"],
    "bool": [True, False],
}
# What can be asked for and no column of the kind can hold; it finds nothing, and is no error.
STRANGE: dict[Word, list[Any]] = {
    "int": [7],
    "text": ["a\0b", "\0", "y" * 70_000, "\ufffd", "Å"],
    "decimal": [Decimal("-7.77")],
    "date": [datetime.date(1, 1, 2)],
    "timestamp": [datetime.datetime(1, 1, 1, 0, 0, 0, 1)],
    "double": [float("nan"), float("inf"), float("-inf"), 5e-323, -0.0],
    "bytes": [b"\0" * 300],
    "bool": [],
}


def spelled(values: Sequence[Any]) -> Row:
    """Values such that those which Spark calls equal are equal here: zero has no sign."""
    return comparable(v + 0.0 if isinstance(v, float) else v for v in values)


def matching(
    rows: Sequence[Row], places: Sequence[int], keys: Sequence[Key], null_safe: Sequence[bool]
) -> Bag:
    """The rows that Spark would find for some keys."""
    wanted = {
        spelled(key)
        for key in keys
        if all(safe or v is not None for v, safe in zip(key, null_safe, strict=True))
    }
    found = (row for row in rows if spelled([row[place] for place in places]) in wanted)
    return Counter(map(comparable, found))


class Asker:
    """Asks one snapshot of one database, and compares every answer."""

    def __init__(self, follower: Follower, snapshot: Snapshot, rows: Sequence[Row]) -> None:
        self.follower = follower
        self.snapshot = snapshot
        self.rows = rows

    def ask(
        self, on: Sequence[str], keys: Sequence[Key], null_safe: Sequence[bool], table: str = "t"
    ) -> Bag:
        """Never fewer than Spark finds, never a row more often than it is there."""
        words = self.follower.database.columns[table]
        columns = list(words)
        arrays = [pa.array([key[n] for key in keys], ARROW[words[on[n]]]) for n in range(len(on))]
        lookup = lookup_of(table, columns, pa.table(arrays, names=list(on)), null_safe)
        answer = self.snapshot.answer_lookup(lookup, self.follower.newest)
        assert not answer.tail.num_rows
        found = Counter(map(comparable, rows_of(answer.rows, columns)))
        wanted = matching(self.rows, [columns.index(name) for name in on], keys, null_safe)
        assert wanted <= found, f"not found by {on}: {wanted - found}"
        assert found <= self.follower.database.state[table], f"too often by {on}: {found}"
        return found


@contextmanager
def asking(
    database: Database,
    columns: dict[str, Word],
    rows: list[Row],
    tables: dict[str, list[list[str]]],
) -> Iterator[Asker]:
    """The same rows in tables with different indexes."""
    for table, indexes in tables.items():
        database.table(table, columns, indexes=indexes)
        database.commit(*inserts(table, rows))
    follower = Follower(database)
    with snapshot_at(follower.source, follower.newest, follower.tables) as snapshot:
        yield Asker(follower, snapshot, rows)


def test_every_value_is_found_by_itself(database: Database) -> None:
    """Each row twice, with NULLs where a type has fewer values; with an index for half of them."""
    columns: dict[str, Word] = {f"k_{word}": word for word in VALUES}
    many = max(map(len, VALUES.values())) + 1
    filled = [[*values, *[None] * (many - len(values))] for values in VALUES.values()]
    rows: list[Row] = [(*row, n) for n in (1, 2) for row in zip(*filled, strict=True)]
    indexes = [[f"k_{word}"] for word in ("int", "text", "date", "double")]
    with asking(database, {**columns, "n": "int"}, rows, {"t": indexes}) as asker:
        for word in VALUES:
            ask_for_values(asker, word)


def ask_for_values(asker: Asker, word: Word) -> None:
    on = [f"k_{word}"]
    every: list[Key] = [(value,) for value in [*VALUES[word], None]]
    strange: list[Key] = [(value,) for value in STRANGE[word]]
    assert asker.ask(on, every, [True]) == asker.follower.database.state["t"]
    asker.ask(on, every[:-1], [False])
    asker.ask(on, [(None,)], [True])
    asker.ask(on, every[1::2], [False])
    asker.ask(on, [*strange, *every[:3]], [False])
    asker.ask(on, strange, [True])
    if asker.follower.source.describe_table("t").can_find_by_key(on):
        assert sum(asker.ask(on, [], [False]).values()) == 0
        assert sum(asker.ask(on, [(None,)], [False]).values()) == 0


def test_each_text_finds_all_of_its_rows(database: Database) -> None:
    """One at a time, so that no key is found by another one's help."""
    rows: list[Row] = [(text, number) for number, text in enumerate([*TEXTS, None])]
    with asking(database, {"k": "text", "n": "int"}, rows, {"t": [["k"]]}) as asker:
        for number, text in enumerate(TEXTS):
            assert asker.ask(["k"], [(text,)], [False])[text, number] == 1


MIXED: dict[str, Word] = {"i": "int", "s": "text", "d": "date", "n": "int"}
DAY = datetime.date(2024, 2, 29)
PARTS = ([1, 2, None], ["a", "A", "a ", None], [DAY, None])
INDEXES: dict[str, list[list[str]]] = {
    "t": [],
    "u": [["i"]],
    "v": [["s", "i"]],
    "w": [["d"], ["i", "s"]],
    "x": [["i", "s", "d"]],
}


def test_keys_of_several_columns(database: Database) -> None:
    """In tables with none, some or all of the columns in an index."""
    every: list[Key] = list(product(*PARTS))
    rows: list[Row] = [(*key, number) for key in every for number in (1, 2)]
    tables = INDEXES if database.has_indexes else {"t": []}
    with asking(database, MIXED, rows, tables) as asker:
        for table in tables:
            ask_for_pairs(asker, table, every)


def ask_for_pairs(asker: Asker, table: str, every: list[Key]) -> None:
    for safe in ([False] * 3, [True] * 3, [True, False, True]):
        for keys in (every, every[::5], [(1, "a", None)], [(2, None, DAY), (9, "a", DAY)]):
            asker.ask(["i", "s", "d"], keys, safe, table)
    for on in (["s", "i"], ["d"], ["d", "s"]):
        named = (dict(zip("isd", key, strict=True)) for key in every)
        parts = list(dict.fromkeys(tuple(key[name] for name in on) for key in named))
        asker.ask(on, parts[1:], [False] * len(on), table)
        asker.ask(on, parts[:3], [True] * len(on), table)


def test_none_one_many_and_most_of_the_table(database: Database) -> None:
    """Twelve hundred keys take the ways that are for many of them."""
    rows: list[Row] = [(n, f"n {n % 9}") for n in range(1_500)]
    rows += [(n, "again") for n in range(0, 1_500, 7)]
    absent: list[Key] = [(-1,), (1_000_000,)]
    texts: list[Key] = [(f"n {n}",) for n in range(3)]
    with asking(database, {"k": "int", "v": "text"}, rows, {"t": [["k"]]}) as asker:
        for numbers in (range(0), range(3, 4), range(100, 130), range(1_200), range(1, 1_500)):
            asker.ask(["k"], [*absent, *((n,) for n in numbers)], [False])
        asker.ask(["v"], texts, [False])
        asker.ask(["v"], [*texts, *((f"none {n}",) for n in range(1_100))], [False])
