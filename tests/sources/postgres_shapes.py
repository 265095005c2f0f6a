"""Schema changes of tables, what is to be reported of each, and what may still be asked.

Every case has a table of its own; beside them is `other`, which goes on whatever happens. All of
them are followed by one source, in one of three ways that differ in what they can know: event
triggers see the statement, looks see only that rows were rewritten.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, cast

from tests.sources.postgres_shop import Row, Shop, plus, state_of
from viewkeeper.errors import BrokenQueryError
from viewkeeper.updates.source_protocol import Boundary, Source, Tables

Way = Literal["watched", "unwatched", "triggers"]
When = Literal["running", "down"]
Change = tuple[str, str, str]

COLUMNS = ["id", "price", "code", "n", "r"]
DEFINITION = (
    "{t} (id int PRIMARY KEY, price numeric(10, 2), code varchar(10), n int, r real, spare int,"
    " slot int UNIQUE)"
)
FIRST: Row = (1, Decimal("1.50"), "a", 10, 0.10000000149011612)
INSERT = "INSERT INTO {t} VALUES (1, 1.50, 'a', 10, 0.1, 1), (2, 2.50, 'b', 20, 0.5, 2)"


@dataclass(frozen=True)
class Case:
    """Statements about the table `{t}`, and what is reported of them: by those who saw them, and by
    those who did not, if that is something else. `lost` are columns of which nothing from before
    can be asked."""

    statements: tuple[str, ...]
    reports: tuple[Change, ...] = ()
    unseen: tuple[Change, ...] | None = None
    lost: tuple[str, ...] = ()
    unseen_lost: tuple[str, ...] | None = None
    now: str = "{t}"
    gone: bool = False
    renamed: tuple[tuple[str, str], ...] = ()

    def expected(self, way: Way, table: str) -> list[Change]:
        seen = way == "watched" or self.unseen is None
        reports = self.reports if seen else self.unseen or ()
        # A trigger logs a column from when it is followed, so that it may have values before.
        told = {"add_column": "add_filled_column"} if way == "triggers" else {}
        return sorted((told.get(k, k), column, now.format(t=table)) for k, column, now in reports)

    def kept(self, way: Way) -> list[str]:
        seen = way == "watched" or self.unseen_lost is None
        lost = self.lost if seen else self.unseen_lost or ()
        return [] if self.gone else [column for column in COLUMNS if column not in lost]


CASES: dict[str, Case] = {
    "a column renamed": Case(
        ("ALTER TABLE {t} RENAME price TO cost",),
        (("rename_column", "price", "cost"),),
        renamed=(("price", "cost"),),
    ),
    "two columns swapped": Case(
        (
            "ALTER TABLE {t} RENAME id TO x",
            "ALTER TABLE {t} RENAME n TO id",
            "ALTER TABLE {t} RENAME x TO n",
        ),
        (("rename_column", "id", "n"), ("rename_column", "n", "id")),
        renamed=(("id", "n"), ("n", "id")),
    ),
    "renamed twice and back": Case(
        ("ALTER TABLE {t} RENAME price TO cost", "ALTER TABLE {t} RENAME cost TO price"),
        (("rename_column", "price", "cost"),),
        (),
    ),
    "the table renamed": Case(
        ("ALTER TABLE {t} RENAME TO goods_{t}",),
        (("rename_table", "", "goods_{t}"),),
        now="goods_{t}",
    ),
    "moved to another schema": Case(
        ("ALTER TABLE {t} SET SCHEMA attic",),
        (("rename_table", "", "attic.{t}"),),
        now="attic.{t}",
    ),
    "a column added": Case(
        ("ALTER TABLE {t} ADD COLUMN extra text",), (("add_column", "extra", ""),)
    ),
    "a column added with a default": Case(
        ("ALTER TABLE {t} ADD COLUMN extra int DEFAULT 7",), (("add_filled_column", "extra", ""),)
    ),
    "a column added with a volatile default": Case(
        ("ALTER TABLE {t} ADD COLUMN extra float DEFAULT random()",),
        (("add_filled_column", "extra", ""),),
    ),
    "a column dropped": Case(
        ("ALTER TABLE {t} DROP price",), (("drop_column", "price", ""),), lost=("price",)
    ),
    "an unused column dropped": Case(("ALTER TABLE {t} DROP spare",)),
    "a column dropped and made again": Case(
        ("ALTER TABLE {t} DROP price", "ALTER TABLE {t} ADD price numeric(10, 2)"),
        (("drop_column", "price", ""), ("add_column", "price", "")),
        lost=("price",),
    ),
    "more digits": Case(
        ("ALTER TABLE {t} ALTER price TYPE numeric(14, 2)",),
        (("widen_type", "price", "numeric(14,2)"),),
    ),
    "more digits after the point": Case(
        ("ALTER TABLE {t} ALTER price TYPE numeric(14, 4)",),
        (("widen_type", "price", "numeric(14,4)"),),
        (("change_type", "price", "numeric(14,4)"),),
        unseen_lost=("price",),
    ),
    "an integer with a point": Case(
        ("ALTER TABLE {t} ALTER n TYPE numeric(12, 2)",),
        (("widen_type", "n", "numeric(12,2)"),),
        (("change_type", "n", "numeric(12,2)"),),
        unseen_lost=("n",),
    ),
    "a real made double": Case(
        ("ALTER TABLE {t} ALTER r TYPE double precision",),
        (("widen_type", "r", "double precision"),),
        (("change_type", "r", "double precision"),),
        unseen_lost=("r",),
    ),
    "an integer made larger": Case(
        ("ALTER TABLE {t} ALTER n TYPE bigint",),
        (),
        (("rewrite", "n", ""),),
        unseen_lost=("n",),
    ),
    "a larger integer by a plain cast": Case(
        ("ALTER TABLE {t} ALTER n TYPE bigint USING n::bigint",),
        (),
        (("rewrite", "n", ""),),
        unseen_lost=("n",),
    ),
    "longer text": Case(("ALTER TABLE {t} ALTER code TYPE text",)),
    "fewer digits": Case(
        ("ALTER TABLE {t} ALTER price TYPE numeric(10, 1)",),
        (("change_type", "price", "numeric(10,1)"),),
        lost=("price",),
    ),
    "values rewritten": Case(
        ("ALTER TABLE {t} ALTER n TYPE int USING n * 2",), (("rewrite", "n", ""),), lost=("n",)
    ),
    "values rewritten by a function": Case(
        ("DO $$ BEGIN ALTER TABLE {t} ALTER n TYPE bigint USING n * 2; END $$",),
        (("rewrite", "n", ""),),
        lost=("n",),
    ),
    "a type that cannot be kept": Case(
        ("ALTER TABLE {t} ALTER n TYPE money USING n::money",),
        (("change_type", "n", "money"),),
        lost=("n",),
    ),
    "the key dropped": Case(
        ("ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",), (("change_key", "", ""),)
    ),
    "another key": Case(
        (
            "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",
            "ALTER TABLE {t} ALTER code SET NOT NULL",
            "CREATE UNIQUE INDEX {t}_code ON {t} (code)",
        ),
        (("change_key", "", "code"),),
    ),
    "dropped": Case(("DROP TABLE {t}",), (("drop_table", "", ""),), gone=True),
    "dropped and made again": Case(
        ("BEGIN", "DROP TABLE {t}", f"CREATE TABLE {DEFINITION}", "COMMIT"),
        (("recreate_table", "", ""),),
        gone=True,
    ),
    "rewritten by the server": Case(("VACUUM FULL {t}",)),
    "not null": Case(("ALTER TABLE {t} ALTER n SET NOT NULL",)),
    "unrelated": Case(
        ("CREATE TABLE stranger (id int)", "ALTER TABLE stranger ADD x int", "DROP TABLE stranger")
    ),
}


TABLES = {name: f"item_{number}" for number, name in enumerate(CASES)}


class Ordeal:
    """All cases, gone through by one source."""

    def __init__(self, shop: Shop, way: Way, when: When) -> None:
        self.shop, self.way = shop, way
        if way == "unwatched":
            shop.without_rights()
        shop.run("CREATE SCHEMA attic")
        for table in TABLES.values():
            shop.table(DEFINITION.format(t=table))
        shop.table("other (id int PRIMARY KEY, v text)")
        self.source = self._open()
        self.start = self.source.follow_tables(self.followed)
        for table in TABLES.values():
            shop.run(INSERT.format(t=table))
        shop.run("INSERT INTO other VALUES (1, 'x')")
        if when == "down":
            self.source.close()
        for name, case in CASES.items():
            self._commit(name, case)
            if when == "running":
                self.source.look_for_transactions(self.start)
        shop.run("INSERT INTO other VALUES (2, 'y')")
        if when == "down":
            self.restart()
        self.found = look_all(self.source, self.start)
        self.last = self.found[-1].position
        self.states = {at: self._states(at) for at in (self.start, self.last)}

    @property
    def followed(self) -> Tables:
        return {**dict.fromkeys(TABLES.values(), COLUMNS), "other": ["id", "v"]}

    def _open(self) -> Source:
        triggers = {"capture": "triggers"} if self.way == "triggers" else {}
        return self.shop.source(**triggers)

    def restart(self) -> None:
        self.source.close()
        self.source = self._open()
        self.source.follow_tables(self.followed)

    def _commit(self, name: str, case: Case) -> None:
        table = TABLES[name]
        self.shop.run(*(statement.format(t=table) for statement in case.statements))
        if not case.gone:
            self.shop.run(f"DELETE FROM {case.now.format(t=table)} WHERE code = 'b'")

    def _states(self, after: int) -> Mapping[str, Counter[Row]]:
        """What a snapshot shows of everything that can still be asked."""
        asked = {TABLES[name]: case.kept(self.way) for name, case in CASES.items()}
        asked = {table: columns for table, columns in asked.items() if columns}
        return states(self.source, {**asked, "other": ["id", "v"]}, after)


def states(source: Source, asked: Tables, after: int) -> dict[str, Counter[Row]]:
    """The tables as of a position, in one snapshot."""
    with source.prepare_snapshots(after, asked) as opener, closing(opener()) as snapshot:
        return {t: state_of(snapshot, t, columns, after) for t, columns in asked.items()}


def told(boundaries: Sequence[Boundary], handle: str) -> list[Change]:
    """What was reported of a handle."""
    return [(c.kind, c.column, c.now) for b in boundaries for c in b.reshaped if c.table == handle]


def merged(changes: Sequence[Change]) -> list[Change]:
    """Renames of a column as one, and what ends a column said once.

    Where nobody saw the statement, a rewriting may be told several times: at every place up to the
    first one that certainly lies behind it.
    """
    retyped = {column for kind, column, _ in changes if kind == "change_type"}
    result: dict[tuple[str, str], Change] = {}
    for kind, column, now in changes:
        if kind != "rewrite" or column not in retyped:
            result[kind, column] = (kind, column, now)
    return sorted(result.values())


def look_all(source: Source, after: int) -> list[Boundary]:
    """What two looks find; the second one is for what the first had no time to compare."""
    first = source.look_for_transactions(after)
    time.sleep(0.25)
    last = first[-1].position if first else after
    return [*first, *source.look_for_transactions(last)]


def is_broken(source: Source, handle: str, columns: Sequence[str], after: int, until: int) -> bool:
    """Whether neither changes nor answers can be had; never one without the other."""
    broken = []
    try:
        list(source.read_changes({handle: columns}, after, until))
        broken.append(False)
    except BrokenQueryError:
        broken.append(True)
    try:
        with source.prepare_snapshots(after, {handle: columns}):
            broken.append(False)
    except BrokenQueryError:
        broken.append(True)
    assert len(set(broken)) == 1, f"changes and answers differ for {handle}: {broken}"
    return broken[0]


def first_row(columns: Sequence[str]) -> Counter[Row]:
    """The state when the second row was deleted."""
    return Counter([cast(Row, tuple(FIRST[COLUMNS.index(column)] for column in columns))])


def net(changes: Sequence[Row]) -> Counter[Row]:
    return plus(Counter(), changes)
