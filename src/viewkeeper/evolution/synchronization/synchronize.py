"""View synchronization: the SQL of a view after its sources have changed their shape.

All changes since the view was bound are followed in one step, by their net effect: what each table
of the SQL is called now, what its columns are called, and which are gone. What only has another
name is followed. For what is gone the view's preferences decide, and the substitutes that the
project names (EVE: Lee, Nica and Rundensteiner, "The EVE approach: view synchronization in dynamic
distributed environments"; VS in the Dyno paper). How the rows of the result relate to those of the
view before is computed on the way, and is never more than the view allows.

What must hold: the text that comes out is a view that can be bound to the tables of now; its
columns are columns of the view before, under their names, and what a star took in; nothing else in
the text has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from types import MappingProxyType

import pyarrow as pa

from viewkeeper.errors import DefinitionError
from viewkeeper.evolution.extent import Extent
from viewkeeper.evolution.preferences import NamedParts, Preferences, Substitute
from viewkeeper.evolution.synchronization.part_choice import ChoiceFailure, ListedParts, PartChooser
from viewkeeper.evolution.synchronization.parts_of_sql import ViewParts, parts_of_view
from viewkeeper.evolution.synchronization.remedies import (
    manual_remedy,
    remedies_of,
    widen_preferences,
)
from viewkeeper.evolution.synchronization.rewriting_steps import describe_steps
from viewkeeper.evolution.synchronization.rewritten_sql import RewritingWriter
from viewkeeper.evolution.synchronization.substitute_columns import SubstituteColumns
from viewkeeper.evolution.synchronization.table_now import TableNow, TablesNow, columns_before
from viewkeeper.updates.source_protocol import CurrentNames
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import ParsedView, parse_view

ATTEMPTS = 64
"""As many combinations of substitutes for lost relations are tried at most."""


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The view as it is now. `extent` is how its rows relate to those before; `steps` are sentences
    for `viewkeeper history`."""

    text: str
    extent: Extent
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoRewriting:
    """No rewriting is possible, or none that the view allows; `mends` are lines, each of which
    would mend it: statements for the database, lines of the project file, commands."""

    reason: str
    mends: tuple[str, ...]


Types = Mapping[tuple[Relation, str], pa.DataType]


def synchronize_view(
    parsed: ParsedView,
    became: Mapping[Relation, CurrentNames | None],
    schema: Callable[[Relation], tuple[Field, ...] | None],
    preferences: Preferences,
    substitutes: Sequence[Substitute],
    null_for_lost: bool = False,
    keep_columns: bool = False,
    lost_types: Types = MappingProxyType({}),
) -> Rewriting | NoRewriting:
    """The SQL that means, on the current tables, what `parsed` meant when it was bound.

    `became` has every relation of the SQL; `schema` gives the columns of a table by its name of
    now. `lost_types` has the columns that the tables of the SQL had when it was bound, in their
    order: of each table all or none. Without it a lost column is known only if the SQL names it
    together with its table, and has no type, so that it cannot become NULL.

    `null_for_lost`: an output shows NULL for a column that cannot be replaced, so that the view
    keeps its columns. `keep_columns`: stars take nothing in.
    """
    world = TablesNow(became, schema)
    try:
        view = parts_of_view(parsed, columns_before(parsed, world, lost_types))
    except DefinitionError as error:
        return NoRewriting(str(error), (manual_remedy(parsed),))
    search = _RewritingSearch(view, world, tuple(substitutes), null_for_lost, keep_columns)
    found = search.best_rewriting(preferences)
    return found if isinstance(found, Rewriting) else _explain_failure(search, preferences, found)


