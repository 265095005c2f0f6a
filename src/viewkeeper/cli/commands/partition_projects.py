"""The view graph of projects: their own views, and those of the projects whose views they read.

A source of kind `warehouse` is another project, by its folder; its views are read too, and those of
its own parents, until databases are reached. A database is called by its global name, which is the
option `global` of its source, or the source's name: one name in two projects is one base. Whether
that is meant cannot be known, so what looks wrong is a warning: one name for two places, or two
names for one place. The second is the dangerous one, because a common base is then not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from viewkeeper.errors import ProjectError, suggest_nearest
from viewkeeper.sources.kinds import is_clock
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.view.definition import name_of_handle

if TYPE_CHECKING:
    from viewkeeper.engine.settings.project_file import Settings
    from viewkeeper.engine.views.view_catalogue import ViewCatalogue
    from viewkeeper.partition.view_graph import ViewGraph

WAREHOUSE = "warehouse"


@dataclass(frozen=True, slots=True)
class FleetProject:
    """One project: what it is called here, its settings and its views."""

    name: str
    settings: Settings
    catalogue: ViewCatalogue


@dataclass(frozen=True, slots=True)
class ProjectFleet:
    """Projects that may read each other's views, by their folders."""

    members: dict[Path, FleetProject]

    def view_graph(self) -> ViewGraph:
        """All views with their parents; `project.view` where there are several projects."""
        from viewkeeper.partition.view_graph import ViewGraph

        parents = {
            self.view_name(member, view): tuple(self._parents_of(member, view))
            for member in self.members.values()
            for view in member.catalogue
        }
        bases = {base for base, _ in self._base_places()}
        if clash := sorted(bases & parents.keys()):
            raise ProjectError(
                f'"{clash[0]}" is the name of a view and of a source',
                hint=f"give the source another name for all projects: global: {clash[0]}_source",
            )
        return ViewGraph(parents)

    def project_graph(self) -> ViewGraph:
        """All projects with what they read: one project is one member of a registry."""
        from viewkeeper.partition.view_graph import ViewGraph

        owners = {
            self.view_name(member, view): member.name
            for member in self.members.values()
            for view in member.catalogue
        }
        read: dict[str, dict[str, None]] = {}
        for view, parents in self.view_graph().parents.items():
            names = (owners.get(parent, parent) for parent in parents)
            read.setdefault(owners[view], {}).update(dict.fromkeys(names))
        return ViewGraph({name: tuple(parents) for name, parents in read.items()})

    def label_groups(self) -> list[list[str]]:
        """The projects that say they belong together."""
        found: dict[str, list[str]] = {}
        for member in self.members.values():
            registry = member.settings.registry
            if registry is not None and registry.together:
                found.setdefault(registry.together, []).append(member.name)
        return list(found.values())

    def view_name(self, member: FleetProject, view: str) -> str:
        """What a view is called among all of them."""
        return view if len(self.members) == 1 else f"{member.name}.{view}"

    def _parents_of(self, member: FleetProject, view: str) -> Iterator[str]:
        for relation in member.catalogue.relations_of(view):
            if relation.is_own:
                yield self.view_name(member, relation.table)
                continue
            source = member.settings.sources[relation.source]
            if source.kind != WAREHOUSE:
                yield source.global_name
                continue
            other, table = self.members[_project_folder(source)], name_of_handle(relation.table)
            if table not in other.catalogue:
                known = tuple(other.catalogue)
                raise ProjectError(
                    f'view "{view}": there is no view "{table}" in {other.settings.folder}',
                    hint=f"views there: {', '.join(known)}{suggest_nearest(table, known)}",
                )
            yield self.view_name(other, table)

    def name_warnings(self) -> Iterator[str]:
        """Names and places that do not fit each other."""
        places: dict[str, dict[str, None]] = {}
        names: dict[str, dict[str, None]] = {}
        for base, place in self._base_places():
            places.setdefault(base, {})[place] = None
            names.setdefault(place, {})[base] = None
        for base, found in places.items():
            if len(found) > 1:
                yield (
                    f'base "{base}" is taken for one database, but is {" and ".join(found)}; '
                    f"if these are two, give one of them another name: global: {base}_2"
                )
        for place, called_so in names.items():
            if len(called_so) > 1:
                first, *_ = called_so
                yield (
                    f"{place} has several names: {', '.join(called_so)}; views over it are taken "
                    f"to have no common base; give all its sources one name: global: {first}"
                )

    def _base_places(self) -> Iterator[tuple[str, str]]:
        """Every base with where it is."""
        for member in self.members.values():
            for source in member.settings.sources.values():
                if source.kind != WAREHOUSE and not is_clock(source):
                    yield source.global_name, place_of(source)


def read_projects(folders: Iterable[Path]) -> ProjectFleet:
    """These projects and all whose views they read."""
    from viewkeeper.engine.settings.project_file import read_settings
    from viewkeeper.engine.views.view_catalogue import read_views
    from viewkeeper.warehouse.metadata.head import read_head

    found: dict[Path, tuple[Settings, ViewCatalogue]] = {}
    waiting = [folder.resolve() for folder in folders]
    while waiting:
        folder = waiting.pop(0)
        if folder in found:
            continue
        settings = read_settings(folder)
        head = read_head(settings.warehouse)
        found[folder] = settings, read_views(settings, head)
        waiting += [_project_folder(s) for s in settings.sources.values() if s.kind == WAREHOUSE]
    names = _short_names(tuple(found))
    return ProjectFleet(
        {folder: FleetProject(names[folder], *facts) for folder, facts in found.items()}
    )


def place_of(source: SourceSettings) -> str:
    """Where a database is, without names and passwords of users.

    >>> place_of(SourceSettings("shop", "postgres", {"url": "postgresql://me:pw@db:5433/shop"}, ""))
    'postgres db:5433/shop'
    """
    if "url" in source.options:
        parts = urlsplit(str(source.options["url"]))
        return f"{source.kind} {parts.netloc.rpartition('@')[2]}{parts.path}"
    return f"{source.kind} {source.read_path().resolve()}"


def _project_folder(source: SourceSettings) -> Path:
    return source.read_path().resolve()


def _short_names(folders: tuple[Path, ...]) -> dict[Path, str]:
    """The last part of each folder, with as many before it as tell them apart."""
    length = 1
    while len({folder.parts[-length:] for folder in folders}) < len(folders):
        length += 1
    return {folder: "/".join(folder.parts[-length:]) for folder in folders}
