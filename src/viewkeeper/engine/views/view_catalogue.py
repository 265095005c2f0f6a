"""The views of a project: read from `views/*.sql`, bound to their sources when those answer.

Parsing needs no source, and the SQL parser is only imported where a project is opened; binding a
new view needs the schemas of the tables. A view whose source is away stays unbound and waits; one
whose SQL is wrong is refused, and the others go on. A view that is stored is what its newest
version says, whatever has become of the names in the SQL that the user wrote.

A view may read other views of the project. It comes after them in the catalogue, and stands for
the sources behind them; views that read each other in a circle are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.views.bound_view import (
    Binding,
    bind_again,
    bind_to_tables,
    parse_as_kept,
    tables_now,
)
from viewkeeper.engine.views.refused_column import refuse_narrow_star
from viewkeeper.engine.views.view_files import FOLDER, read_view_files
from viewkeeper.engine.views.written_views import WrittenViews
from viewkeeper.errors import ProjectError, ViewkeeperError
from viewkeeper.view.definition import Field, Graph, Relation, ViewDefinition
from viewkeeper.warehouse.metadata.definition_version import DefinitionTable
from viewkeeper.warehouse.metadata.head import Head, ViewHead

if TYPE_CHECKING:
    from viewkeeper.view.sql.view_statement import ParsedView

Compiler = Callable[[str, str, Sequence[DefinitionTable]], Graph]
"""Has Spark say what the text of a view, given by its name, over these tables means."""

Checker = Callable[[str, str, Sequence[DefinitionTable]], None]
"""Has Spark resolve the text of a view; a DefinitionError says what does not fit."""


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

    def __init__(self, written: WrittenViews) -> None:
        self.written = written
        """What the files say of these views, and which ones are refused."""
        self._compiler: Compiler | None = None
        self._checker: Checker | None = None
        self.unchecked: set[str] = set()
        """Views that were bound although nobody could ask Spark whether their types fit."""
        self._mode_of: Callable[[str], str] = lambda _: "incremental"
        self._loaded: dict[str, pa.Schema] = {}
        self.bindings: dict[str, Binding] = {}
        self.tables_met: dict[str, tuple[DefinitionTable, ...]] = {}
        """The tables that the SQL of a view was last held against, whatever came of it."""
        self.stored: dict[str, ViewDefinition] = {}
        """Definitions with what an algorithm stores beside the user's columns."""
        self.coming: dict[str, ViewDefinition] = {}
        """Definitions that views are on their way to."""

    def adopt_versions(self, head: Head, without: Container[str] = ()) -> None:
        """Let stored views be what their newest versions say, if their SQL is still the same, or is
        refused."""
        self.written.adopt_head(head)
        for name in [name for name in self.bindings if name not in self]:
            self.forget_binding(name)
        for name, view in head.views.items():
            if name in without:
                # What it is going to be says its SQL, not what is still stored of it.
                self.bindings.pop(name, None)
                self._loaded.pop(name, None)
                continue
            self.note_loaded(name, view.shown_schema)
            if name not in self or not view.versions:
                continue
            if view.definition == self.text_of(name):
                path = self.written.parsed[name].path
                self.put_binding(name, bind_again(view.versions[-1], path))

    def refuse_edit(self, stored: ViewHead, error: ViewkeeperError) -> None:
        """Let a stored view be what is stored, instead of what its file says."""
        name = stored.view
        self.written.refuse_edit(name, error)
        self.forget_binding(name)
        if name in self and stored.versions:
            self.put_binding(name, bind_again(stored.versions[-1], None))

    def note_loaded(self, name: str, schema: pa.Schema) -> None:
        """A view is stored with these columns."""
        self._loaded[name] = schema

    def copy_definitions(self) -> DefinitionsCopy:
        """What is known of all views now."""
        return DefinitionsCopy(dict(self.bindings), dict(self.stored), dict(self.coming))

    def replace_written(self, name: str, written: ViewCatalogue | None) -> Callable[[], None]:
        """Let a view be what another reading of the project's files says, or not be there any more;
        it is not bound then. What is returned makes that undone."""
        before = {**self.bindings}, {**self.stored}, {**self._loaded}
        undo_files = self.written.replace_view(name, None if written is None else written.written)
        for known in (self.bindings, self.stored, self._loaded):
            known.pop(name, None)

        def undo() -> None:
            undo_files()
            self.bindings, self.stored, self._loaded = before

        return undo

    def use_compiler(self, compiler: Compiler, checker: Checker | None = None) -> None:
        """Let reports be compiled, and other views be checked, by these from now on."""
        self._compiler, self._checker = compiler, checker
        for name in self.unchecked if checker else ():
            self.forget_binding(name)
        self.unchecked.clear()

    def use_refresh(self, mode_of: Callable[[str], str]) -> None:
        """Let views be kept fresh in these modes."""
        self._mode_of = mode_of

    def is_always_recomputed(self, name: str) -> bool:
        return self._mode_of(name) == "full"

    def compile_report(self, name: str, text: str, tables: Sequence[DefinitionTable]) -> Graph:
        assert self._compiler is not None, "whoever binds reports has said how"
        return self._compiler(name, text, tables)

    def check_query(self, name: str, text: str, tables: Sequence[DefinitionTable]) -> None:
        """A DefinitionError if Spark cannot resolve the text of a view, as far as it is asked."""
        if self._checker is None:
            self.unchecked.add(name)
        else:
            self._checker(name, text, tables)

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
        is_report = self.written.parsed[name].report is not None or self.is_always_recomputed(name)
        missing = name not in self.bindings and is_report
        return missing or any(self.needs_compiler(parent) for parent in self.parents_of(name))

    def put_binding(self, name: str, binding: Binding) -> None:
        """From now on a view is this."""
        self.bindings[name] = binding
        self.stored.pop(name, None)

    def forget_binding(self, name: str) -> None:
        """A view is refused as it was bound."""
        self.bindings.pop(name, None)
        self.stored.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self.written.parsed)

    def __contains__(self, name: str) -> bool:
        return name in self.written.parsed

    def text_of(self, name: str) -> str:
        """The SQL of a view as the project has it now."""
        return self.written.parsed[name].text

    def sources_of(self, name: str) -> tuple[str, ...]:
        """The sources that a view stands for, known from its SQL alone."""
        behind = follow_parents(name, self.parents_of)
        read = (relation for each in behind for relation in self.relations_of(each))
        return tuple(dict.fromkeys(r.source for r in read if not r.is_own))

    def relations_of(self, name: str) -> tuple[Relation, ...]:
        """The relations that a view reads, as its SQL names them."""
        binding = self.bindings.get(name)
        return (binding.parsed if binding else self.written.parsed[name]).relations

    def bound_views(self) -> list[ViewDefinition]:
        """Every view whose definition is known, as it is stored."""
        return [self.stored.get(name, binding.view) for name, binding in self.bindings.items()]

    def bind_view(self, name: str, connections: Connections) -> ViewDefinition:
        """The typed definition of a view; SourceAwayError if its tables cannot be seen now."""
        if name not in self.bindings:
            for parent in self.parents_of(name):
                self.bind_view(parent, connections)
            self.bindings[name] = self.as_written(name, connections)
        return self.bindings[name].view

    def as_written(self, name: str, connections: Connections) -> Binding:
        """A view as the user's SQL has it, bound to the tables that have the names now."""
        self.tables_met.pop(name, None)
        parsed = parse_as_kept(self.written.parsed[name], connections, self)
        tables = self.tables_met[name] = tables_now(parsed, connections, self)
        found = bind_to_tables(parsed, tables, connections, self)
        refuse_narrow_star(found.parsed, connections)
        return found


