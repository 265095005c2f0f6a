"""What a user can do about a view that cannot follow its sources: lines to run or to paste.

Three ways, each by itself enough: give the database back what it lost; let the project file say
that the view can do without it; or write the view anew. The second is a line for the project file,
offered only if a rewriting was found with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import yaml

from viewkeeper.errors import reload_hint
from viewkeeper.evolution.extent import Extent
from viewkeeper.evolution.preferences import NamedParts, Preferences
from viewkeeper.evolution.synchronization.parts_of_sql import ViewParts
from viewkeeper.evolution.synchronization.quoted_names import add_column_sql, create_table_sql
from viewkeeper.evolution.synchronization.table_now import UNKNOWN, TablesNow
from viewkeeper.view.definition import Field
from viewkeeper.view.sql.view_statement import ParsedView


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
