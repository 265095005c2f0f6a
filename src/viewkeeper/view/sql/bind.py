"""A parsed view and the schemas of its relations: names resolved, types known.

Conditions of inner joins mean the same wherever they stand, so ON, USING and WHERE become one list
of conjuncts. A conjunct that equates plain columns of one type at two places is an `Equality`,
which a lookup can use as its key; everything else is a predicate. What the user should know about
the cost of the view is said in `warnings`.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from sqlglot import exp

from viewkeeper.errors import DefinitionError
from viewkeeper.view.definition import (
    CLOCK,
    Equality,
    Field,
    Graph,
    Output,
    Place,
    ViewDefinition,
)
from viewkeeper.view.expression import (
    Column,
    Compare,
    Expression,
    Literal,
    SparkSql,
    columns_of,
    type_of,
)
from viewkeeper.view.graph import fields_read, qualify_graph
from viewkeeper.view.keyed_view import PREFIX
from viewkeeper.view.render import quote_name
from viewkeeper.view.sql.coerce import unify_types
from viewkeeper.view.sql.quantified.quantified_comparisons import rewrite_quantified
from viewkeeper.view.sql.quantified.rewritten_text import RewrittenText
from viewkeeper.view.sql.report_query import ReportQuery, TableName
from viewkeeper.view.sql.scope import Schema, Scope, Scopes, qualifier_of, scopes_of
from viewkeeper.view.sql.select_parts import SelectItem, TableUse
from viewkeeper.view.sql.sql_text import Span, SqlPiece, SqlText, leaf_span_of
from viewkeeper.view.sql.translate import ResolvedColumn, translate_piece
from viewkeeper.view.sql.view_statement import ParsedView

RESERVED = ("_count", "_ts", "_position")


def bind_view(parsed: ParsedView, schema: Schema) -> ViewDefinition:
    """The view that the SQL defines over relations with these columns."""
    if parsed.report is not None:
        raise parsed.sql.error_at(
            "more than a join of tables, which is all that can be used here",
            parsed.body.start,
            hint="a report is compiled by Spark, in a project",
        )
    seen = scopes_of(parsed.plain, parsed.parts.tables, schema)
    conjuncts = [*_bind_conjuncts(parsed, seen), *(bind_using(pair) for pair in seen.using)]
    equalities = tuple(found for found in conjuncts if isinstance(found, Equality))
    predicates = tuple(found for found in conjuncts if not isinstance(found, Equality))
    outputs = tuple(
        output for item in parsed.parts.items for output in _bind_outputs(seen.whole, item)
    )
    places = _bind_places(seen.whole, equalities, [*predicates, *(o.expression for o in outputs)])
    return ViewDefinition(
        name=parsed.name,
        places=places,
        equalities=equalities,
        predicates=predicates,
        outputs=_check_outputs(seen.whole, parsed.parts.items, outputs),
        query=_rewrite_query(parsed, seen),
        text=parsed.text,
        path=parsed.path,
        warnings=(*_unlike_types(parsed, seen), *_whole_reads(places, equalities)),
    )


def _bind_conjuncts(parsed: ParsedView, seen: Scopes) -> list[Equality | Expression]:
    return [bind_conjunct(scope, piece) for scope, piece in _scoped_conditions(parsed, seen)]


def _scoped_conditions(parsed: ParsedView, seen: Scopes) -> list[tuple[Scope, SqlPiece]]:
    tables = zip(parsed.parts.tables, seen.on, strict=True)
    joins = [(scope, piece) for table, scope in tables for piece in table.on]
    return [*joins, *((seen.whole, piece) for piece in parsed.parts.where)]


def bind_conjunct(scope: Scope, piece: SqlPiece) -> Equality | Expression:
    """One conjunct of a condition, its names resolved."""
    expression = translate_piece(scope.sql, piece, resolve_references(scope, piece.node))
    if isinstance(expression, Literal) and expression.value is None:
        return Literal(None, pa.bool_())
    if (equality := _equality_of(expression)) is not None:
        return equality
    if isinstance(expression, SparkSql) and expression.type is None:
        return SparkSql(expression.text, expression.columns, pa.bool_())
    if (kind := type_of(expression)) != pa.bool_():
        raise scope.sql.error_at(f"a condition must be boolean, not {kind}", piece.span.start)
    return expression


def _equality_of(expression: Expression) -> Equality | None:
    match expression:
        case Compare(("=" | "<=>") as operator, Column() as left, Column() as right):
            if left.place != right.place:
                return Equality(left, right, null_safe=operator == "<=>")
    return None


def bind_using(pair: tuple[Column, Column]) -> Equality | Expression:
    """That two columns which USING names are equal."""
    both = unify_types(*pair)
    if both is None:
        left, right = (quote_name(column.label) for column in pair)
        return SparkSql(f"{left} = {right}", pair, pa.bool_())
    compare = Compare("=", *both)
    return _equality_of(compare) or compare


def resolve_references(scope: Scope, node: exp.Expr) -> dict[int, ResolvedColumn]:
    """Every column that an expression names, by where it is named."""
    found: dict[int, ResolvedColumn] = {}
    for column in node.find_all(exp.Column):
        span = leaf_span_of(column)
        assert span is not None, "column references know their place"
        found[span.start] = ResolvedColumn(span, scope.resolve_column(column))
    return found


def _bind_outputs(scope: Scope, item: SelectItem) -> list[Output]:
    node = item.piece.node
    if (expanded := expand_star(scope, node)) is not None:
        return [Output(column.name, column) for column in expanded]
    expression = translate_piece(scope.sql, item.piece, resolve_references(scope, node))
    if isinstance(expression, Literal) and expression.type == pa.null():
        hint = "give it one, like CAST(NULL AS STRING)"
        raise scope.sql.error_at("a NULL without a type", item.span.start, hint=hint)
    # Spark names a column as the query spells it, not as the table does.
    name = item.alias or (node.name if isinstance(node, exp.Column) else None)
    if name is None:
        text = scope.sql.text_of(item.span)
        raise scope.sql.error_at(
            "an expression needs a name", item.span.start, hint=f"{text} AS ..."
        )
    return [Output(name, expression)]


def expand_star(scope: Scope, node: exp.Expr) -> tuple[Column, ...] | None:
    """The columns that a star stands for; None if it is no star."""
    if isinstance(node, exp.Star):
        return scope.visible
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        span = leaf_span_of(node)
        assert span is not None, "a star knows its place"
        return scope.resolve_seat(qualifier_of(node), span).columns
    return None


def _check_outputs(
    scope: Scope, items: tuple[SelectItem, ...], outputs: tuple[Output, ...]
) -> tuple[Output, ...]:
    """The outputs, if each has a name of its own that Viewkeeper does not use itself."""
    seen: set[str] = set()
    origins = [item for item in items for _ in expand_star(scope, item.piece.node) or (None,)]
    for item, output in zip(origins, outputs, strict=True):
        name = output.name.lower()
        if name.startswith((*RESERVED, PREFIX)):
            message = f'the column name "{output.name}" is reserved'
            raise scope.sql.error_at(message, item.span.start, hint="give it another alias")
        if name in seen:
            message = f'two columns are called "{output.name}"'
            hint = "list the columns and give one of them an alias"
            raise scope.sql.error_at(message, item.span.start, hint=hint)
        seen.add(name)
    return outputs


def _bind_places(
    scope: Scope, equalities: Iterable[Equality], expressions: Iterable[Expression]
) -> tuple[Place, ...]:
    read = {column for expression in expressions for column in columns_of(expression)}
    read |= {column for pair in equalities for column in (pair.left, pair.right)}
    places = []
    for index, seat in enumerate(scope.seats):
        columns = sorted((c for c in read if c.place == index), key=lambda column: column.name)
        # A relation of which only the number of rows matters still needs a column to be counted by.
        used = columns or seat.columns[:1]
        fields = tuple(Field(column.name, column.type) for column in used)
        if taken := [field.name for field in fields if field.name.lower() in RESERVED]:
            raise DefinitionError(
                f'{seat.table.relation} has a column "{taken[0]}", a name that Viewkeeper uses',
                path=scope.sql.path,
                hint=f"{', '.join(RESERVED)} cannot be read from a source; rename the column there",
            )
        places.append(Place(index, seat.table.alias, seat.table.relation, fields))
    return tuple(places)


def _rewrite_query(parsed: ParsedView, seen: Scopes) -> str:
    """The user's SELECT over tables that are called `__place_` and their place.

    Stars are written out, so that a column that a source adds later does not change the view.
    """
    return parsed.plain.replace_spans(parsed.body, _plain_changes(parsed, seen))


def _plain_changes(parsed: ParsedView, seen: Scopes) -> list[tuple[Span, str]]:
    """The stretches of a plain view's text that Spark gets otherwise."""
    changes: list[tuple[Span, str]] = []
    for index, table in enumerate(parsed.parts.tables):
        changes.append((table.span, _place_text(parsed, table, index)))
    for item in parsed.parts.items:
        if (columns := expand_star(seen.whole, item.piece.node)) is not None:
            changes.append((item.span, ", ".join(_full_name(seen.whole, c) for c in columns)))
        else:
            changes += _shorten_qualifiers(seen.whole, item.piece.node)
    for scope, piece in _scoped_conditions(parsed, seen):
        changes += _shorten_qualifiers(scope, piece.node)
    return changes


