"""Every common type of every kind: each value arrives exactly, or its column is refused.

One table per kind has a column of every type. What its values are in the change stream as they come
and as they go, in answers, in scans, in tails, and what a lookup by each of them finds must be the
one value that was meant. A single value that cannot be kept is an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import eq, ge, gt, le, lt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sources.conformance.conftest import KINDS
from tests.sources.conformance.database import NAME, Database
from tests.sources.conformance.reading import look_all, lookup_of, rows_of, snapshot_at
from tests.sources.conformance.types_case import Case, Misfit, same
from tests.sources.conformance.types_page import PAGE, page
from tests.sources.conformance.types_table import cases_of, type_table
from viewkeeper.errors import ConversionError, SchemaError, SourceAwayError, SourceError
from viewkeeper.updates.source_protocol import COUNT, Source
from viewkeeper.view.definition import Relation
from viewkeeper.view.expression import Call, Column, Compare, Literal
from viewkeeper.view.local_condition import LocalCondition, local_conditions_of

ALL = [(kind, number) for kind in KINDS for number in range(len(cases_of(kind)))]
NAMES = [f"{kind}-{cases_of(kind)[number].declared}" for kind, number in ALL]
# Values that cannot be kept are the same for both journals, and with and without a feed.
STRANGE = [
    (kind, case, misfit)
    for kind in KINDS
    for case in cases_of(kind)
    for misfit in case.misfits
    if kind not in ("sqlite-rollback", "delta_lake-plain")
]
STRANGE_NAMES = [f"{kind}-{case.declared}-{misfit.told}" for kind, case, misfit in STRANGE]
TABLES = {"t": ["id", "c0"]}
OPERATORS = {"=": eq, "<": lt, "<=": le, ">": gt, ">=": ge}


@dataclass
class Seen:
    """What one kind showed of its table: per way of reading and column, the values by row."""

    kept: dict[str, pa.DataType] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    read: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    found: dict[str, list[bool]] = field(default_factory=dict)
    lost: dict[str, list[str]] = field(default_factory=dict)
    """Per column, the conditions whose answers lack a row that meets them."""
    first: list[int] = field(default_factory=list)
    """The rows that are found by `id <= 0`."""


def by_column(rows: list[tuple[Any, ...]], columns: Sequence[str]) -> dict[str, list[Any]]:
    """Rows that begin with their number, as columns in the order of the numbers."""
    ordered = sorted(rows, key=lambda row: int(row[0]))
    return {name: [row[place] for row in ordered] for place, name in enumerate(columns)}


def rows_to_write(cases: Sequence[Case]) -> list[list[Any]]:
    """As many rows as the type with the most values has, and one of NULLs."""
    many = max(len(case.values) for case in cases) + 1
    return [
        [case.values[row].written if row < len(case.values) else None for case in cases]
        for row in range(many)
    ]


def explore(database: Database, cases: Sequence[Case]) -> Seen:
    """Write a table of all the cases, and read it in every way there is."""
    table = type_table(database, "t", cases)
    source = database.source(table.options())
    seen = Seen()
    seen.kept = {field.name: field.type for field in source.describe_table("t").fields}
    seen.refused = dict(source.describe_table("t").refused)
    columns = ["id", *(name for name in seen.kept if name != "id")]
    tables = {"t": columns}
    start = source.follow_tables(tables)
    table.fill(rows_to_write(cases))
    middle = look_all(source, start)[-1].position
    seen.read["as inserted"] = streamed(source, tables, start, middle, 1)
    with snapshot_at(source, start, tables) as snapshot:
        answer = snapshot.answer_lookup(lookup_of("t", columns), start)
        if answer.tail.num_rows:
            seen.read["in a tail"] = by_column(rows_of(answer.tail, columns), columns)
    with snapshot_at(source, middle, tables) as snapshot:
        batches = snapshot.scan_relation(Relation(NAME, "t"), columns, middle).batches
        scanned = [row for batch in batches for row in rows_of(batch, columns)]
        seen.read["in a scan"] = by_column(scanned, columns)
        answer = snapshot.answer_lookup(lookup_of("t", columns), middle)
        seen.read["in an answer"] = by_column(rows_of(answer.rows, columns), columns)
        condition = condition_of("id", pa.int64(), "<=", [0])
        answer = snapshot.answer_lookup(
            replace(lookup_of("t", ["id"]), conditions=condition), middle
        )
        seen.first = [int(number) for (number,) in rows_of(answer.rows, ["id"])]
        for name in columns[1:]:
            values = cases[int(name[1:])].values
            asks = partial_lookup(snapshot, name, seen.kept[name], middle)
            seen.found[name] = [row in asks(value.kept) for row, value in enumerate(values)]
            seen.found[name].append(len(values) in asks(None))
            kept = [value.kept for value in values]
            seen.lost[name] = lost_rows(snapshot, name, seen.kept[name], kept, middle)
    table.empty()
    end = look_all(source, middle)[-1].position
    seen.read["as deleted"] = streamed(source, tables, middle, end, -1)
    return seen


def partial_lookup(
    snapshot: Any, name: str, kind: pa.DataType, after: int
) -> Callable[[Any], list[int]]:
    """The rows that a lookup by one value of a column finds."""

    def ask(value: Any) -> list[int]:
        keys = pa.table({name: pa.array([value], kind)})
        answer = snapshot.answer_lookup(lookup_of("t", ["id"], keys, [True]), after)
        return [int(number) for (number,) in rows_of(answer.rows, ["id"])]

    return ask


def lost_rows(
    snapshot: Any, name: str, kind: pa.DataType, values: Sequence[Any], after: int
) -> list[str]:
    """The conditions on a column by which a lookup loses a row that meets them: each value with
    each operator, and every other value in a list; by keys, and without."""
    lost = []
    everything = pa.table({"id": pa.array(range(len(values) + 1), pa.int64())})
    asked = [(operator, [value]) for operator in OPERATORS for value in values]
    for operator, with_values in [*asked, ("=", values[::2]), ("=", values[1::2])]:
        condition = condition_of(name, kind, operator, with_values)
        for keys in (everything, None) if condition else ():
            lookup = replace(lookup_of("t", ["id", name], keys), conditions=condition)
            rows = snapshot.answer_lookup(lookup, after).rows
            found = {int(number) for number, _ in rows_of(rows, ["id", name])}
            compare = OPERATORS[operator]
            met = {n for n, v in enumerate(values) if any(compare(v, w) for w in with_values)}
            if not met <= found:
                lost.append(f"{operator} {with_values}: rows {sorted(met - found)} are lost")
    if kind == pa.date32() or pa.types.is_timestamp(kind):
        lost += lost_in_spans(snapshot, name, kind, values, after)
    return lost


def lost_in_spans(
    snapshot: Any, name: str, kind: pa.DataType, values: Sequence[Any], after: int
) -> list[str]:
    """The same for spans of time: from each value to itself and the last one, and to the next."""
    ordered = sorted(values)
    last = ordered[-1]
    spans = [(value, value, last, last) for value in ordered] + list(pairwise(ordered))
    lost = []
    for span in spans:
        condition = LocalCondition(name, "within", span, kind)
        lookup = replace(lookup_of("t", ["id", name]), conditions=(condition,))
        rows = snapshot.answer_lookup(lookup, after).rows
        found = {int(number) for number, _ in rows_of(rows, ["id", name])}
        inside = zip(span[::2], span[1::2], strict=True)
        met = {n for low, high in inside for n, v in enumerate(values) if low <= v <= high}
        if not met <= found:
            lost.append(f"within {span}: rows {sorted(met - found)} are lost")
    return lost


def condition_of(
    name: str, kind: pa.DataType, operator: Any, values: Sequence[Any]
) -> tuple[LocalCondition, ...]:
    """The condition that a lookup carries for a comparison, if it carries one."""
    column, literals = Column(0, name, kind), [Literal(value, kind) for value in values]
    if len(literals) == 1:
        return local_conditions_of([Compare(operator, column, literals[0])])
    return local_conditions_of([Call("in", (column, *literals), pa.bool_())])


def streamed(
    source: Source, tables: dict[str, list[str]], after: int, until: int, sign: int
) -> dict[str, list[Any]]:
    rows = []
    for _, batch in source.read_changes(tables, after, until):
        for *row, count in rows_of(batch, [*tables["t"], COUNT]):
            assert count == sign
            rows.append(tuple(row))
    return by_column(rows, tables["t"])


@pytest.fixture(scope="module")
def seen_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Seen]:
    """What a kind showed, found out when the first test asks."""
    known: dict[str, Seen] = {}

    def get(kind: str) -> Seen:
        if kind not in known:
            with closing(KINDS[kind](request, tmp_path_factory.mktemp("types"))) as database:
                known[kind] = explore(database, cases_of(kind))
        return known[kind]

    return get


@pytest.mark.parametrize(("kind", "number"), ALL, ids=NAMES)
def test_values_arrive_exactly_or_are_refused(
    seen_of: Callable[[str], Seen], kind: str, number: int
) -> None:
    case, name, seen = cases_of(kind)[number], f"c{number}", seen_of(kind)
    if case.is_refused:
        assert name not in seen.kept
        assert seen.refused[name] == case.reason
        return
    assert name not in seen.refused
    assert seen.kept[name] == case.arrow
    wanted = [value.kept for value in case.values]
    for way, columns in seen.read.items():
        found = columns[name]
        assert len(found) > len(wanted), way
        assert all(value is None for value in found[len(wanted) :]), way
        for one, other in zip(found, wanted, strict=False):
            assert same(one, other), f"{way}: {one!r} instead of {other!r}"
    assert len(seen.read) >= 4
    assert all(seen.found[name]), "each is found by a lookup of itself, and NULL by NULL"
    assert seen.lost[name] == []


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "sqlite-wal"])
def test_databases_leave_out_what_does_not_meet_a_condition(
    seen_of: Callable[[str], Seen], kind: str
) -> None:
    assert seen_of(kind).first == [0]


@pytest.fixture
def database_of(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[str], Database]]:
    made: list[Database] = []

    def make(kind: str) -> Database:
        made.append(KINDS[kind](request, tmp_path))
        return made[-1]

    yield make
    for database in made:
        database.close()


@pytest.mark.parametrize(("kind", "case", "misfit"), STRANGE, ids=STRANGE_NAMES)
def test_a_value_that_cannot_be_kept_is_named(
    database_of: Callable[[str], Database], kind: str, case: Case, misfit: Misfit
) -> None:
    """Whether it comes in a change or was there before."""
    database = database_of(kind)
    table = type_table(database, "t", [case])
    source = database.source(table.options())
    start = source.follow_tables(TABLES)
    table.fill([[misfit.written]])
    # Files are read when they are accepted: until then the source counts as away.
    error = SourceAwayError if database.kind == "files" else ConversionError
    with pytest.raises(error) as caught:
        stream_all(source, start)
    check_named(caught.value, misfit)
    later = database.source(table.options(), home="later")
    for read in (scan_all, ask_all):
        with pytest.raises(ConversionError) as caught_later:
            read(later, later.follow_tables(TABLES))
        check_named(caught_later.value, misfit)


def check_named(error: SourceError, misfit: Misfit) -> None:
    assert error.message.startswith(f'source "{NAME}": ')
    assert '"c0"' in str(error)
    assert misfit.told in str(error), str(error)


def stream_all(source: Source, after: int) -> None:
    until = look_all(source, after)[-1].position
    list(source.read_changes(TABLES, after, until))


def scan_all(source: Source, after: int) -> None:
    with snapshot_at(source, after, TABLES) as snapshot:
        list(snapshot.scan_relation(Relation(NAME, "t"), ["c0"], after).batches)


def ask_all(source: Source, after: int) -> None:
    keys = pa.table({"id": pa.array([0], pa.int64())})
    with snapshot_at(source, after, TABLES) as snapshot:
        snapshot.answer_lookup(lookup_of("t", ["c0"], keys), after)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if any(c.is_refused for c in cases_of(kind))]
)
def test_a_refused_column_cannot_be_followed(
    database_of: Callable[[str], Database], kind: str
) -> None:
    database = database_of(kind)
    case = next(case for case in cases_of(kind) if case.is_refused)
    table = type_table(database, "t", [case])
    source = database.source(table.options())
    with pytest.raises(SchemaError) as caught:
        source.follow_tables({"t": ["id", "c0"]})
    assert 'column "c0"' in str(caught.value)
    reason = case.reason.partition("; ")[0]
    assert reason in str(caught.value)


def test_the_page_is_what_the_matrix_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "write it anew: python -m tests.sources.conformance.types_page"
    )
