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

About a view that cannot follow its sources a user can do three things, each by itself enough: give
the database back what it lost; let the project file say that the view can do without it; or write
the view anew. The second is a line for the project file, offered only if a rewriting was found with
it.

The sentences for `viewkeeper history` name things as the SQL before had them, in the order in which
a reader would ask: what was followed, what stands in for what, what the view does without, what its
stars took in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from types import MappingProxyType

import pyarrow as pa
import yaml

from viewkeeper.errors import DefinitionError, reload_hint
from viewkeeper.evolution.extent import Extent
from viewkeeper.evolution.preferences import NamedParts, Preferences, Substitute
from viewkeeper.evolution.synchronization.part_choice import (
    ChoiceFailure,
    ListedParts,
    PartChoice,
    PartChooser,
)
from viewkeeper.evolution.synchronization.parts_of_sql import (
    Use,
    ViewParts,
    add_column_sql,
    create_table_sql,
    parts_of_view,
)
from viewkeeper.evolution.synchronization.rewritten_names import StarText
from viewkeeper.evolution.synchronization.rewritten_sql import RewritingWriter
from viewkeeper.evolution.synchronization.substitute_columns import SubstituteColumns
from viewkeeper.evolution.synchronization.table_now import (
    UNKNOWN,
    NamesNow,
    TableNow,
    TablesNow,
    columns_before,
)
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import ParsedView, parse_view


def describe_steps(
    view: ViewParts, choice: PartChoice, stars: dict[int, StarText]
) -> tuple[str, ...]:
    """The sentences, each once."""
    found = [
        *_rename_sentences(view, choice),
        *_substitute_sentences(view, choice),
        *_loss_sentences(view, choice),
        *_star_sentences(view, stars),
    ]
    return tuple(dict.fromkeys(found))


def _rename_sentences(view: ViewParts, choice: PartChoice) -> Iterator[str]:
    for place, table in enumerate(view.tables):
        standing = choice.standings[place]
        if standing is None or place in choice.gone or standing.substitute is not None:
            continue
        if standing.recreated:
            yield f"{table.relation} is another table of the same name now, and is read anew"
        elif standing.relation != table.relation:
            yield f"{table.relation} is called {standing.relation} now"
        for name in view.columns_used(place):
            now = standing.column_now(name)
            if name.lower() in standing.anew:
                column = f"{table.relation}.{name}"
                yield f"{column} is another column of the same name now, and is read anew"
            elif now is not None and now.lower() != name.lower():
                yield f"{table.relation}.{name} is called {now} now"


def _substitute_sentences(view: ViewParts, choice: PartChoice) -> Iterator[str]:
    for place, standing in enumerate(choice.standings):
        if standing is not None and standing.substitute is not None and place not in choice.gone:
            extent = standing.substitute.extent.value
            relation = view.tables[place].relation
            yield f"{standing.relation} stands in for {relation}, extent {extent}"
    for stand_in in choice.used:
        extent = stand_in.substitute.extent.value
        yield (
            f"{stand_in.substitute} stands in for {_column_name(view, stand_in.use)}, extent "
            f"{extent}"
        )


def _loss_sentences(view: ViewParts, choice: PartChoice) -> Iterator[str]:
    for place in sorted(choice.gone):
        yield f"{view.tables[place].relation} is dispensed with"
    for index, condition in enumerate(view.conditions):
        if index not in choice.conditions:
            yield f"the condition {condition.written} is dispensed with"
    for index, shown in enumerate(view.shown):
        if index in choice.nulled:
            lost = ", ".join(_column_name(view, use) for use in sorted(choice.nulled[index]))
            yield f'the column "{shown.name}" has NULL for {lost}, which is gone'
        elif index not in choice.shown and shown.starred:
            yield f'the column "{shown.name}" goes, as the star has it no more'
        elif index not in choice.shown:
            yield f'the column "{shown.name}" is dispensed with'


def _star_sentences(view: ViewParts, stars: dict[int, StarText]) -> Iterator[str]:
    for written in stars.values():
        for place, name in written.taken:
            yield f"the star takes in {view.tables[place].relation}.{name}"
        if written.out and written.text:
            yield "the star is written out"


def _column_name(view: ViewParts, use: Use) -> str:
    return f"{view.tables[use[0]].relation}.{use[1]}"


def remedies_of(
    view: ViewParts, world: TablesNow, wanted: Preferences, enough: Preferences | None
) -> tuple[str, ...]:
    """The lines; `enough` are preferences that would have made a rewriting possible."""
    lines = list(dict.fromkeys(_remedy_statements(view, world)))
    if enough is not None:
        lines.append(project_file_line(view.parsed.name, wanted, enough))
    return (*lines, manual_remedy(view.parsed))


def widen_preferences(preferences: Preferences, needs: NamedParts, extent: Extent) -> Preferences:
    """Preferences with more parts dispensable, and room for an extent."""
    more = preferences.dispensable
    allowed = preferences.extent
    return replace(
        preferences,
        extent=allowed if allowed.can_accept(extent) else allowed.followed_by(extent),
        dispensable=NamedParts(
            more.columns | needs.columns,
            more.conditions | needs.conditions,
            more.relations | needs.relations,
        ),
    )


def project_file_line(view: str, wanted: Preferences, enough: Preferences) -> str:
    """What the project file must say beyond what it says.

    >>> parts = NamedParts(columns=frozenset(["price"]))
    >>> project_file_line("v", Preferences(), Preferences(dispensable=parts))
    'views: {v: {evolution: {dispensable: {columns: [price]}}}}'
    """
    added = {
        key: sorted(getattr(enough.dispensable, key) - getattr(wanted.dispensable, key))
        for key in ("columns", "conditions", "relations")
    }
    facts: dict[str, object] = {}
    if enough.extent is not wanted.extent:
        facts["extent"] = enough.extent.value
    if any(added.values()):
        facts["dispensable"] = {key: names for key, names in added.items() if names}
    line = {"views": {view: {"evolution": facts}}}
    text: str = yaml.safe_dump(line, default_flow_style=True, width=2**16, sort_keys=False)
    return text.strip()[1:-1]


def manual_remedy(parsed: ParsedView) -> str:
    where = parsed.path or f"the SQL of {parsed.name}"
    return f"edit {where}, then {reload_hint([parsed.name])}"


def _remedy_statements(view: ViewParts, world: TablesNow) -> Iterator[str]:
    """What would bring back the tables and columns that are used and gone."""
    for place, table in enumerate(view.tables):
        used = [Field(name, view.types[place, name]) for name in view.columns_used(place)]
        known = tuple(field for field in used if field.type != UNKNOWN)
        standing = world.table_now(table.relation, [field.name for field in used])
        if standing is None and known:
            yield f"{create_table_sql(table.relation.table, known)}  -- in {table.relation.source}"
        for field in known if standing is not None else ():
            if standing is not None and standing.column_now(field.name) is None:
                statement = add_column_sql(standing.relation.table, field)
                yield f"{statement}  -- in {standing.relation.source}"


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
    became: NamesNow,
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