def _place_text(parsed: ParsedView, table: TableUse | TableName, index: int) -> str:
    """A table as its place; apart from words that touched its backticks, as in FROM`a`.`b`c."""
    text, span = parsed.plain.text, table.span
    alias = "" if table.aliased else f" AS {quote_name(table.alias)}"
    before = " " if _is_of_word(text[span.start - 1 : span.start]) else ""
    after = " " if _is_of_word(text[span.end : span.end + 1]) else ""
    return f"{before}__place_{index}{alias}{after}"


def _is_of_word(letter: str) -> bool:
    return letter != "" and not letter.isspace() and letter not in "(),"


def _full_name(scope: Scope, column: Column) -> str:
    return f"{quote_name(scope.seats[column.place].table.alias)}.{quote_name(column.name)}"


def _shorten_qualifiers(scope: Scope, node: exp.Expr) -> list[tuple[Span, str]]:
    """`shop.orders.id` as `orders.id`: the source's name means nothing to Spark."""
    changes = []
    for column in node.find_all(exp.Column):
        span = leaf_span_of(column)
        if span is not None and len(qualifier := qualifier_of(column)) > 1:
            alias = scope.resolve_seat(qualifier, span).table.alias
            changes.append((span, f"{quote_name(alias)}.{quote_name(column.name)}"))
    return changes


