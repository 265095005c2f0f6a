"""How a query is answered from Arrow tables: expressions of the kernel, a fold, an order.

Names are resolved as those of a view are (`viewkeeper.view.sql.scope`), and expressions are the
kernel's or the query is left to Spark. So is everything whose outcome depends on how Spark goes
about it: sums of doubles, which differ with the order of adding, and names that could mean two
things.

A query with aggregates is three steps: the columns that it groups and aggregates (`inputs`), one
row per group (`fold`), and expressions over those rows. The columns of the second step are at place
0 and are called g and f with a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from viewkeeper.engine.query.checked_query import CheckedQuery
from viewkeeper.engine.query.column_names import ColumnNames
from viewkeeper.engine.query.select_clauses import (
    AggregateUse,
    OrderItem,
    SelectClauses,
    SparkNeeded,
    read_clauses,
)
from viewkeeper.errors import DefinitionError
from viewkeeper.stages.fold_calls import fold_result_type
from viewkeeper.view.definition import PROJECT, Equality, Field, Fold, FoldCall, Output, Relation
from viewkeeper.view.expression import Column, Expression, Literal, columns_of, needs_spark, type_of
from viewkeeper.view.kernel_words import INTEGERS, PLAIN
from viewkeeper.view.sql.bind import bind_conjunct, bind_using, expand_star, resolve_references
from viewkeeper.view.sql.scope import Scope, Scopes, scopes_of
from viewkeeper.view.sql.select_parts import SelectItem
from viewkeeper.view.sql.sql_text import SqlPiece, leaf_span_of
from viewkeeper.view.sql.translate import ResolvedColumn, translate_piece

DIGITS_FOR_SUM = 28
"""A sum of decimals with so many digits has ten to spare, so that no order of adding overflows."""


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """What rows are put in order by: an output, by its number, or an expression over the rows."""

    by: int | Expression
    descending: bool
    nulls_last: bool


@dataclass(frozen=True, slots=True)
class ArrowPlan:
    """A query that the kernel answers; `views` has the view at each place."""

    views: tuple[str, ...]
    read: tuple[tuple[str, ...], ...]
    """The columns that are read at each place, at least one."""
    equalities: tuple[Equality, ...]
    conditions: tuple[Expression, ...]
    inputs: tuple[Output, ...]
    fold: Fold | None
    having: Expression | None
    outputs: tuple[Output, ...]
    is_distinct: bool
    order: tuple[OrderTerm, ...]
    limit: int | None
    offset: int


def plan_query(query: CheckedQuery, schemas: Mapping[str, pa.Schema]) -> ArrowPlan:
    """The plan over views with these columns; SparkNeeded if only Spark can answer."""
    try:
        clauses = read_clauses(query)
        return _plan_clauses(query, clauses, {name.lower(): name for name in query.views}, schemas)
    except DefinitionError as error:
        # Whether that is an error, and what it is called, is Spark's to say.
        raise SparkNeeded("it may be wrong, which Spark says better") from error


def _plan_clauses(
    query: CheckedQuery,
    clauses: SelectClauses,
    names: Mapping[str, str],
    schemas: Mapping[str, pa.Schema],
) -> ArrowPlan:
    tables = clauses.core.tables
    views = tuple(names[table.relation.table.lower()] for table in tables)

    def fields_of(relation: Relation) -> tuple[Field, ...]:
        schema = schemas[names[relation.table.lower()]]
        return tuple(Field(field.name, field.type) for field in schema)

    seen = scopes_of(query.sql, tables, fields_of)
    bound = [*_bind_conditions(clauses, seen), *(bind_using(pair) for pair in seen.using)]
    equalities = tuple(each for each in bound if isinstance(each, Equality))
    conditions = tuple(_certain(each) for each in bound if not isinstance(each, Equality))
    is_folded = bool(clauses.groups or clauses.aggregates)
    if clauses.having is not None and not is_folded:
        raise SparkNeeded("it has HAVING and no group")
    reader = _FoldReader(seen.whole, clauses) if is_folded else _RowReader(seen.whole, clauses)
    outputs = tuple(output for item in clauses.core.items for output in reader.read_item(item))
    having = None if clauses.having is None else reader.read_piece(clauses.having)
    if having is not None and clauses.having is not None:
        _refuse_captured_names(reader, clauses, outputs, clauses.having.node)
        if type_of(having) != pa.bool_():
            raise SparkNeeded("its HAVING is no condition")
    order = tuple(_read_term(reader, clauses, outputs, item) for item in clauses.order)
    fold, inputs = reader.make_fold()
    rows = inputs if is_folded else outputs
    terms = () if is_folded else tuple(t.by for t in order if not isinstance(t.by, int))
    used = {
        column
        for each in (*conditions, *(output.expression for output in rows), *terms)
        for column in columns_of(each)
    }
    used |= {column for each in equalities for column in (each.left, each.right)}
    read = tuple(
        tuple(sorted(c.name for c in used if c.place == place)) or (seat.columns[0].name,)
        for place, seat in enumerate(seen.whole.seats)
    )
    facts = (clauses.is_distinct, order, clauses.limit, clauses.offset)
    return ArrowPlan(views, read, equalities, conditions, inputs, fold, having, outputs, *facts)


def _bind_conditions(clauses: SelectClauses, seen: Scopes) -> list[Equality | Expression]:
    joined = [
        (scope, piece)
        for table, scope in zip(clauses.core.tables, seen.on, strict=True)
        for piece in table.on
    ]
    pieces = [*joined, *((seen.whole, piece) for piece in clauses.core.where)]
    for _, piece in pieces:
        _refuse_aggregates(piece, clauses.aggregates)
    found = [bind_conjunct(scope, piece) for scope, piece in pieces]
    if any(isinstance(each, Literal) and each.value is None for each in found):
        raise SparkNeeded("a condition is NULL, which Spark refuses unless it has a type")
    return found


def _refuse_aggregates(piece: SqlPiece, aggregates: Mapping[int, AggregateUse]) -> None:
    if _aggregates_in(piece.node, aggregates):
        raise SparkNeeded("an aggregate stands where there is no group")


def _aggregates_in(
    node: exp.Expr, aggregates: Mapping[int, AggregateUse]
) -> dict[int, ResolvedColumn]:
    """The aggregates of an expression as columns, by where they are."""
    found: dict[int, ResolvedColumn] = {}
    for column in node.find_all(exp.Column):
        span = leaf_span_of(column)
        if span is not None and span.start in aggregates:
            number = list(aggregates).index(span.start)
            found[span.start] = ResolvedColumn(span, Column(0, f"f{number}", pa.null()))
    return found


def _certain(expression: Expression) -> Expression:
    if needs_spark(expression):
        raise SparkNeeded("it has an expression that only Spark evaluates")
    return expression


def _check_output(expression: Expression) -> Expression:
    """An output whose type is one that the kernel and Spark both show."""
    kind = type_of(_certain(expression))
    if kind is None or not (kind in PLAIN or pa.types.is_decimal128(kind)):
        raise SparkNeeded(f"a column has the type {kind}")
    return expression


class _RowReader:
    """Reads the list and the order of a query whose rows are those of the join."""

    def __init__(self, scope: Scope, clauses: SelectClauses) -> None:
        self._scope = scope
        self._names = ColumnNames(scope, clauses.aggregates)

    def read_item(self, item: SelectItem) -> list[Output]:
        node = item.piece.node
        if (columns := expand_star(self._scope, node)) is not None:
            return [Output(column.name, _check_output(column)) for column in columns]
        expression = _check_output(self.read_piece(item.piece))
        return [Output(item.alias or self._names.name_of(node), expression)]

    def read_piece(self, piece: SqlPiece) -> Expression:
        references = resolve_references(self._scope, piece.node)
        return _certain(translate_piece(self._scope.sql, piece, references))

    def find_column(self, column: exp.Column) -> Column | None:
        """What a name means; None if it means nothing here."""
        return self._scope.resolve_column(column)

    def make_fold(self) -> tuple[Fold | None, tuple[Output, ...]]:
        return None, ()


class _FoldReader:
    """Reads the list, HAVING and the order of a query whose rows are groups."""

    def __init__(self, scope: Scope, clauses: SelectClauses) -> None:
        self._scope = scope
        self._clauses = clauses
        self._names = ColumnNames(scope, clauses.aggregates)
        self._rows = _RowReader(scope, clauses)
        self._groups = [self._read_group(piece) for piece in clauses.groups]
        self._calls = [
            self._read_call(number, use) for number, use in enumerate(clauses.aggregates.values())
        ]

    def read_item(self, item: SelectItem) -> list[Output]:
        node = item.piece.node
        if expand_star(self._scope, node) is not None:
            raise SparkNeeded("a star stands beside groups")
        expression = _check_output(self.read_piece(item.piece))
        return [Output(item.alias or self._names.name_of(node), expression)]

    def read_piece(self, piece: SqlPiece) -> Expression:
        """An expression over groups and aggregates."""
        calls = _aggregates_in(piece.node, self._clauses.aggregates)
        if not calls:
            whole = self._rows.read_piece(piece)
            if whole in self._groups:
                return self._group_column(whole)
        references = {
            start: ResolvedColumn(found.span, self._call_column(found.column))
            for start, found in calls.items()
        }
        for column in piece.node.find_all(exp.Column):
            span = leaf_span_of(column)
            assert span is not None, "column references know their place"
            if span.start not in calls:
                resolved = self._group_column(self._scope.resolve_column(column))
                references[span.start] = ResolvedColumn(span, resolved)
        return _certain(translate_piece(self._scope.sql, piece, references))

    def find_column(self, column: exp.Column) -> Column | None:
        found = self._scope.resolve_column(column)
        return self._group_column(found) if found in self._groups else None

    def make_fold(self) -> tuple[Fold | None, tuple[Output, ...]]:
        groups = tuple(
            Field(f"g{number}", _type_for_sure(each)) for number, each in enumerate(self._groups)
        )
        calls = tuple(call for call, _ in self._calls)
        shown = [*groups, *(Field(call.name, call.type) for call in calls)]
        outputs = tuple(Output(each.name, Column(0, each.name, each.type)) for each in shown)
        inputs = [Output(f"g{number}", each) for number, each in enumerate(self._groups)]
        inputs += [
            Output(call.arguments[0].name, argument)
            for call, argument in self._calls
            if argument is not None
        ]
        relation = Relation(PROJECT, "query")
        fold = Fold(1, relation, groups, calls, outputs, is_global=not self._clauses.groups)
        return fold, tuple(inputs)

    def _read_group(self, piece: SqlPiece) -> Expression:
        """What an item of GROUP BY means: a number of the list, a column, an alias."""
        _refuse_aggregates(piece, self._clauses.aggregates)
        items = self._clauses.core.items
        node = piece.node
        if isinstance(node, exp.Literal):
            if node.is_string or not node.name.isdigit() or not 1 <= int(node.name) <= len(items):
                raise SparkNeeded("it groups by a constant")
            return self._read_group_item(items[int(node.name) - 1])
        if isinstance(node, exp.Column) and not node.args.get("table"):
            try:
                return _check_output(self._scope.resolve_column(node))
            except DefinitionError:
                named = [item for item in items if (item.alias or "").lower() == node.name.lower()]
                if len(named) != 1:
                    raise
                return self._read_group_item(named[0])
        return _check_output(self._rows.read_piece(piece))

    def _read_group_item(self, item: SelectItem) -> Expression:
        _refuse_aggregates(item.piece, self._clauses.aggregates)
        if expand_star(self._scope, item.piece.node) is not None:
            raise SparkNeeded("a star stands beside groups")
        expression = _check_output(self._rows.read_piece(item.piece))
        if isinstance(expression, Literal):
            raise SparkNeeded("it groups by a constant")
        return expression

    def _group_column(self, expression: Expression) -> Column:
        if expression not in self._groups:
            raise SparkNeeded("a column is neither grouped nor aggregated")
        kind = _type_for_sure(expression)
        return Column(0, f"g{self._groups.index(expression)}", kind)

    def _call_column(self, column: Column) -> Column:
        call, _ = self._calls[int(column.name.removeprefix("f"))]
        return Column(0, call.name, call.type)

    def _read_call(self, number: int, use: AggregateUse) -> tuple[FoldCall, Expression | None]:
        name = f"f{number}"
        if use.argument is None:
            if use.function != "count":
                raise SparkNeeded(f"{use.function}(*) is no aggregate")
            return FoldCall(name, "count", (), pa.int64()), None
        argument = _check_output(self._rows.read_piece(use.argument))
        if isinstance(argument, Literal):
            if use.function == "count" and argument.value is not None:
                return FoldCall(name, "count", (), pa.int64()), None
            raise SparkNeeded("it aggregates a constant")
        kind = _type_for_sure(argument)
        _check_aggregate(use.function, argument, kind)
        result = fold_result_type(use.function, [kind])
        if result is None:
            raise SparkNeeded(f"{use.function}() of {kind} is Spark's")
        return FoldCall(name, use.function, (Field(f"a{number}", kind),), result), argument


_Reader = _RowReader | _FoldReader


def _check_aggregate(function: str, argument: Expression, kind: pa.DataType) -> None:
    """SparkNeeded where the value depends on the order in which Spark adds rows up."""
    if function in ("sum", "avg"):
        if isinstance(kind, pa.Decimal128Type):
            if kind.precision > DIGITS_FOR_SUM:
                raise SparkNeeded(f"{function}() of {kind} may overflow on the way")
        elif kind not in INTEGERS:
            raise SparkNeeded(f"{function}() of {kind} depends on the order of adding")
    elif pa.types.is_floating(kind) and function != "count" and not isinstance(argument, Column):
        # Stored zeros have no sign; computed ones may, and Spark shows either of two equal ones.
        raise SparkNeeded(f"{function}() of computed floating-point numbers is Spark's")


def _type_for_sure(expression: Expression) -> pa.DataType:
    kind = type_of(expression)
    assert kind is not None, "an expression of the kernel has a type"
    return kind


def _read_term(
    reader: _Reader, clauses: SelectClauses, outputs: tuple[Output, ...], item: OrderItem
) -> OrderTerm:
    """What an item of ORDER BY means: a number of the list, an output, else an expression."""
    make: Callable[[int | Expression], OrderTerm] = lambda by: OrderTerm(  # noqa: E731
        by, item.descending, item.nulls_last
    )
    node = item.piece.node
    if isinstance(node, exp.Literal):
        if node.is_string or not node.name.isdigit() or not 1 <= int(node.name) <= len(outputs):
            raise SparkNeeded("it is ordered by a constant")
        return make(int(node.name) - 1)
    bare = isinstance(node, exp.Column) and not node.args.get("table")
    span = leaf_span_of(node)
    is_call = span is not None and span.start in clauses.aggregates
    if bare and not is_call:
        named = [n for n, output in enumerate(outputs) if _same_name(output.name, node.name)]
        if len(named) == 1:
            return make(named[0])
        if named:
            raise SparkNeeded("ORDER BY names two columns")
    if clauses.is_distinct:
        raise SparkNeeded("DISTINCT rows are ordered by an expression")
    _refuse_captured_names(reader, clauses, outputs, node)
    return make(_check_output(reader.read_piece(item.piece)))


def _refuse_captured_names(
    reader: _Reader, clauses: SelectClauses, outputs: tuple[Output, ...], node: exp.Expr
) -> None:
    """A name behind the list that is also an output's, and not that very column, could be either;
    the arguments of aggregates count."""
    for column in node.find_all(exp.Column):
        span = leaf_span_of(column)
        assert span is not None, "column references know their place"
        use = clauses.aggregates.get(span.start)
        if use is not None:
            if use.argument is not None:
                _refuse_captured_names(reader, clauses, outputs, use.argument.node)
            continue
        alike = [output for output in outputs if _same_name(output.name, column.name)]
        if alike and any(o.expression != reader.find_column(column) for o in alike):
            raise SparkNeeded(f'"{column.name}" could be an output or a column of a view')


def _same_name(one: str, other: str) -> bool:
    return one.lower() == other.lower()
