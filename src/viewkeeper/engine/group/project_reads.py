"""What a project reads, as its group knows it: bases by their names in ids, and parents.

A source is a database, which has one name for all members of the group, or another project, which
is a member itself. The registry makes groups of members from these facts.
"""

from __future__ import annotations

from viewkeeper.engine.connections.open_sources import reader_of
from viewkeeper.engine.settings.project_file import read_settings
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import ProjectError
from viewkeeper.order.global_id import base_name
from viewkeeper.order.registry_protocol import MemberFacts
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.upstream.any_source import is_parent


class ProjectReads:
    """The sources of one project that is a member."""

    def __init__(self, workspace: Workspace) -> None:
        assert workspace.settings.registry is not None
        self._settings = workspace.settings
        self._catalogue = workspace.catalogue
        self._warehouse = reader_of(workspace.store.root)
        self.member = workspace.settings.registry.member
        self.parents = self._parent_members()
        """The members behind the sources that are other projects."""

    def base_name(self, source: str) -> str:
        """What the database behind a source is called in ids."""
        found = self._settings.sources[source]
        return base_name(self.member, found.name, found.kind, found.global_name)

    def member_facts(self) -> MemberFacts:
        """What the views read now: tables of databases, and other members."""
        sources: dict[str, tuple[str, ...]] = {}
        parents: list[str] = []
        for view in self._catalogue:
            for relation in self._catalogue.relations_of(view):
                if relation.is_own:
                    # What that view reads is listed with it.
                    continue
                if relation.source in self.parents:
                    parents.append(self.parents[relation.source])
                    continue
                name = self.base_name(relation.source)
                sources[name] = (*sources.get(name, ()), name_of_handle(relation.table))
        assert self._settings.registry is not None
        label = self._settings.registry.together
        return MemberFacts(sources, tuple(parents), label, warehouse=self._warehouse)

    def _parent_members(self) -> dict[str, str]:
        """The members behind the sources that are other projects."""
        found = {}
        for name, source in self._settings.sources.items():
            if not is_parent(source):
                continue
            parent = read_settings(source.read_path()).registry
            if parent is None:
                raise ProjectError(
                    f'source "{name}": the project in {source.read_path()} has no registry, '
                    "and this "
                    "one has",
                    hint="name the same registry in both, or in neither",
                )
            found[name] = parent.member
        return found
