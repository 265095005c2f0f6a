"""Stored rows that are said to be right as they are, restated, are the rows of the new definition.

Random views, random changes: names, added columns, dispensed ones, rewritten values. Whatever
adaptation leaves to the stored rows is compared with what the new definition shows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import event, given

from tests.evolution.test_synchronize_meaning import (
    MANY,
    RANDOM,
    everything,
    follow,
    given_view,
)
from tests.evolution.worlds import Shows, Value, World, grown, renamed, without_columns
from viewkeeper.evolution.adaptation import (
    Adaptation,
    Difference,
    Named,
    Nothing,
    Restate,
    choose_adaptation,
)
from viewkeeper.evolution.extent import Extent
from viewkeeper.evolution.preferences import Preferences
from viewkeeper.evolution.synchronization.synchronize import Rewriting


def rewritten(random: Random, world: World) -> tuple[World, set[int]]:
    """The world with other values in some columns, and which these are."""
    tables, changed = dict(world.tables), set[int]()
    for id, table in world.tables.items():
        if random.random() < 0.2:
            column = random.choice(list(table.columns))
            rows = tuple({**row, column: random.choice((None, 0, 1))} for row in table.rows)
            tables[id] = replace(table, rows=rows)
            changed.add(column)
    return World(tables), changed


def adapt(before: World, now: World, changed: set[int], old: str, new: str) -> Adaptation:
    """Adaptation, told by the identities of columns what is the same."""
    same: dict[Named, Named] = {}
    added: set[Named] = set()
    for table in now.tables.values():
        was = before.tables[table.id]
        for column, name in table.columns.items():
            if column in was.columns:
                same[was.relation, was.columns[column]] = (table.relation, name)
            elif all(row.get(column) is None for row in table.rows):
                added.add((table.relation, name))
    other = {
        (table.relation, name)
        for table in before.tables.values()
        for column, name in table.columns.items()
        if column in changed
    }
    return choose_adaptation(
        before.bind(old), now.bind(new), same, frozenset(other), frozenset(added)
    )


def restated(stored: Shows, found: Restate, names: tuple[str, ...]) -> Counter[tuple[Value, ...]]:
    """The stored rows under other columns."""
    new = {field.name for field in found.add}
    assert set(found.drop) == set(stored.names) - set(names)
    rows: Counter[tuple[Value, ...]] = Counter()
    for row, count in stored.rows.items():
        values = dict(zip(stored.names, row, strict=True))
        rows[tuple(None if name in new else values[name] for name in names)] += count
    return rows


@MANY
@given(RANDOM)
def test_what_is_left_as_it_is_stored_is_what_the_view_shows(random: Random) -> None:
    before, text = given_view(random)
    now, changed = rewritten(random, grown(random, renamed(random, before)))
    if random.random() < 0.5:
        now = without_columns(random, now)
    preferences = Preferences(Extent.ANY, everything(text, before))
    found = follow(before, now, text, preferences)
    if not isinstance(found, Rewriting) or "read anew" in str(found.steps):
        return
    needed = adapt(before, now, changed, text, found.text)
    event(type(needed).__name__)
    old, new = before.show(text), now.show(found.text)
    match needed:
        case Nothing():
            assert set(new.names) == set(old.names)
            assert new.only(old.names) == old.rows
        case Restate():
            assert new.rows == restated(old, needed, new.names)
        case Difference():
            assert set(new.names) == {*old.names} - {*needed.drop} | {f.name for f in needed.add}
        case _:
            raise AssertionError("no type changes here")
