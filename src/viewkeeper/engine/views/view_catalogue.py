"""The views of a project: read from `views/*.sql`, bound to their sources when those answer.

Parsing needs no source, and the SQL parser is only imported where a project is opened; binding a
new view needs the schemas of the tables. A view whose source is away stays unbound and waits; one
whose SQL or tables are wrong is an error at once. A view that is stored is what its newest version
says, whatever has become of the names in the SQL that the user wrote.

A view may read other views of the project. It comes after them in the catalogue, and stands for
the sources behind them; views that read each other in a circle are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.views.bound_view import Binding, bind_again, bind_now
from viewkeeper.errors import DefinitionError, ProjectError, suggest_nearest
from viewkeeper.view.definition import Field, Graph, Relation, ViewDefinition
from viewkeeper.warehouse.metadata.definition_version import DefinitionTable
from viewkeeper.warehouse.metadata.head import Head

if TYPE_CHECKING:
    from viewkeeper.view.sql.view_statement import ParsedView

FOLDER = "views"

Compiler = Callable[[str, str, Sequence[DefinitionTable]], Graph]
"""Has Spark say what the text of a view, given by its name, over these tables means."""


@dataclass(frozen=True, slots=True)
class DefinitionsCopy:
    """The definitions of a catalogue at one moment: bound, stored, and on their way."""

    bindings: Mapping[str, Binding]
    stored: Mapping[str, ViewDefinition]
    coming: Mapping[str, ViewDefinition]

    def is_same(self, other: DefinitionsCopy) -> bool:
        """Whether both have the very same definitions, not only equal ones."""
        pairs = zip(
            (self.bindings, self.stored, self.coming),
            (other.bindings, other.stored, other.coming),
            strict=True,
        )
        return all(
            one.keys() == two.keys() and all(one[name] is two[name] for name in one)
            for one, two in pairs
        )


class ViewCatalogue:
    """The definitions of a project, by name; a view after those that it reads."""

    def __init__(self, parsed: dict[str, ParsedView]) -> None:
        self._parsed = {name: parsed[name] for name in _reading_order(parsed)}
        self._compiler: Compiler | None = None
        self._mode_of: Callable[[str], str] = lambda _: "incremental"
        self._loaded: dict[str, pa.Schema] = {}
        self.bindings: dict[str, Binding] = {}
        self.stored: dict[str, ViewDefinition] = {}
        """Definitions with what an algorithm stores beside the user's columns."""
        self.coming: dict[str, ViewDefinition] = {}
        """Definitions that views are on their way to."""

    def adopt_versions(self, head: Head, without: Container[str] = ()) -> None:
        """Let stored views be what their newest versions say, if their SQL is still the same."""
        for name, view in head.views.items():
            if name in without:
                # What it is going to be says its SQL, not what is still stored of it.
                self.bindings.pop(name, None)
                self._loaded.pop(name, None)
                continue
            self.note_loaded(name, view.shown_schema)
            if name not in self._parsed or not view.versions:
                continue
            if view.definition == self.text_of(name):
                self.put_binding(name, bind_again(view.versions[-1], self._parsed[name].path))

    def note_loaded(self, name: str, schema: pa.Schema) -> None:
        """A view is stored with these columns."""
        self._loaded[name] = schema

    def copy_definitions(self) -> DefinitionsCopy:
        """What is known of all views now."""
        return DefinitionsCopy(dict(self.bindings), dict(self.stored), dict(self.coming))

    def use_compiler(self, compiler: Compiler) -> None:
        """Let reports be compiled by this from now on."""
        self._compiler = compiler

    def use_refresh(self, mode_of: Callable[[str], str]) -> None:
        """Let views be kept fresh in these modes."""
        self._mode_of = mode_of

    def is_always_recomputed(self, name: str) -> bool:
        return self._mode_of(name) == "full"

    def compile_report(self, name: str, text: str, tables: Sequence[DefinitionTable]) -> Graph:
        assert self._compiler is not None, "whoever binds reports has said how"
        return self._compiler(name, text, tables)

    def fields_of_view(self, name: str) -> tuple[Field, ...]:
        """The columns of a view; a ProjectError if only its load tells their types."""
        binding = self.bindings.get(name)
        schema = self._loaded.get(name) or (binding.view.schema if binding else None)
        if schema is None:
            raise ProjectError(
                f'view "{name}": not loaded yet, and another view reads it',
                hint="`viewkeeper run --once` loads both, one after the other",
            )
        return tuple(Field(field.name, field.type) for field in schema)

    def sources_behind(self, name: str) -> tuple[str, ...]:
        return self.sources_of(name)

    def parents_of(self, name: str) -> tuple[str, ...]:
        """The views of the project that a view reads."""
        return tuple(r.table for r in self.relations_of(name) if r.is_own)

    def can_bind(self, name: str) -> bool:
        """Whether the columns of all views that a view reads are known."""
        return all(
            parent in self._loaded
            or ((found := self.bindings.get(parent)) is not None and found.view.schema is not None)
            for parent in self.parents_of(name)
        )

    def needs_compiler(self, name: str) -> bool:
        """Whether Spark has yet to say what a view means, or one that it reads."""
        is_report = self._parsed[name].report is not None or self.is_always_recomputed(name)
        missing = name not in self.bindings and is_report
        return missing or any(self.needs_compiler(parent) for parent in self.parents_of(name))

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
        """The sources that a view stands for, known from its SQL alone."""
        found: dict[str, None] = {}
        for relation in self.relations_of(name):
            behind = self.sources_of(relation.table) if relation.is_own else (relation.source,)
            found |= dict.fromkeys(behind)
        return tuple(found)

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
            for parent in self.parents_of(name):
                self.bind_view(parent, connections)
            self.bindings[name] = bind_now(self._parsed[name], connections, self)
        return self.bindings[name].view

    def as_written(self, name: str, connections: Connections) -> Binding:
        """A view as the user's SQL has it, bound to the tables that have the names now."""
        return bind_now(self._parsed[name], connections, self)


