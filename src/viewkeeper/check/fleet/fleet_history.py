"""A run of several warehouses as a checker sees it: bases, members, and the states they showed.

A member is a warehouse; a relation of its views belongs to a base or is a view of another member.
Every state says where the member stood at each source that it reads: of a base at a position, of
another member at a ts. That is what it claims, and it is never believed.

A state was shown *after an id* of a group; two members of a group have the state after the same id
exactly when group and id are equal. What an id is does not matter here: any text will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from viewkeeper.check.history.recorded_history import Bag
from viewkeeper.errors import HistoryError
from viewkeeper.view.definition import Relation, ViewDefinition


@dataclass(frozen=True, slots=True)
class BaseState:
    """A base from a position on: the rows of its tables, and what its last transaction is
    called."""

    position: int
    rows: Mapping[str, Bag]
    name: str = ""


@dataclass(frozen=True, slots=True)
class BaseHistory:
    """The states of a base in commit order, the initial one first; `columns` are by table."""

    name: str
    columns: Mapping[str, tuple[str, ...]]
    states: tuple[BaseState, ...]


@dataclass(frozen=True, slots=True)
class MemberState:
    """What a member showed from a ts on: the rows of every view, and where its sources stood.

    `group` and `id` say after which id; empty if after none, like a first load.
    """

    ts: int
    rows: Mapping[str, Bag]
    positions: Mapping[str, int]
    group: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class MemberHistory:
    """A warehouse: its views by name, and its states in the order in which it showed them."""

    name: str
    views: Mapping[str, ViewDefinition]
    states: tuple[MemberState, ...]


@dataclass(frozen=True)
class FleetHistory:
    """A recorded run; no base is called like a member."""

    bases: tuple[BaseHistory, ...]
    members: tuple[MemberHistory, ...]
    _bases_of: dict[Relation, tuple[str, ...]] = field(default_factory=dict, repr=False)

    @cached_property
    def base_by_name(self) -> dict[str, BaseHistory]:
        return {base.name: base for base in self.bases}

    @cached_property
    def member_by_name(self) -> dict[str, MemberHistory]:
        return {member.name: member for member in self.members}

    def definition_of(self, view: Relation) -> ViewDefinition:
        """What a view of a member is."""
        member = self.member_by_name.get(view.source)
        if member is None or view.table not in member.views:
            raise HistoryError(
                f"{view}: the history has no such table and no such view",
                hint="list every base and every member that a view reads",
            )
        return member.views[view.table]

    def columns_of(self, relation: Relation) -> list[str]:
        if relation.source in self.base_by_name:
            return list(self.base_by_name[relation.source].columns[relation.table])
        return [output.name for output in self.definition_of(relation).outputs]

    def bases_of(self, relation: Relation) -> tuple[str, ...]:
        """The bases that a relation derives from, by name."""
        if relation.source in self.base_by_name:
            return (relation.source,)
        if relation not in self._bases_of:
            parents = self.definition_of(relation).relations
            found = {base for parent in parents for base in self.bases_of(parent)}
            self._bases_of[relation] = tuple(sorted(found))
        return self._bases_of[relation]
