"""The views of a project: read from `views/*.sql`, bound to their sources when those answer.

Parsing needs no source, and the SQL parser is only imported where a project is opened; binding a
new view needs the schemas of the tables. A view whose source is away stays unbound and waits; one
whose SQL or tables are wrong is an error at once. A view that is stored is what its newest version
says, whatever has become of the names in the SQL that the user wrote.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.views.bound_view import Binding, bind_again, bind_now
from viewkeeper.errors import DefinitionError, ProjectError, suggest_nearest
from viewkeeper.view.definition import Relation, ViewDefinition
from viewkeeper.warehouse.metadata.head import Head

if TYPE_CHECKING:
    from viewkeeper.view.sql.view_statement import ParsedView

FOLDER = "views"


class ViewCatalogue:
    """The definitions of a project, by name."""

    def __init__(self, parsed: dict[str, ParsedView]) -> None:
        self._parsed = parsed
        self.bindings: dict[str, Binding] = {}
        self.stored: dict[str, ViewDefinition] = {}
        """Definitions with what an algorithm stores beside the user's columns."""
        self.coming: dict[str, ViewDefinition] = {}
        """Definitions that views are on their way to."""

    def adopt_versions(self, head: Head, without: Container[str] = ()) -> None:
        """Let stored views be what their newest versions say, if their SQL is still the same."""
        for name, view in head.views.items():
            if name in without:
                self.bindings.pop(name, None)
            elif name in self._parsed and view.versions and view.definition == self.text_of(name):
                self.put_binding(name, bind_again(view.versions[-1], self._parsed[name].path))

    def put_binding(self, name: str, binding: Binding) -> None:
        """From now on a view is this."""
        self.bindings[name] = binding
        self.stored.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed)

    def __contains__(self, name: str) -> bool:
        return name in self._parsed

    def __len__(self) -> int:
        return len(self._parsed)

    def check_name(self, name: str) -> None:
        """Refuse a name that no view has."""
        if name not in self._parsed:
            known = tuple(self._parsed)
            raise ProjectError(
                f'there is no view "{name}"',
                hint=f"views of this project: {', '.join(known)}{suggest_nearest(name, known)}",
            )

    def text_of(self, name: str) -> str:
        """The SQL of a view as the project has it now."""
        return self._parsed[name].text

    def sources_of(self, name: str) -> tuple[str, ...]:
        """The sources that a view reads, known from its SQL alone."""
        return tuple(dict.fromkeys(relation.source for relation in self.relations_of(name)))

    def relations_of(self, name: str) -> tuple[Relation, ...]:
        """The relations that a view reads, as its SQL names them."""
        binding = self.bindings.get(name)
        return (binding.parsed if binding else self._parsed[name]).relations

    def bound_views(self) -> list[ViewDefinition]:
        """Every view whose definition is known, as it is stored."""
        return [self.stored.get(name, binding.view) for name, binding in self.bindings.items()]

    def bind_view(self, name: str, connections: Connections) -> ViewDefinition:
        """The typed definition of a view; SourceAwayError if its tables cannot be seen now."""
        if name not in self.bindings:
            self.bindings[name] = bind_now(self._parsed[name], connections)
        return self.bindings[name].view

    def as_written(self, name: str, connections: Connections) -> Binding:
        """A view as the user's SQL has it, bound to the tables that have the names now."""
        return bind_now(self._parsed[name], connections)


def read_views(folder: Path, sources: frozenset[str], head: Head | None = None) -> ViewCatalogue:
    """Every view of a project folder; two of one name, or an unknown source, is an error.

    Those that the head has stored are what they have become.
    """
    from viewkeeper.view.sql.view_statement import parse_view

    parsed: dict[str, ParsedView] = {}
    for file in sorted((folder / FOLDER).glob("*.sql")):
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ProjectError(f"{file}: cannot be read", detail=str(error)) from error
        view = parse_view(text, str(file))
        if view.name in parsed:
            raise ProjectError(
                f'two views are called "{view.name}": {parsed[view.name].path} and {file}',
                hint="rename one of them",
            )
        _check_sources(view, sources)
        parsed[view.name] = view
    if not parsed:
        raise ProjectError(
            f"no views: {folder / FOLDER} has no .sql file",
            hint="write CREATE MATERIALIZED VIEW name AS SELECT ... into views/name.sql",
        )
    catalogue = ViewCatalogue(parsed)
    catalogue.adopt_versions(head or Head())
    return catalogue


def _check_sources(view: ParsedView, sources: frozenset[str]) -> None:
    for relation in view.relations:
        if relation.source not in sources:
            known = tuple(sorted(sources))
            raise DefinitionError(
                f'view "{view.name}": unknown source "{relation.source}" in {relation}',
                path=view.path,
                hint=(
                    "sources of the project: "
                    f"{', '.join(known)}{suggest_nearest(relation.source, known)}"
                ),
            )