def read_views(
    folder: Path,
    sources: frozenset[str],
    head: Head | None = None,
    candidate: ParsedView | None = None,
) -> ViewCatalogue:
    """Every view of a project folder; two of one name, or an unknown source, is an error.

    Those that the head has stored are what they have become. A `candidate` is no view of the
    project yet; one that has the name of a view stands in its place.
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
        parsed[view.name] = view
    if candidate is not None:
        parsed[candidate.name] = candidate
    if not parsed:
        raise ProjectError(
            f"no views: {folder / FOLDER} has no .sql file",
            hint="write CREATE MATERIALIZED VIEW name AS SELECT ... into views/name.sql",
        )
    for view in parsed.values():
        _check_relations(view, sources, parsed)
    catalogue = ViewCatalogue(parsed)
    catalogue.adopt_versions(head or Head())
    return catalogue


def _check_relations(
    view: ParsedView, sources: frozenset[str], views: Mapping[str, ParsedView]
) -> None:
    for relation in view.relations:
        if relation.is_own and relation.table not in views:
            known = tuple(sorted(views))
            near = suggest_nearest(relation.table, known)
            raise DefinitionError(
                f'view "{view.name}": "{relation.table}" is not a view of the project, and as a '
                "table it does not say its source",
                path=view.path,
                hint=f"write it as source.table or source.schema.table{near}",
            )
        if not relation.is_own and relation.source not in sources:
            known = tuple(sorted(sources))
            raise DefinitionError(
                f'view "{view.name}": unknown source "{relation.source}" in {relation}',
                path=view.path,
                hint=(
                    "sources of the project: "
                    f"{', '.join(known)}{suggest_nearest(relation.source, known)}"
                ),
            )


def _reading_order(parsed: Mapping[str, ParsedView]) -> list[str]:
    """The views, each after those that it reads; DefinitionError if they form a circle."""
    ordered: dict[str, None] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " reads ".join(f'"{each}"' for each in (*path[path.index(name) :], name))
            raise DefinitionError(
                f'view "{name}": it would be made from itself',
                path=parsed[name].path,
                detail=circle,
                hint="let one of them read the sources instead",
            )
        if name not in ordered:
            for relation in parsed[name].relations:
                if relation.is_own:
                    visit(relation.table, (*path, name))
            ordered[name] = None

    for name in parsed:
        visit(name, ())
    return list(ordered)
