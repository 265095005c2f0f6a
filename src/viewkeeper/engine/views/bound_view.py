"""Binding a view to its tables: to those that have the names now, or to those that it was bound to.

A definition asks for tables by handles, which go on to mean the same tables whatever they are
called later. What the names stood for is kept with the definition
(`viewkeeper.warehouse.metadata.definition_version`), so that it can be bound again, exactly so,
after any number of renames and without a source. A report is compiled by Spark when it is bound for
the first time, and its graph is kept with the definition too. Another view that leaves expressions
to Spark is resolved by it then, so that a wrong type is found here, with its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.views.refused_column import explain_refusal
from viewkeeper.errors import DefinitionError, WarehouseError
from viewkeeper.sources.kinds import is_clock
from viewkeeper.updates.source_protocol import CurrentNames
from viewkeeper.view.definition import CLOCK, PROJECT, Field, Graph, Relation, ViewDefinition
from viewkeeper.view.graph import know_unique_keys, rename_relations
from viewkeeper.view.graph_json import decode_graph, encode_graph
from viewkeeper.warehouse.metadata.definition_version import (
    DefinitionTable,
    DefinitionVersion,
    FollowedName,
)

if TYPE_CHECKING:
    from viewkeeper.view.sql.view_statement import ParsedView


class OwnViews(Protocol):
    """The other views of the project, as far as a view that reads them must know them."""

    def fields_of_view(self, name: str) -> tuple[Field, ...]:
        """The columns of a view; NotLoadedError if only its load tells their types."""
        ...

    def sources_of(self, name: str) -> tuple[str, ...]:
        """The sources that a view stands for."""
        ...

    def is_always_recomputed(self, name: str) -> bool:
        """Whether a view is computed again whatever it is."""
        ...

    def compile_report(self, name: str, text: str, tables: Sequence[DefinitionTable]) -> Graph:
        """What Spark says that the text of a view over these tables means."""
        ...

    def check_query(self, name: str, text: str, tables: Sequence[DefinitionTable]) -> None:
        """A DefinitionError if Spark cannot resolve the text of a view over these tables."""
        ...


@dataclass(frozen=True, slots=True)
class Binding:
    """A parsed view, its definition over handles, and what its names stand for.

    `graph` is that of a report, over the names that the SQL has; `followed` are the names that its
    tables and columns have got since.
    """

    parsed: ParsedView
    view: ViewDefinition
    bound: tuple[DefinitionTable, ...]
    graph: Graph | None = None
    followed: tuple[FollowedName, ...] = ()

    def make_version(
        self,
        ts: int,
        at: float,
        causes: tuple[str, ...] = (),
        extent: str = "equal",
        parents: Mapping[str, str] | None = None,
    ) -> DefinitionVersion:
        """A version of the definition; `parents` are the tables of views that its rows are of."""
        columns = tuple(output.name for output in self.view.outputs)
        graph = None if self.graph is None else json.dumps(encode_graph(self.graph))
        return DefinitionVersion(
            self.parsed.text,
            self.bound,
            columns,
            ts,
            at,
            causes,
            extent,
            graph,
            self.view.behind,
            parents or {},
            self.followed,
        )


def parse_as_kept(parsed: ParsedView, connections: Connections, own: OwnViews) -> ParsedView:
    """A view as it is to be bound: one that is always computed again is a report."""
    if parsed.report is None and own.is_always_recomputed(parsed.name):
        from viewkeeper.view.sql.view_statement import parse_view

        parsed = parse_view(parsed.text, parsed.path, as_report=True)
    asks_time = parsed.report is not None and parsed.report.clock is not None
    if asks_time and not is_clock(connections.settings[CLOCK]):
        raise DefinitionError(
            f'view "{parsed.name}": its time is that of the source "{CLOCK}", which is another '
            "kind of source in this project",
            path=parsed.path,
            hint="give that source another name",
        )
    return parsed


def bind_now(parsed: ParsedView, connections: Connections, own: OwnViews) -> Binding:
    """Bind to the tables that have the names now; SourceAwayError if they cannot be seen."""
    parsed = parse_as_kept(parsed, connections, own)
    return bind_to_tables(parsed, tables_now(parsed, connections, own), connections, own)


def bind_to_tables(
    parsed: ParsedView,
    bound: tuple[DefinitionTable, ...],
    connections: Connections,
    own: OwnViews,
) -> Binding:
    """Bind to the tables that have the names now; the `connections` know why a column of theirs
    cannot be used."""
    try:
        return _compile_bound(parsed, bound, own)
    except DefinitionError as error:
        raise explain_refusal(parsed, connections, error) from error


def bind_parents_again(binding: Binding, own: OwnViews) -> Binding:
    """The same definition over the same tables, and over its parents as they are at present."""
    bound = tuple(_own_table(b.table, own) if b.source == PROJECT else b for b in binding.bound)
    return replace(_compile_bound(binding.parsed, bound, own), followed=binding.followed)


def bind_report_again(
    binding: Binding,
    became: Mapping[Relation, CurrentNames | None],
    connections: Connections,
    own: OwnViews,
) -> Binding:
    """A report over tables that have other columns or types now.

    A table that has another name than in the SQL, or whose columns do, is the one behind its
    handle; one that is gone is whatever is called so now, unless its own name had become another.
    """
    renamed = {(each.source, each.table) for each in binding.followed}
    bound, kept = [], []
    for table in binding.bound:
        relation = Relation(table.source, table.table)
        now, is_renamed = became[relation], (table.source, table.handle) in renamed
        if now is None and is_renamed:
            raise _lost_name(binding, table)
        if now is not None and (is_renamed or _has_other_names(table, now)):
            bound.append(_table_behind(table, connections))
            kept.append((table.source, table.handle))
        else:
            bound.append(_table_now(relation, connections, own))
    followed = tuple(each for each in binding.followed if (each.source, each.table) in kept)
    return replace(_compile_bound(binding.parsed, tuple(bound), own), followed=followed)


def _has_other_names(table: DefinitionTable, now: CurrentNames) -> bool:
    names = [(table.table, now.table), *now.columns.items()]
    return any(before.lower() != after.lower() for before, after in names)


def _lost_name(binding: Binding, table: DefinitionTable) -> DefinitionError:
    """A table is gone, and what the SQL calls it or its columns had become something else."""
    mine = [e for e in binding.followed if (e.source, e.table) == (table.source, table.handle)]
    names = ", ".join(f'"{each.column or table.table}" became "{each.now}"' for each in mine)
    return DefinitionError(
        f'view "{binding.parsed.name}": {table.source}.{table.table} is gone, and since its SQL '
        f"was bound names had changed: {names}",
        path=binding.parsed.path,
        hint="write the names of now into its SQL",
    )


def _compile_bound(
    parsed: ParsedView, bound: tuple[DefinitionTable, ...], own: OwnViews
) -> Binding:
    """Bind to these tables; Spark says what a report over them means."""
    parents = [relation.table for relation in parsed.relations if relation.is_own]
    behind = tuple(dict.fromkeys(s for parent in parents for s in own.sources_of(parent)))
    by_relation = {Relation(b.source, b.table): b for b in bound}
    if parsed.report is None:
        binding = _bind_tables(parsed, bound, None, behind)
        if binding.view.needs_spark:
            _check_plain(binding, by_relation, own)
        return binding
    from viewkeeper.view.sql.bind import locate_error, report_text

    tables = [by_relation[relation] for relation in parsed.report.relations]
    try:
        graph = own.compile_report(parsed.name, report_text(parsed), tables)
    except DefinitionError as error:
        raise locate_error(parsed, error) from error
    return _bind_tables(parsed, bound, graph, behind)


def _check_plain(
    binding: Binding, by_relation: Mapping[Relation, DefinitionTable], own: OwnViews
) -> None:
    """Have Spark resolve a view that leaves expressions to it: whether their types fit is known to
    Spark alone, and is not to be found out by the first load."""
    from viewkeeper.view.sql.bind import locate_plain_error

    parsed = binding.parsed
    tables = [by_relation[use.relation] for use in parsed.parts.tables]
    try:
        own.check_query(parsed.name, binding.view.query, tables)
    except DefinitionError as error:
        fields = {relation: _fields_of(table) for relation, table in by_relation.items()}
        raise locate_plain_error(parsed, fields.__getitem__, error) from error


def tables_now(
    parsed: ParsedView, connections: Connections, own: OwnViews
) -> tuple[DefinitionTable, ...]:
    """The tables that have the names in a view's SQL now; SourceAwayError if they cannot be
    seen."""
    return tuple(_table_now(relation, connections, own) for relation in parsed.relations)


def _table_now(relation: Relation, connections: Connections, own: OwnViews) -> DefinitionTable:
    if relation.is_own:
        return _own_table(relation.table, own)
    source = connections.get_source(relation.source)
    handle = source.handle_of(relation.table)
    described = source.describe_table(handle)
    fields = _bound_fields(described.fields, described.key)
    return DefinitionTable(relation.source, relation.table, handle, fields)


def _table_behind(table: DefinitionTable, connections: Connections) -> DefinitionTable:
    """The table behind a handle as it is now, under the names that the handle has."""
    described = connections.get_source(table.source).describe_table(table.handle)
    known = [field for field in described.fields if field.name in table.fields.names]
    return replace(table, fields=_bound_fields(known, described.key))


def _own_table(name: str, own: OwnViews) -> DefinitionTable:
    return DefinitionTable(PROJECT, name, name, _bound_fields(own.fields_of_view(name), ()))


def _fields_of(table: DefinitionTable) -> tuple[Field, ...]:
    return tuple(Field(field.name, field.type) for field in table.fields)


def _bound_fields(fields: Iterable[Field], key: tuple[str, ...]) -> pa.Schema:
    # What is known never to be NULL is what the key consists of.
    return pa.schema([pa.field(f.name, f.type, nullable=f.name not in key) for f in fields])


def bind_again(version: DefinitionVersion, path: str | None) -> Binding:
    """Bind to what a version stands for."""
    from viewkeeper.view.sql.view_statement import parse_view

    parsed = parse_view(version.text, path, as_report=version.graph is not None)
    graph = None if version.graph is None else graph_of_text(version.graph, parsed.name)
    bound = _bind_tables(parsed, version.bound, graph, version.behind)
    return replace(bound, followed=version.followed)


def graph_of_text(text: str, view: str) -> Graph:
    """The graph that is kept with a version; a WarehouseError if this program does not know it."""
    try:
        return decode_graph(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise WarehouseError(
            f'view "{view}": what its SQL was compiled into is nothing that this program knows',
            detail=str(error)[:500],
            hint="use the version of Viewkeeper that wrote it, or a newer one",
        ) from error


def _bind_tables(
    parsed: ParsedView,
    bound: tuple[DefinitionTable, ...],
    graph: Graph | None,
    behind: tuple[str, ...],
) -> Binding:
    from viewkeeper.view.sql.bind import bind_report, bind_view

    fields = {Relation(b.source, b.table): _fields_of(b) for b in bound}
    handles = {Relation(b.source, b.table): Relation(b.source, b.handle) for b in bound}
    if graph is None:
        view = replace(bind_view(parsed, fields.__getitem__), behind=behind)
    else:
        view = bind_report(parsed, fields.__getitem__, graph, behind)
        view = replace(view, graph=rename_relations(view.graph or graph, handles))
    places = tuple(replace(p, relation=handles[p.relation]) for p in view.places)
    unique = {Relation(b.source, b.handle): frozenset(map(frozenset, b.unique_keys)) for b in bound}
    return Binding(parsed, know_unique_keys(replace(view, places=places), unique), bound, graph)


def has_same_meaning(one: ViewDefinition, other: ViewDefinition) -> bool:
    """Whether two definitions show the same of the same tables, however they are written."""
    return (
        _shown_facts(one) == _shown_facts(other)
        and {*one.equalities} == {*other.equalities}
        and {*one.predicates} == {*other.predicates}
    )


def _shown_facts(view: ViewDefinition) -> tuple[object, ...]:
    places = tuple((place.relation, place.fields) for place in view.places)
    return places, view.outputs, view.graph


def same_columns(
    old: Binding, new: Binding, became: Mapping[Relation, CurrentNames | None]
) -> dict[tuple[Relation, str], tuple[Relation, str]]:
    """The columns of the old definition's tables that are the same ones in the new definition."""
    handles = {(b.source, b.table): Relation(b.source, b.handle) for b in new.bound}
    found = {}
    for b in old.bound:
        now = became[Relation(b.source, b.table)]
        handle = handles.get((b.source, now.table)) if now else None
        if now is not None and handle is not None:
            for column, name in now.columns.items():
                found[Relation(b.source, b.handle), column] = (handle, name)
    return found


def column_types(binding: Binding) -> dict[tuple[Relation, str], pa.DataType]:
    """The types of all columns that the tables of a definition had when it was bound."""
    return {
        (Relation(b.source, b.table), field.name): field.type
        for b in binding.bound
        for field in b.fields
    }


def columns_of(views: Iterable[ViewDefinition]) -> dict[Relation, tuple[Field, ...]]:
    """Every column of every table of a source that some of these views read."""
    used: dict[Relation, set[Field]] = {}
    for view in views:
        for relation in (relation for relation in view.relations if not relation.is_own):
            used.setdefault(relation, set()).update(view.fields_of(relation))
    return {r: tuple(sorted(fs, key=lambda f: f.name)) for r, fs in used.items()}
