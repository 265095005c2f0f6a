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
from viewkeeper.evolution.preferences import Parts, Preferences, Substitute
from viewkeeper.evolution.synchronization.part_choice import Chooser, Failure, Listed
from viewkeeper.evolution.synchronization.parts_of_sql import Anatomy, anatomy
from viewkeeper.evolution.synchronization.remedies import by_hand, mends_of, wider
from viewkeeper.evolution.synchronization.rewriting_steps import steps
from viewkeeper.evolution.synchronization.rewritten_sql import Writer
from viewkeeper.evolution.synchronization.substitute_columns import StandIns
from viewkeeper.evolution.synchronization.table_now import Standing, World, before
from viewkeeper.updates.source_protocol import Became
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.sql.bind import bind
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
class Impossible:
    """No rewriting is possible, or none that the view allows; `mends` are lines, each of which
    would mend it: statements for the database, lines of the project file, commands."""

    reason: str
    mends: tuple[str, ...]


Types = Mapping[tuple[Relation, str], pa.DataType]


def synchronize(
    parsed: ParsedView,
    became: Mapping[Relation, Became | None],
    schema: Callable[[Relation], tuple[Field, ...] | None],
    preferences: Preferences,
    substitutes: Sequence[Substitute],
    null_for_lost: bool = False,
    keep_columns: bool = False,
    lost_types: Types = MappingProxyType({}),
) -> Rewriting | Impossible:
    """The SQL that goes on to mean what `parsed` meant when it was bound.

    `became` has every relation of the SQL; `schema` gives the columns of a table by its name of
    now. `lost_types` has the columns that the tables of the SQL had when it was bound, in their
    order: of each table all or none. Without it a lost column is known only if the SQL names it
    together with its table, and has no type, so that it cannot become NULL.

    `null_for_lost`: an output shows NULL for a column that cannot be replaced, so that the view
    keeps its columns. `keep_columns`: stars take nothing in.
    """
    world = World(became, schema)
    try:
        view = anatomy(parsed, before(parsed, world, lost_types))
    except DefinitionError as error:
        return Impossible(str(error), (by_hand(parsed),))
    search = _Search(view, world, tuple(substitutes), null_for_lost, keep_columns)
    found = search.best(preferences)
    return found if isinstance(found, Rewriting) else _impossible(search, preferences, found)


@dataclass(frozen=True, slots=True)
class _Search:
    """Tries what may stand at the places of lost relations, in the order of the substitutes."""

    view: Anatomy
    world: World
    substitutes: tuple[Substitute, ...]
    null_for_lost: bool
    keep_columns: bool

    def best(self, preferences: Preferences) -> Rewriting | Failure:
        first: Failure | None = None
        for standings in islice(product(*self._candidates(preferences)), ATTEMPTS):
            found = self._attempt(standings, preferences)
            if isinstance(found, Rewriting):
                return found
            first = first or found
        assert first is not None, "every place has a candidate"
        return first

    def _candidates(self, preferences: Preferences) -> Iterator[list[Standing | None]]:
        irreplaceable = Listed(self.view, preferences.irreplaceable)
        for place, table in enumerate(self.view.tables):
            used = self.view.used(place)
            standing = self.world.standing(table.relation, used)
            if standing is not None:
                yield [standing]
                continue
            stand_ins: list[Standing | None] = []
            kinds = {name: self.view.types[place, name] for name in used}
            for each in () if irreplaceable.place(place) else self.substitutes:
                fits = each.column is None and each.original == table.relation
                if fits and preferences.extent.allows(each.extent):
                    stand_ins.append(self.world.in_place_of(each, kinds))
            yield [*(found for found in stand_ins if found is not None), None]

    def _attempt(
        self, standings: Sequence[Standing | None], preferences: Preferences
    ) -> Rewriting | Failure:
        view, world = self.view, self.world
        stand_ins = StandIns(view, world, standings, preferences, self.substitutes)
        chooser = Chooser(view, standings, preferences, stand_ins, self.null_for_lost)
        choice = chooser.choose()
        if isinstance(choice, Failure):
            return choice
        listed = preferences.dispensable.relations | preferences.irreplaceable.relations
        kept = {name.lower() for name in listed}
        text = Writer(view, choice, world, kept, self.keep_columns).write()
        try:
            bind(parse_view(text.sql, view.parsed.path), self._now)
        except DefinitionError as error:
            return Failure((str(error),), Parts(), Extent.EQUAL)
        return Rewriting(text.sql, choice.extent, steps(view, choice, text.stars))

    def _now(self, relation: Relation) -> tuple[Field, ...]:
        fields = self.world.fields(relation)
        assert fields is not None, "only what is there is written"
        return fields


def _impossible(search: _Search, preferences: Preferences, failure: Failure) -> Impossible:
    """Why, and what would help: a line of the project file is only offered if it was tried."""
    view, reason = search.view, "; ".join(failure.reasons)
    for extent in (Extent.SUBSET, Extent.SUPERSET, Extent.ANY):
        found = search.best(replace(preferences, extent=extent))
        if isinstance(found, Rewriting):
            wanted = preferences.extent.value
            reason += f"; a rewriting would have the extent {found.extent.value}, not {wanted}"
            allowed = replace(preferences, extent=found.extent)
            return Impossible(reason, mends_of(view, search.world, preferences, allowed))
    enough = _enough(search, preferences, failure)
    return Impossible(reason, mends_of(view, search.world, preferences, enough))


def _enough(search: _Search, preferences: Preferences, failure: Failure) -> Preferences | None:
    """Preferences with which a rewriting is possible, relations alone if they do."""
    tried, last = preferences, failure
    for _ in range(len(search.view.tables) + 2):
        tried = wider(tried, last.needs, last.extent)
        only = Parts(relations=tried.dispensable.relations)
        simpler = wider(replace(preferences, extent=tried.extent), only, Extent.EQUAL)
        for candidate in (simpler, tried):
            found = search.best(candidate)
            if isinstance(found, Rewriting):
                return candidate
            last = found
    return None