def _unlike_types(parsed: ParsedView, seen: Scopes) -> list[str]:
    """A sentence for every equation of columns that cannot be a join key."""
    pairs = [
        _equated_columns(scope, piece.node) for scope, piece in _scoped_conditions(parsed, seen)
    ]
    sentences = []
    for pair in [*pairs, *seen.using]:
        if pair is not None and pair[0].place != pair[1].place and pair[0].type != pair[1].type:
            left, right = (f"{seen.whole.full_name(column)} ({column.type})" for column in pair)
            sentences.append(
                f"{left} = {right} cannot be used as a join key, because the types differ: "
                f"it is checked row by row instead"
            )
    return sentences


def _equated_columns(scope: Scope, node: exp.Expr) -> tuple[Column, Column] | None:
    if isinstance(node, exp.EQ | exp.NullSafeEQ):
        left, right = node.left.unnest(), node.right.unnest()
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            return scope.resolve_column(left), scope.resolve_column(right)
    return None


def _whole_reads(places: tuple[Place, ...], equalities: Iterable[Equality]) -> list[str]:
    """A sentence for every part of the view that no equality ties to the rest."""
    parts = _connected_places(len(places), equalities)
    if len(parts) == 1:
        return []
    sentences = []
    for part in parts:
        names = ", ".join(f"{places[index].alias} ({places[index].relation})" for index in part)
        one = "it" if len(part) == 1 else "one of them"
        sentences.append(
            f"no equality joins {names} to the rest of the view: "
            f"changes elsewhere must read {one} whole (a scan)"
        )
    return sentences


def _connected_places(count: int, equalities: Iterable[Equality]) -> list[list[int]]:
    """The places, grouped by what equalities connect."""
    group = list(range(count))
    for equality in equalities:
        kept, gone = group[equality.left.place], group[equality.right.place]
        group = [kept if member == gone else member for member in group]
    return [[i for i in range(count) if group[i] == name] for name in dict.fromkeys(group)]


def report_text(parsed: ParsedView) -> str:
    """The query of a report as Spark gets it, with tables called by the numbers of their places."""
    return _rewrite_body(parsed, _report_changes(parsed)).text


