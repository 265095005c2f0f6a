"""Which column a name means, as Spark resolves it.

A scope is what can be seen at one point of the SQL: the tables so far, and the columns that a name
without a table, or a star, ranges over. Names compare without regard to case and resolve to the
source's own spelling. JOIN ... USING shows the column of its left side only, and first; the one of
its right side can still be named with its table.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from viewkeeper.errors import DefinitionError
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.expression import Column
from viewkeeper.view.sql.select_parts import TableUse
from viewkeeper.view.sql.sql_text import Span, SqlText, leaf_span_of, own_span_of

Schema = Callable[[Relation], tuple[Field, ...]]


@dataclass(frozen=True, slots=True)
class Seat:
    """A table at its place, with all its columns."""

    table: TableUse
    columns: tuple[Column, ...]

    def is_named_by(self, qualifier: list[str]) -> bool:
        """An alias hides the table's own name; without one, any end of the full name will do."""
        names = [self.table.alias]
        if not self.table.aliased:
            names = [self.table.relation.source, *self.table.relation.table.split(".")]
        return _is_same_name(qualifier, names[-len(qualifier) :])


@dataclass(frozen=True, slots=True)
class Scope:
    """What can be named at one point of the SQL."""

    sql: SqlText
    seats: tuple[Seat, ...] = ()
    visible: tuple[Column, ...] = ()

    def join_scope(self, other: Scope) -> Scope:
        """Both scopes, as after a comma or a join with ON."""
        return Scope(self.sql, self.seats + other.seats, self.visible + other.visible)

    def join_using(
        self, other: Scope, names: tuple[exp.Identifier, ...]
    ) -> tuple[Scope, list[tuple[Column, Column]]]:
        """Both scopes joined by USING, and the pairs of columns that must be equal."""
        pairs = [(self.resolve_bare_name(name), other.resolve_bare_name(name)) for name in names]
        shared = tuple(left for left, _ in pairs)
        hidden = {column for pair in pairs for column in pair}
        rest = tuple(column for column in self.visible + other.visible if column not in hidden)
        return Scope(self.sql, self.seats + other.seats, shared + rest), pairs

    def resolve_column(self, node: exp.Column) -> Column:
        """The column that a reference means."""
        qualifier, span = qualifier_of(node), leaf_span_of(node)
        assert span is not None, "column references know their place"
        if not qualifier:
            return self.resolve_bare_name(node.this)
        return self.column_named(node.name, self.resolve_seat(qualifier, span).columns, span)

    def resolve_bare_name(self, name: exp.Expr) -> Column:
        """The column that a name without a table means."""
        span = own_span_of(name)
        assert span is not None, "identifiers know their place"
        return self.column_named(name.name, self.visible, span)

    def resolve_seat(self, qualifier: list[str], span: Span) -> Seat:
        """The table that a qualifier means."""
        found = [seat for seat in self.seats if seat.is_named_by(qualifier)]
        if len(found) == 1:
            return found[0]
        name = ".".join(qualifier)
        if found:
            raise self.sql.error_at(
                f'the table "{name}" is ambiguous', span.start, hint="add aliases"
            )
        known = ", ".join(seat.table.alias for seat in self.seats)
        detail = f"tables that can be named here: {known}"
        raise self.sql.error_at(f'unknown table "{name}"', span.start, detail=detail)

    def column_named(self, name: str, columns: tuple[Column, ...], span: Span) -> Column:
        found = [column for column in columns if _is_same_name([column.name], [name])]
        if len(found) == 1:
            return found[0]
        if not found:
            raise self.unknown_column_error(name, columns, span)
        candidates = " or ".join(self.full_name(column) for column in found)
        hint = "write the column with its table"
        message = f'the column "{name}" is ambiguous: {candidates}'
        raise self.sql.error_at(message, span.start, hint=hint)

    def unknown_column_error(
        self, name: str, columns: tuple[Column, ...], span: Span
    ) -> DefinitionError:
        """The error for a name that nothing has, with the nearest names that something has."""
        spelled = {column.name.lower(): self.full_name(column) for column in columns}
        near = difflib.get_close_matches(name.lower(), spelled, n=3)
        hint = f"did you mean {' or '.join(spelled[match] for match in near)}?" if near else None
        known = ", ".join(sorted(column.name for column in columns)) or "none"
        detail = f"columns that can be named here: {known}"
        return self.sql.error_at(f'unknown column "{name}"', span.start, detail=detail, hint=hint)

    def full_name(self, column: Column) -> str:
        seat = next(seat for seat in self.seats if column in seat.columns)
        return f"{seat.table.alias}.{column.name}"


@dataclass(frozen=True, slots=True)
class Scopes:
    """The scope of each table's ON, that of WHERE and SELECT, and what USING makes equal."""

    on: tuple[Scope, ...]
    whole: Scope
    using: tuple[tuple[Column, Column], ...]


def scopes_of(sql: SqlText, tables: tuple[TableUse, ...], schema: Schema) -> Scopes:
    """The scopes of a FROM clause, from left to right; a comma begins a new group."""
    _check_aliases(sql, tables)
    groups: list[Scope] = []
    on: list[Scope] = []
    pairs: list[tuple[Column, Column]] = []
    for index, table in enumerate(tables):
        fields = schema(table.relation)
        columns = tuple(Column(index, field.name, field.type) for field in fields)
        new = Scope(sql, (Seat(table, columns),), columns)
        if table.group == len(groups):
            groups.append(new)
        elif table.using:
            groups[-1], equal = groups[-1].join_using(new, table.using)
            pairs += equal
        else:
            groups[-1] = groups[-1].join_scope(new)
        on.append(groups[-1])
    whole = Scope(sql)
    for group in groups:
        whole = whole.join_scope(group)
    return Scopes(tuple(on), whole, tuple(pairs))


def qualifier_of(node: exp.Column) -> list[str]:
    """The parts before the column's own name."""
    keys = ("catalog", "db", "table")
    return [node.args[key].name for key in keys if node.args.get(key)]


def _check_aliases(sql: SqlText, tables: tuple[TableUse, ...]) -> None:
    seen: set[str] = set()
    for table in tables:
        if table.alias.lower() in seen:
            hint = f"give one of them an alias: {table.relation} AS ..."
            message = f'two tables are called "{table.alias}"'
            raise sql.error_at(message, table.span.start, hint=hint)
        seen.add(table.alias.lower())


def _is_same_name(one: list[str], other: list[str]) -> bool:
    return [name.lower() for name in one] == [name.lower() for name in other]
