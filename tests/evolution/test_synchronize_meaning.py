"""A rewritten view means what the view meant: random views, random changes, compared by rows.

The judge is `tests.evolution.worlds`: it knows tables and columns by identity and computes what a
view shows by definition. Renames and additions must change nothing that is shown. Losses must
change exactly what was dispensed with, and rows only as the extent says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import assert_never

import yaml
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from tests.evolution.worlds import (
    Shows,
    Table,
    Value,
    World,
    grown,
    make_rows,
    make_view,
    make_world,
    renamed,
    without_columns,
)
from viewkeeper.errors import DefinitionError
from viewkeeper.evolution.extent import Extent
from viewkeeper.evolution.preferences import NamedParts, Preferences, Substitute, read_preferences
from viewkeeper.evolution.synchronization.parts_of_sql import parts_of_view
from viewkeeper.evolution.synchronization.synchronize import (
    NoRewriting,
    Rewriting,
    synchronize_view,
)
from viewkeeper.view.definition import Relation
from viewkeeper.view.sql.view_statement import parse_view

# A seed replays a failure; drawing each choice by itself would take most of the time.
RANDOM = st.integers(0, 2**32).map(Random)
MANY = settings(max_examples=120, deadline=None)


def given_view(random: Random) -> tuple[World, str]:
    """A world and a view over it that can be bound."""
    world = make_world(random)
    for _ in range(20):
        text = make_view(random, world)
        try:
            world.bind(text)
        except DefinitionError:
            continue
        return world, text
    assume(False)
    raise AssertionError


def follow(
    before: World,
    now: World,
    text: str,
    preferences: Preferences,
    substitutes: Sequence[Substitute] = (),
    null_for_lost: bool = False,
    keep_columns: bool = False,
    told: bool = True,
) -> Rewriting | NoRewriting:
    parsed = parse_view(text)
    return synchronize_view(
        parsed,
        {relation: before.became(now, relation) for relation in parsed.relations},
        now.schema,
        preferences,
        substitutes,
        null_for_lost,
        keep_columns,
        before.types(parsed) if told else {},
    )


def everything(text: str, before: World) -> NamedParts:
    """Every part of a view, to be dispensable."""
    view = parts_of_view(parse_view(text), lambda relation: before.called(relation).fields)
    return NamedParts(
        frozenset(shown.name for shown in view.shown),
        frozenset(condition.written for condition in view.conditions),
        frozenset(table.alias for table in view.tables),
    )


def check(old: Shows, new: Shows, extent: Extent) -> None:
    """Whether the rows are related as the extent says, on the columns that both have."""
    common = tuple(name for name in old.names if name in new.names)
    before, after = old.only(common), new.only(common)
    match extent:
        case Extent.EQUAL:
            assert after == before
        case Extent.SUBSET:
            assert set(after) <= set(before)
        case Extent.SUPERSET:
            assert set(after) >= set(before)
        case Extent.ANY:
            pass
        case _:
            assert_never(extent)


@MANY
@given(RANDOM)
def test_nothing_happens_to_a_view_whose_tables_stay(random: Random) -> None:
    world, text = given_view(random)
    assert follow(world, world, text, Preferences()) == Rewriting(text, Extent.EQUAL, ())


@MANY
@given(RANDOM, st.booleans())
def test_renames_and_additions_change_nothing_that_is_shown(random: Random, keep: bool) -> None:
    before, text = given_view(random)
    now = grown(random, renamed(random, before))
    found = follow(before, now, text, Preferences(), keep_columns=keep)
    assert isinstance(found, Rewriting), found
    assert found.extent is Extent.EQUAL
    old, new = before.show(text), now.show(found.text)
    assert new.only(old.names) == old.rows
    kept = tuple(name for name in new.names if name in old.names)
    assert Counter(kept) == Counter(old.names)
    if keep or "*" not in re.sub(r"/\*.*?\*/", "", text):
        assert new.names == old.names
    # A star that is written out, and a USING that becomes an ON, are written anew.
    if "written out" not in str(found.steps) and text.count("USING") == found.text.count("USING"):
        assert comments(found.text) == comments(text)


def comments(text: str) -> list[str]:
    return re.findall(r"/\*.*?\*/|--.*", text)


@MANY
@given(RANDOM)
def test_names_are_followed_without_being_told_what_there_was(random: Random) -> None:
    before, text = given_view(random)
    now = renamed(random, before)
    told = follow(before, now, text, Preferences())
    assert follow(before, now, text, Preferences(), told=False) == told


@MANY
@given(RANDOM)
def test_a_line_that_is_offered_for_the_project_file_mends_the_view(random: Random) -> None:
    before, text = given_view(random)
    now = without_columns(random, renamed(random, before))
    if random.random() < 0.5:
        now = World(dict(list(now.tables.items())[1:]))
    found = follow(before, now, text, Preferences())
    event(type(found).__name__)
    for line in found.mends if isinstance(found, NoRewriting) else ():
        if line.startswith("views:"):
            raw = yaml.safe_load(line)["views"]["v"]["evolution"]
            mended = follow(before, now, text, read_preferences(raw, "v"))
            assert isinstance(mended, Rewriting), (line, mended)
            event(f"mended, {mended.extent.value}")


@MANY
@given(RANDOM)
def test_what_is_dispensed_with_changes_rows_only_as_the_extent_says(random: Random) -> None:
    before, text = given_view(random)
    now = without_columns(random, renamed(random, before))
    gone = random.choice(list(now.tables))
    if random.random() < 0.3:
        now = World({id: table for id, table in now.tables.items() if id != gone})
    wanted = random.choice(list(Extent))
    found = follow(before, now, text, Preferences(wanted, everything(text, before)))
    event(type(found).__name__)
    if isinstance(found, Rewriting):
        event(found.extent.value)
        assert wanted.can_accept(found.extent)
        old, new = before.show(text), now.show(found.text)
        # What has the name of something lost stands for it, and holds what it holds.
        if "read anew" not in str(found.steps):
            assert new.names == tuple(name for name in old.names if name in new.names)
            check(old, new, found.extent)
    else:
        assert found.reason
        assert found.mends


def without_shown(random: Random, before: World, text: str) -> tuple[World, set[str]]:
    """The world without some columns that no condition of a view uses, and its outputs that do."""
    view = parts_of_view(parse_view(text), lambda relation: before.called(relation).fields)

    def identities(uses: frozenset[tuple[int, str]]) -> set[int]:
        tables = [(before.called(view.tables[place].relation), name) for place, name in uses]
        return {id for table, name in tables for id, n in table.columns.items() if n == name}

    needed = {id for condition in view.conditions for id in identities(condition.uses)}
    tables = {}
    for id, table in before.tables.items():
        left = [c for c in table.columns if c in needed or random.random() < 0.5]
        kept = left or list(table.columns)[:1]
        tables[id] = replace(table, columns={c: table.columns[c] for c in kept})
    there = {id for table in tables.values() for id in table.columns}
    lost = {shown.name for shown in view.shown if not identities(shown.uses) <= there}
    return World(tables), lost


@MANY
@given(RANDOM)
def test_a_dispensable_column_goes_by_projection(random: Random) -> None:
    before, text = given_view(random)
    dropped, lost = without_shown(random, before, text)
    old = before.show(text)
    assume(lost and lost < set(old.names))
    now = renamed(random, dropped)
    found = follow(before, now, text, Preferences(dispensable=NamedParts(columns=frozenset(lost))))
    # A column that came to have the name of a lost one stands for it.
    assume("read anew" not in str(getattr(found, "steps", "")))
    assert isinstance(found, Rewriting), found
    assert found.extent is Extent.EQUAL
    new = now.show(found.text)
    assert new.names == tuple(name for name in old.names if name not in lost)
    assert new.rows == old.only(new.names)


@MANY
@given(RANDOM)
def test_lost_columns_are_null_where_that_is_asked_for(random: Random) -> None:
    before, text = given_view(random)
    now, lost = without_shown(random, before, text)
    assume(lost)
    found = follow(before, now, text, Preferences(), null_for_lost=True, keep_columns=True)
    assert isinstance(found, Rewriting), found
    assert found.extent is Extent.EQUAL
    old, new = before.show(text), now.show(found.text)
    expected: Counter[tuple[Value, ...]] = Counter()
    for row, count in old.rows.items():
        nulled = (None if name in lost else v for name, v in zip(old.names, row, strict=True))
        expected[tuple(nulled)] += count
    assert new.names == old.names
    assert new.rows == expected


@MANY
@given(RANDOM, st.sampled_from(Extent))
def test_a_relation_is_replaced_as_the_substitute_says(random: Random, extent: Extent) -> None:
    before, text = given_view(random)
    lost = before.called(random.choice(parse_view(text).relations))
    columns = {100 + id: f"s{number}" for number, id in enumerate(lost.columns)}
    twins = [{100 + id: value for id, value in row.items()} for row in lost.rows]
    rows = contained(random, twins, list(make_rows(random, columns)), extent)
    stand_in = Table(99, Relation("spare", "copy"), columns, rows)
    others = {id: table for id, table in before.tables.items() if id != lost.id}
    now = World({**renamed(random, World(others)).tables, 99: stand_in})
    assume(now.schema(lost.relation) is None)
    names = {lost.columns[id - 100]: name for id, name in columns.items()}
    substitute = Substitute(lost.relation, None, stand_in.relation, names, None, extent)
    found = follow(before, now, text, Preferences(extent), [substitute])
    assert isinstance(found, Rewriting), found
    assert found.extent is extent or found.extent is extent.followed_by(extent)
    old, new = before.show(text), now.show(found.text)
    assert new.names == old.names
    check(old, new, extent)


def contained(
    random: Random, rows: list[dict[int, Value]], others: list[dict[int, Value]], extent: Extent
) -> tuple[dict[int, Value], ...]:
    """Rows that relate to the given ones so."""
    some = [row for row in rows if random.random() < 0.5]
    match extent:
        case Extent.EQUAL:
            return tuple(rows)
        case Extent.SUBSET:
            return tuple(some)
        case Extent.SUPERSET:
            return (*rows, *others)
        case Extent.ANY:
            return (*some, *others)
        case _:
            assert_never(extent)


@MANY
@given(RANDOM, st.sampled_from(Extent))
def test_a_column_is_replaced_as_the_substitute_says(random: Random, extent: Extent) -> None:
    before, text = given_view(random)
    table = before.called(random.choice(parse_view(text).relations))
    key, *rest = table.columns
    lost = random.choice(rest)
    pairs: list[dict[int, Value]] = [{900: row[key], 901: row[lost]} for row in table.rows]
    others: list[dict[int, Value]] = [
        {900: row[key], 901: random.choice((None, 0, 1))} for row in table.rows
    ]
    values = Table(
        99,
        Relation("spare", random.choice(("t0", "vals"))),
        {900: random.choice(("k", "a")), 901: random.choice(("v", "b"))},
        contained(random, pairs, others, extent),
    )
    left = {id: name for id, name in table.columns.items() if id != lost}
    shrunk = World({**before.tables, table.id: replace(table, columns=left)})
    now = World({**renamed(random, shrunk).tables, 99: values})
    assume(table.columns[lost] not in now.tables[table.id].columns.values())
    join = (
        f"{table.relation}.{quoted(table.columns[key])} = {values.relation}.{values.columns[900]}"
    )
    columns = {table.columns[lost]: values.columns[901]}
    substitute = Substitute(
        table.relation, table.columns[lost], values.relation, columns, join, extent
    )
    found = follow(before, now, text, Preferences(extent), [substitute])
    assert isinstance(found, Rewriting), found
    old, new = before.show(text), now.show(found.text)
    event(f"{found.extent.value} for {extent.value}")
    assert new.names == old.names
    check(old, new, found.extent)


def quoted(name: str) -> str:
    return f"`{name}`"