@dataclass(frozen=True, slots=True)
class _RewritingSearch:
    """Tries what may stand at the places of lost relations, in the order of the substitutes."""

    view: ViewParts
    world: TablesNow
    substitutes: tuple[Substitute, ...]
    null_for_lost: bool
    keep_columns: bool

    def best_rewriting(self, preferences: Preferences) -> Rewriting | ChoiceFailure:
        first: ChoiceFailure | None = None
        for standings in islice(product(*self._place_candidates(preferences)), ATTEMPTS):
            found = self._attempt_rewriting(standings, preferences)
            if isinstance(found, Rewriting):
                return found
            first = first or found
        assert first is not None, "every place has a candidate"
        return first

    def _place_candidates(self, preferences: Preferences) -> Iterator[list[TableNow | None]]:
        irreplaceable = ListedParts(self.view, preferences.irreplaceable)
        for place, table in enumerate(self.view.tables):
            used = self.view.columns_used(place)
            standing = self.world.table_now(table.relation, used)
            if standing is not None:
                yield [standing]
                continue
            stand_ins: list[TableNow | None] = []
            kinds = {name: self.view.types[place, name] for name in used}
            for each in () if irreplaceable.has_place(place) else self.substitutes:
                fits = each.column is None and each.original == table.relation
                if fits and preferences.extent.can_accept(each.extent):
                    stand_ins.append(self.world.substitute_table_for(each, kinds))
            yield [*(found for found in stand_ins if found is not None), None]

    def _attempt_rewriting(
        self, standings: Sequence[TableNow | None], preferences: Preferences
    ) -> Rewriting | ChoiceFailure:
        view, world = self.view, self.world
        stand_ins = SubstituteColumns(view, world, standings, preferences, self.substitutes)
        chooser = PartChooser(view, standings, preferences, stand_ins, self.null_for_lost)
        choice = chooser.choose_parts()
        if isinstance(choice, ChoiceFailure):
            return choice
        listed = preferences.dispensable.relations | preferences.irreplaceable.relations
        kept = {name.lower() for name in listed}
        text = RewritingWriter(view, choice, world, kept, self.keep_columns).write_sql()
        try:
            bind_view(parse_view(text.sql, view.parsed.path), self._fields_now)
        except DefinitionError as error:
            return ChoiceFailure((str(error),), NamedParts(), Extent.EQUAL)
        return Rewriting(text.sql, choice.extent, describe_steps(view, choice, text.stars))

    def _fields_now(self, relation: Relation) -> tuple[Field, ...]:
        fields = self.world.fields_now(relation)
        assert fields is not None, "only what is there is written"
        return fields


def _explain_failure(
    search: _RewritingSearch, preferences: Preferences, failure: ChoiceFailure
) -> NoRewriting:
    """Why, and what would help: a line of the project file is only offered if it was tried."""
    view, reason = search.view, "; ".join(failure.reasons)
    for extent in (Extent.SUBSET, Extent.SUPERSET, Extent.ANY):
        found = search.best_rewriting(replace(preferences, extent=extent))
        if isinstance(found, Rewriting):
            wanted = preferences.extent.value
            reason += f"; a rewriting would have the extent {found.extent.value}, not {wanted}"
            allowed = replace(preferences, extent=found.extent)
            return NoRewriting(reason, remedies_of(view, search.world, preferences, allowed))
    enough = _enough_preferences(search, preferences, failure)
    return NoRewriting(reason, remedies_of(view, search.world, preferences, enough))


def _enough_preferences(
    search: _RewritingSearch, preferences: Preferences, failure: ChoiceFailure
) -> Preferences | None:
    """Preferences with which a rewriting is possible, relations alone if they do."""
    tried, last = preferences, failure
    for _ in range(len(search.view.tables) + 2):
        tried = widen_preferences(tried, last.needs, last.extent)
        only = NamedParts(relations=tried.dispensable.relations)
        simpler = widen_preferences(replace(preferences, extent=tried.extent), only, Extent.EQUAL)
        for candidate in (simpler, tried):
            found = search.best_rewriting(candidate)
            if isinstance(found, Rewriting):
                return candidate
            last = found
    return None
