"""One schema change after the other: what it makes of a view's definition, and of its rows.

Dyno keeps definitions in step with the schema changes that it has maintained. `Rewriter.rewritten`
gives the definition after one of them (view synchronization), by the shapes before and after it;
several that are maintained as one are rewritten one by one, in the order of their sources, so that
the result is the same whether they were merged or not. `Rewriter.repair` says what the stored rows
need between any two definitions (view adaptation), by the identities of the columns that both read.

Substitutes are named by identity too, so that one that was renamed is still found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from viewkeeper.evolution.adaptation import Adaptation, Difference, Reload, choose_adaptation
from viewkeeper.evolution.dyno.table_identity import BoundDefinition, DynoShapes, Key, define_view
from viewkeeper.evolution.extent import Extent
from viewkeeper.evolution.preferences import Preferences, Substitute
from viewkeeper.evolution.synchronization.synchronize import NoRewriting, synchronize_view
from viewkeeper.view.definition import Relation

Columns = frozenset[tuple[Key, int]]
"""Columns, by table and identity."""

MEMORY = 256
"""As many rewritings are remembered: detection asks for the same ones again and again."""


@dataclass(frozen=True, slots=True)
class SubstituteTable:
    """A table that may stand in for another: both by identity, columns by identity."""

    original: Key
    table: Key
    columns: Mapping[int, int]
    extent: Extent = Extent.EQUAL

    def substitute_now(self, before: BoundDefinition, after: DynoShapes) -> Substitute | None:
        """As view synchronization wants it: the original by the names of the text, the other by
        those of now."""
        relation = next((r for r, key in before.table_keys.items() if key == self.original), None)
        shape = after.tables.get(self.table)
        if relation is None or shape is None:
            return None
        columns = {}
        for old, new in self.columns.items():
            theirs, ours = before.meant[relation].column_by_id(old), shape.column_by_id(new)
            if theirs is not None and ours is not None:
                columns[theirs.name] = ours.name
        now = Relation(self.table[0], shape.name)
        return Substitute(relation, None, now, columns, None, self.extent)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a view can do without, and what may stand in for what it loses."""

    preferences: Preferences = field(default_factory=Preferences)
    stand_ins: tuple[SubstituteTable, ...] = ()


class Rewriter:
    """View synchronization and adaptation under some wishes; what was asked before is known."""

    def __init__(self, wishes: Wishes) -> None:
        self.wishes = wishes
        self.rewritten = lru_cache(MEMORY)(self._rewrite_definition)
        """The definition once the tables have some shapes."""
        self.repair = lru_cache(MEMORY)(_repair_between)
        """What the stored rows need between two definitions, given the columns (by table and
        identity) that are NULL in all rows from before."""

    def _rewrite_definition(
        self, before: BoundDefinition, after: DynoShapes
    ) -> BoundDefinition | NoRewriting:
        keys = before.table_keys
        if all(after.tables.get(keys[r]) == shape for r, shape in before.meant.items()):
            return before
        became = {r: after.table_after(r.source, shape) for r, shape in before.meant.items()}
        named = (each.substitute_now(before, after) for each in self.wishes.stand_ins)
        substitutes = [each for each in named if each is not None]
        types = {(r, c.name): c.type for r, shape in before.meant.items() for c in shape.columns}
        wanted = self.wishes.preferences
        found = synchronize_view(
            before.parsed, became, after.fields_named, wanted, substitutes, lost_types=types
        )
        return found if isinstance(found, NoRewriting) else define_view(found.text, after)


def _repair_between(before: BoundDefinition, after: BoundDefinition, added: Columns) -> Adaptation:
    old, new = _column_identities(before), _column_identities(after)
    at: dict[tuple[Key, int], tuple[Relation, str]] = {v: k for k, v in new.items()}
    same = {mine: at[identity] for mine, identity in old.items() if identity in at}
    gone = frozenset(mine for mine in old if mine not in same)
    empty = frozenset(theirs for theirs, identity in new.items() if identity in added)
    return choose_adaptation(before.view, after.view, same, gone, empty)


def is_reading_needed(needed: Adaptation) -> bool:
    """Whether the sources must be read to repair the stored rows."""
    return isinstance(needed, Difference | Reload)


def _column_identities(definition: BoundDefinition) -> dict[tuple[Relation, str], tuple[Key, int]]:
    """Every column of every table that the view reads, by its identity."""
    return {
        (relation, column.name): (definition.table_keys[relation], column.id)
        for relation, shape in definition.meant.items()
        for column in shape.columns
    }