def follow_parents(name: str, parents_of: Callable[[str], Iterable[str]]) -> tuple[str, ...]:
    """A view and all views that it is made from, each once, however many ways lead to it."""
    found, waiting = dict[str, None](), [name]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found[each] = None
            waiting += reversed([*parents_of(each)])
    return tuple(found)


def read_views(
    settings: Settings,
    head: Head | None = None,
    candidate: ParsedView | None = None,
    may_be_empty: bool = False,
) -> ViewCatalogue:
    """Every view of a project folder; settings for a view that is not there are an error.

    A file that is wrong is refused by itself (`viewkeeper.engine.views.view_files`); it is an error
    here if nothing is left to maintain, unless that `may_be_empty`. Views that the head has stored
    are what they have become. A `candidate` is no view of the project yet; one that has the name of
    a view stands in its place, and is an error if it is refused.
    """
    from viewkeeper.view.sql.view_statement import check_joins

    stored = {name: view.definition for name, view in head.views.items()} if head else {}
    files = read_view_files(settings.folder, stored)
    if candidate is not None:
        check_joins(candidate)
        files = files.with_view(candidate)
    if not (files.parsed or files.refused):
        raise ProjectError(
            f"no views: {settings.folder / FOLDER} has no .sql file",
            hint="write CREATE MATERIALIZED VIEW name AS SELECT ... into views/name.sql",
        )
    catalogue = ViewCatalogue(WrittenViews(files, frozenset(settings.sources)))
    catalogue.adopt_versions(head or Head())
    refused = catalogue.written.refused
    if candidate is not None and candidate.name in refused:
        raise refused[candidate.name].error
    if not (may_be_empty or list(catalogue)):
        raise next(iter(refused.values())).error
    if not files.has_unnamed:
        settings.check_named_views({*catalogue, *refused})
    return catalogue