def _rewrite_body(parsed: ParsedView, changes: list[tuple[Span, str]]) -> RewrittenText:
    """The query with these changes, and without quantified comparisons, which Spark has not."""
    return rewrite_quantified(SqlText(parsed.plain.replace_spans(parsed.body, changes)))


def _text_with_clock(parsed: ParsedView, report: ReportQuery) -> str:
    """The query of a report over its relations alone: the present time is a row of the clock."""
    changes = _report_changes(parsed)
    if report.clock is not None:
        changes += report.clock.replace_calls(place=len(report.tables))
    return _rewrite_body(parsed, changes).text


def locate_error(parsed: ParsedView, error: DefinitionError) -> DefinitionError:
    """An error whose place is one of `report_text`, with its place in the user's own text."""
    return _locate_changed(parsed, error, _report_changes(parsed))


def locate_plain_error(
    parsed: ParsedView, schema: Schema, error: DefinitionError
) -> DefinitionError:
    """An error whose place is one of a plain view's query, with its place in the user's text."""
    seen = scopes_of(parsed.plain, parsed.parts.tables, schema)
    return _locate_changed(parsed, error, _plain_changes(parsed, seen))


def _locate_changed(
    parsed: ParsedView, error: DefinitionError, changes: list[tuple[Span, str]]
) -> DefinitionError:
    message = error.message.partition(": ")[2] if error.line is not None else error.message
    hint, written = error.hint, _rewrite_body(parsed, changes)
    shown = written.text.split("\n")
    if error.line is None or error.column is None or error.line > len(shown):
        offset = parsed.body.start
    else:
        before = sum(len(line) + 1 for line in shown[: error.line - 1]) + error.column - 1
        offset = _offset_in_text(parsed, changes, written.offset_before(before))
        if (note := written.note_at(before)) is not None:
            message, hint = note.message, note.hint
    line, column = parsed.sql.line_and_column(offset)
    return type(error)(
        parsed.sql.subject + message,
        path=parsed.path,
        line=line,
        column=column,
        detail=error.detail,
        hint=hint,
    )


def _offset_in_text(parsed: ParsedView, changes: Iterable[tuple[Span, str]], offset: int) -> int:
    """Where something is in the user's text that is at an offset of the changed text."""
    shift = parsed.body.start
    for span, new in sorted(set(changes)):
        begin = span.start - shift
        if offset < begin:
            break
        if offset < begin + len(new):
            return span.start
        shift += (span.end - span.start) - len(new)
    return offset + shift


def _report_changes(parsed: ParsedView) -> list[tuple[Span, str]]:
    """The stretches of a report's text that Spark gets otherwise."""
    report = parsed.report
    assert report is not None, "a plain view is bound, not compiled"
    changes = [
        (table.span, _place_text(parsed, table, index)) for index, table in enumerate(report.tables)
    ]
    for column in report.tree.find_all(exp.Column):
        span, qualifier = leaf_span_of(column), qualifier_of(column)
        if span is not None and len(qualifier) > 1:
            changes.append((span, f"{quote_name(qualifier[-1])}.{quote_name(column.name)}"))
    return changes


def bind_report(
    parsed: ParsedView, schema: Schema, graph: Graph, behind: tuple[str, ...]
) -> ViewDefinition:
    """The view that a report defines, once it is compiled; the graph's nodes get its name."""
    report = parsed.report
    assert report is not None, "a plain view is bound, not compiled"
    read = fields_read(graph)
    places = []
    aliases = [table.alias for table in report.tables]
    for index, relation in enumerate(report.relations):
        known = schema(relation)
        # A relation of which only the number of rows matters still needs a column.
        fields = known if graph.recomputed else read.get(relation) or known[:1]
        alias = aliases[index] if index < len(aliases) else CLOCK
        places.append(Place(index, alias, relation, fields, known=known))
    return ViewDefinition(
        name=parsed.name,
        places=tuple(places),
        equalities=(),
        predicates=(),
        outputs=tuple(Output(f.name, Column(0, f.name, f.type)) for f in graph.root.fields),
        query=_text_with_clock(parsed, report),
        text=parsed.text,
        path=parsed.path,
        graph=qualify_graph(graph, parsed.name),
        behind=behind,
    )
