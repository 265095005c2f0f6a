"""Lookups of every kind return a superset under Spark equality, each row once, never fewer.

Spark compares text byte by byte, NULL equals nothing unless the join says so, NaN equals itself and
zero has no sign. Databases think otherwise (case, trailing blanks, composed letters): what they
find beyond is joined again by the asker, what they would not find is a row lost for good.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from tests.sources.conformance.changes import ARROW, Bag, Row, Word, comparable, inserts
from tests.sources.conformance.database import Database
from tests.sources.conformance.reading import Follower, lookup_of, rows_of, snapshot_at

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


def check(
    follower: Follower,
    rows: Sequence[Row],
    on: Sequence[str],
    keys: Sequence[Key],
    null_safe: Sequence[bool],
) -> Bag:
    """Ask, and compare: never fewer than Spark finds, never a row more often than it is there."""
    columns = follower.database.columns["t"]
    arrays = [
        pa.array([key[place] for key in keys], ARROW[columns[name]])
        for place, name in enumerate(on)
    ]
    lookup = lookup_of("t", list(columns), pa.table(arrays, names=list(on)), null_safe)
    with snapshot_at(follower.source, follower.newest, follower.tables) as snapshot:
        answer = snapshot.ask(lookup, follower.newest)
    assert not answer.tail.num_rows
    found = Counter(map(comparable, rows_of(answer.rows, list(columns))))
    names = list(columns)
    wanted = matching(rows, [names.index(name) for name in on], keys, null_safe)
    assert wanted <= found, f"not found: {wanted - found}"
    assert found <= follower.database.state["t"], f"too often: {found}"
    return found


def filled(
    database: Database, columns: dict[str, Word], rows: list[Row], indexes: list[list[str]]
) -> Follower:
    database.table("t", columns, indexes=indexes)
    database.commit(*inserts("t", rows))
    return Follower(database)


@pytest.mark.parametrize("word", VALUES)
def test_every_value_is_found_by_itself(database: Database, word: Word) -> None:
    """Each row twice, and a NULL; with an index for half of the types."""
    values = [*VALUES[word], None]
    rows: list[Row] = [(value, number) for number in (1, 2) for value in values]
    indexes = [["k"]] if word in ("int", "text", "date", "double") else []
    follower = filled(database, {"k": word, "n": "int"}, rows, indexes)
    every: list[Key] = [(value,) for value in values]
    strange: list[Key] = [(value,) for value in STRANGE[word]]
    assert check(follower, rows, ["k"], every, [True]) == database.state["t"]
    check(follower, rows, ["k"], every[:-1], [False])
    check(follower, rows, ["k"], [(None,)], [True])
    check(follower, rows, ["k"], every[1::2], [False])
    check(follower, rows, ["k"], [*strange, *every[:3]], [False])
    check(follower, rows, ["k"], strange, [True])
    if follower.source.finds_by_key("t", ["k"]):
        assert sum(check(follower, rows, ["k"], [], [False]).values()) == 0
        assert sum(check(follower, rows, ["k"], [(None,)], [False]).values()) == 0


def test_each_text_finds_all_of_its_rows(database: Database) -> None:
    """One at a time, so that no key is found by another one's help."""
    rows: list[Row] = [(text, number) for number, text in enumerate([*TEXTS, None])]
    follower = filled(database, {"k": "text", "n": "int"}, rows, [["k"]])
    columns = ["k", "n"]
    with snapshot_at(follower.source, follower.newest, follower.tables) as snapshot:
        for text in TEXTS:
            keys = pa.table({"k": pa.array([text], pa.string())})
            answer = snapshot.ask(lookup_of("t", columns, keys), follower.newest)
            found = rows_of(answer.rows, columns)
            assert [row for row in found if row[0] == text] == [(text, TEXTS.index(text))]


MIXED: dict[str, Word] = {"i": "int", "s": "text", "d": "date", "n": "int"}
DAY = datetime.date(2024, 2, 29)
PARTS = ([1, 2, None], ["a", "A", "a ", None], [DAY, None])


@pytest.mark.parametrize(
    "indexes", [[], [["i"]], [["s", "i"]], [["d"], ["i", "s"]], [["i", "s", "d"]]], ids=str
)
def test_keys_of_several_columns(database: Database, indexes: list[list[str]]) -> None:
    if indexes and not database.has_indexes:
        pytest.skip("tables of this kind have no indexes")
    every: list[Key] = list(product(*PARTS))
    rows: list[Row] = [(*key, number) for key in every for number in (1, 2)]
    follower = filled(database, MIXED, rows, indexes)
    for safe in ([False] * 3, [True] * 3, [True, False, True]):
        for keys in (every, every[::5], [(1, "a", None)], [(2, None, DAY), (9, "a", DAY)]):
            check(follower, rows, ["i", "s", "d"], keys, safe)
    for on in (["s", "i"], ["d"], ["d", "s"]):
        pairs = list(
            {tuple(dict(zip("isd", key, strict=True))[name] for name in on) for key in every}
        )
        check(follower, rows, on, pairs[1:], [False] * len(on))
        check(follower, rows, on, pairs[:3], [True] * len(on))


def test_none_one_many_and_most_of_the_table(database: Database) -> None:
    """Twelve hundred keys take the ways that are for many of them."""
    rows: list[Row] = [(n, f"n {n % 9}") for n in range(1_500)]
    rows += [(n, "again") for n in range(0, 1_500, 7)]
    follower = filled(database, {"k": "int", "v": "text"}, rows, [["k"]])
    absent: list[Key] = [(-1,), (1_000_000,)]
    for numbers in (range(0), range(3, 4), range(100, 130), range(1_200), range(1, 1_500)):
        check(follower, rows, ["k"], [*absent, *((n,) for n in numbers)], [False])
    texts: list[Key] = [(f"n {n}",) for n in range(3)]
    check(follower, rows, ["v"], texts, [False])
    check(follower, rows, ["v"], [*texts, *((f"none {n}",) for n in range(1_100))], [False])
