"""Refusing views whose sources depend on each other, where nobody orders them.

A view over two parents with a common base, or over a parent and one of its bases, would show two
states of that base at once: each of the two takes the base's transactions in its own time (Ding,
Zhang, Rundensteiner 2000, Example 1). A registry that orders the ids of the base for all these
projects prevents that. Without one such a view is refused when it is defined.
"""

from __future__ import annotations

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.errors import UnsupportedError
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.upstream.any_source import is_parent
from viewkeeper.upstream.parent_project import ParentProject, common_base
from viewkeeper.view.definition import ViewDefinition


def refuse_dependent(view: ViewDefinition, settings: Settings, connections: Connections) -> None:
    """Refuse a view over sources that share a base, unless a registry orders them.

    SourceAwayError if the files of a parent cannot be read now.
    """
    if settings.registry is not None or len(view.sources) < 2:
        return
    bases = {source: _source_bases(view, source, connections) for source in view.sources}
    found = common_base(bases)
    if found is None:
        return
    one, other, base = found
    raise UnsupportedError(
        f'view "{view.name}": sources "{one}" and "{other}" are both made from "{base}"',
        path=view.path,
        detail="each takes its transactions in its own time, so the view would show two states of "
        "it at once",
        hint="let a registry order them: `registry: {url: ...}` in viewkeeper.yml of this project "
        "and of all that it reads; if these are two databases, give them two names: `global: ...`",
    )


def _source_bases(view: ViewDefinition, source: str, connections: Connections) -> frozenset[str]:
    """The databases behind what a view reads of a source, by their global names."""
    settings = connections.settings[source]
    if not is_parent(settings):
        return frozenset({settings.global_name})
    parent = ParentProject(source, settings.read_path().absolute())
    views = parent.load_head().views
    tables = {
        name_of_handle(relation.table) for relation in view.relations if relation.source == source
    }
    there = (views[table] for table in tables if table in views)
    return frozenset(base for each in there for base in parent.bases_of(each))
