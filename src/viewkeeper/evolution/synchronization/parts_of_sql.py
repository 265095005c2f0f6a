"""A view's SQL as what it shows and what it demands, each with the columns that it uses.

Rewriting decides about one output and one condition at a time, so the SQL is taken apart that far:
stars into the outputs that they stand for, USING into the equations that it means. Names resolve to
what they meant when the view was bound, whatever is left of the tables by now.

Conditions are compared in a normal form: names in full and in lower case, the sides of an equation
in order, no brackets around it.

A view's text stays as its author wrote it, so a name gets backticks only if it has other characters
than letters, or if some reader of SQL may take it for a keyword.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
from sqlglot import exp, parse_one
from sqlglot.dialects.dialect import Dialect

from viewkeeper.errors import DefinitionError
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.expression import Column
from viewkeeper.view.render import quote_name, spark_type_of
from viewkeeper.view.sql.functions import WITHOUT_BRACKETS
from viewkeeper.view.sql.scope import Scope, Scopes, qualifier_of, scopes_of
from viewkeeper.view.sql.select_parts import SelectItem, TableUse
from viewkeeper.view.sql.sql_text import Span, SqlPiece, leaf_span_of, own_span_of
from viewkeeper.view.sql.view_statement import ParsedView

Use = tuple[int, str]
"""A column of the relation at a place, as the view calls it."""

Namer = Callable[[exp.Column], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Mention:
    """Where the SQL names a column; `name` is the last part of `span`, without the table."""

    span: Span
    name: Span
    use: Use
    parts: int


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """One column of the view, by its name; `item` is the SELECT item that it comes from."""

    item: int
    name: str
    uses: frozenset[Use]
    starred: bool


@dataclass(frozen=True, slots=True)
class ViewCondition:
    """One conjunct. `home` is the table in whose ON or USING it is written, None for WHERE; a USING
    has no piece of its own, only the two columns that it makes equal."""

    home: int | None
    uses: frozenset[Use]
    normal: str
    written: str
    piece: SqlPiece | None
    scope: Scope
    pair: tuple[Use, Use] | None = None


@dataclass(frozen=True, slots=True)
class ViewParts:
    """A view, taken apart, with the types that its columns had."""

    parsed: ParsedView
    whole: Scope
    shown: tuple[ShownColumn, ...]
    conditions: tuple[ViewCondition, ...]
    types: Mapping[Use, pa.DataType]

    @property
    def tables(self) -> tuple[TableUse, ...]:
        return self.parsed.parts.tables

    @property
    def items(self) -> tuple[SelectItem, ...]:
        return self.parsed.parts.items

    def columns_used(self, place: int) -> tuple[str, ...]:
        """The columns of a place that the view uses."""
        parts: tuple[ShownColumn | ViewCondition, ...] = (*self.shown, *self.conditions)
        uses = {use for part in parts for use in part.uses}
        return tuple(name for where, name in self.types if where == place and (where, name) in uses)

    def normal_form_of(self, text: str) -> str:
        """The normal form of a condition that somebody wrote about this view."""
        node = parse_one(text, dialect="spark")
        try:
            return normal_form(node, _namer_of(self.whole))
        except DefinitionError:
            # It names what the view has not got, so it is equal to none of its conditions.
            return _sql_of(node)


def parts_of_view(parsed: ParsedView, before: Callable[[Relation], tuple[Field, ...]]) -> ViewParts:
    """The parts of a view over tables that had these columns."""
    seen = scopes_of(parsed.plain, parsed.parts.tables, before)
    return ViewParts(
        parsed,
        seen.whole,
        tuple(_shown_columns(parsed, seen.whole)),
        (*_written_conditions(parsed, seen), *_using_equations(parsed, seen)),
        {(c.place, c.name): c.type for seat in seen.whole.seats for c in seat.columns},
    )


def star_of(scope: Scope, item: SelectItem) -> tuple[Column, ...] | None:
    """The columns that an item stands for if it is a star."""
    node = item.piece.node
    if isinstance(node, exp.Star):
        return scope.visible
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        return scope.resolve_seat(qualifier_of(node), item.span).columns
    return None


def mentions_of(scope: Scope, node: exp.Expr) -> list[Mention]:
    """Every column that an expression names, in the order of the text."""
    found = []
    for column in node.find_all(exp.Column):
        span, name = leaf_span_of(column), own_span_of(column.this)
        assert span is not None, "column references know their place"
        assert name is not None, "identifiers know their place"
        resolved = scope.resolve_column(column)
        use = (resolved.place, resolved.name)
        found.append(Mention(span, name, use, len(qualifier_of(column))))
    return sorted(found, key=lambda mention: mention.span)


def normal_form(node: exp.Expr, named: Namer) -> str:
    """A condition with each column written as `named` says.

    >>> plain = lambda column: (column.table, column.name)
    >>> normal_form(parse_one("(B.y = a.X)"), plain) == normal_form(parse_one("a.x=b.y"), plain)
    True
    """

    def rename(inner: exp.Expr) -> exp.Expr:
        if not isinstance(inner, exp.Column):
            return inner
        table, name = named(inner)
        return exp.column(name.lower(), table=table.lower(), quoted=True)

    tree = node.unnest().copy().transform(rename)
    if isinstance(tree, exp.EQ | exp.NullSafeEQ | exp.NEQ):
        sides = sorted(_sql_of(side.unnest()) for side in (tree.left, tree.right))
        return f"{type(tree).__name__} {sides[0]} {sides[1]}"
    return _sql_of(tree)


def _sql_of(node: exp.Expr) -> str:
    return node.sql("spark", comments=False)


def _namer_of(scope: Scope) -> Namer:
    def named(column: exp.Column) -> tuple[str, str]:
        resolved = scope.resolve_column(column)
        seat = next(seat for seat in scope.seats if resolved in seat.columns)
        return seat.table.alias, resolved.name

    return named


def _shown_columns(parsed: ParsedView, scope: Scope) -> list[ShownColumn]:
    shown = []
    for index, item in enumerate(parsed.parts.items):
        if (star := star_of(scope, item)) is not None:
            for column in star:
                use = (column.place, column.name)
                shown.append(ShownColumn(index, column.name, frozenset([use]), starred=True))
        else:
            uses = frozenset(mention.use for mention in mentions_of(scope, item.piece.node))
            name = item.alias or item.piece.node.name
            shown.append(ShownColumn(index, name, uses, starred=False))
    return shown


def _written_conditions(parsed: ParsedView, seen: Scopes) -> list[ViewCondition]:
    homes: list[tuple[int | None, Scope, tuple[SqlPiece, ...]]] = [
        (index, scope, table.on)
        for index, (table, scope) in enumerate(zip(parsed.parts.tables, seen.on, strict=True))
    ]
    homes.append((None, seen.whole, parsed.parts.where))
    found = []
    for home, scope, pieces in homes:
        for piece in pieces:
            uses = frozenset(mention.use for mention in mentions_of(scope, piece.node))
            normal = normal_form(piece.node, _namer_of(scope))
            written = parsed.sql.text_of(piece.span)
            found.append(ViewCondition(home, uses, normal, written, piece, scope))
    return found


def _using_equations(parsed: ParsedView, seen: Scopes) -> list[ViewCondition]:
    """What USING means, one equation for each of its names."""
    found = []
    pairs = iter(seen.using)
    for home, table in enumerate(parsed.parts.tables):
        for _ in table.using:
            pair = next(pairs)
            left, right = ((column.place, column.name) for column in pair)
            sides = [(seen.whole.seats[place].table.alias, name) for place, name in (left, right)]
            nodes = [exp.column(name, table=alias, quoted=True) for alias, name in sides]
            equation = exp.EQ(this=nodes[0], expression=nodes[1])
            normal = normal_form(equation, lambda column: (column.table, column.name))
            written = " = ".join(f"{alias}.{name}" for alias, name in sides)
            uses = frozenset((left, right))
            found.append(
                ViewCondition(home, uses, normal, written, None, seen.on[home], (left, right))
            )
    return found


PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_GENERIC = {
    pa.string(): "TEXT",
    pa.binary(): "BLOB",
    pa.float32(): "REAL",
    pa.float64(): "DOUBLE PRECISION",
    pa.int8(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}


def quote_if_needed(name: str) -> str:
    """A name as a view's SQL has it.

    >>> quote_if_needed("price"), quote_if_needed("order"), quote_if_needed("unit price")
    ('price', '`order`', '`unit price`')
    """
    plain = PLAIN.fullmatch(name) and name.lower() not in (WITHOUT_BRACKETS | _keyword_starts())
    return name if plain else quote_name(name)


@cache
def _keyword_starts() -> frozenset[str]:
    """Words that are keywords by themselves or begin one, like the ORDER of ORDER BY."""
    known = Dialect.get_or_raise("spark").tokenizer_class.KEYWORDS
    return frozenset(keyword.split()[0].lower() for keyword in known if keyword.split())


def quote_relation(relation: Relation) -> str:
    """
    >>> quote_relation(Relation("shop", "sales.order"))
    'shop.sales.`order`'
    """
    return ".".join(quote_if_needed(part) for part in (relation.source, *relation.table.split(".")))


def generic_type_of(kind: pa.DataType) -> str:
    """A type as most databases understand it.

    >>> generic_type_of(pa.decimal128(10, 2)), generic_type_of(pa.string())
    ('DECIMAL(10, 2)', 'TEXT')
    """
    if isinstance(kind, pa.Decimal128Type):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _GENERIC.get(kind) or spark_type_of(kind)


def quote_at_source(name: str, mark: str = '"') -> str:
    """A name as a database has it in a statement that we print: somebody may copy and run it.

    >>> quote_at_source("price"), quote_at_source("x; DROP TABLE y"), quote_at_source("Price")
    ('price', '"x; DROP TABLE y"', '"Price"')
    """
    plain = PLAIN.fullmatch(name) and name == name.lower() and name not in _keyword_starts()
    return name if plain else f"{mark}{name.replace(mark, mark * 2)}{mark}"


def quote_source_table(table: str, mark: str = '"') -> str:
    """The same for a table, with the schema that it may have before its name."""
    return ".".join(quote_at_source(part, mark) for part in table.split("."))


def add_column_sql(table: str, field: Field) -> str:
    column = f"{quote_at_source(field.name)} {generic_type_of(field.type)}"
    return f"ALTER TABLE {quote_source_table(table)} ADD COLUMN {column}"


def create_table_sql(table: str, fields: tuple[Field, ...]) -> str:
    columns = ", ".join(f"{quote_at_source(f.name)} {generic_type_of(f.type)}" for f in fields)
    return f"CREATE TABLE {quote_source_table(table)} ({columns})"
