"""What Spark's plan says, as plain data.

Operators and expressions are trees of frozen values. A column is known by the id that Spark gave
it, which is unique in one plan. Where the plan's JSON does not tell something, the tree keeps a
`JavaNode`, through which Spark can still be asked; it takes no part in comparisons, so that two
expressions are equal if they mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from viewkeeper.view.expression import Scalar


class JavaNode:
    """An operator or expression of Spark's plan, fetched when it is first asked."""

    def __init__(self, fetch: Callable[[], Any]) -> None:
        self._fetch = fetch
        self._node: Any = None

    def get_node(self) -> Any:
        if self._node is None:
            self._node = self._fetch()
        return self._node

    def child(self, index: int) -> JavaNode:
        return JavaNode(lambda: self.get_node().children().apply(index))

    def part(self, find: Callable[[Any], Any]) -> JavaNode:
        """What a function finds in the node."""
        return JavaNode(lambda: find(self.get_node()))

    @property
    def type_text(self) -> str:
        """The type of an expression as Spark's JSON has it."""
        return str(self.get_node().dataType().json())

    @property
    def position(self) -> tuple[int, int] | None:
        """Line and column in the text that it comes from, both from 1; None if Spark lost it."""
        origin = self.get_node().origin()
        line, column = origin.line(), origin.startPosition()
        if not line.isDefined() or not column.isDefined():
            return None
        return int(line.get()), int(column.get()) + 1


NOWHERE = JavaNode(lambda: None)


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column of the plan; its id alone says which."""

    id: int
    type: str = field(compare=False)
    name: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PlanLiteral:
    """A constant; the value is text as Spark's JSON has it, or bytes."""

    value: str | bytes | None
    type: str
    java: JavaNode = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class PlanOperation:
    """An expression with operands. `facts` are its other settings, by name.

    `call` is how the user may have spelled it where Spark replaced a call by something else: the
    name of the class that was replaced, with its arguments.
    """

    kind: str
    operands: tuple[PlanExpression, ...]
    facts: tuple[tuple[str, str | int | bool], ...] = ()
    java: JavaNode = field(default=NOWHERE, compare=False)
    call: PlanOperation | None = field(default=None, compare=False)


PlanExpression = Attribute | PlanLiteral | PlanOperation


@dataclass(frozen=True, slots=True)
class PlanItem:
    """A column that a projection or an aggregation computes."""

    attribute: Attribute
    expression: PlanExpression


@dataclass(frozen=True, slots=True)
class PlanLeaf:
    """A table of the query, with the ordinals of the columns that are read."""

    table: int
    output: tuple[Attribute, ...]
    ordinals: tuple[int, ...]
    java: JavaNode = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class PlanConstant:
    """Rows that depend on no table."""

    output: tuple[Attribute, ...]
    types: tuple[pa.DataType, ...]
    rows: tuple[tuple[Scalar, ...], ...]
    java: JavaNode = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class PlanFilter:
    """The rows for which a condition is true."""

    input: PlanOperator
    condition: PlanExpression
    java: JavaNode = field(default=NOWHERE, compare=False)

    @property
    def output(self) -> tuple[Attribute, ...]:
        return self.input.output


@dataclass(frozen=True, slots=True)
class PlanProject:
    """Other columns for each row."""

    input: PlanOperator
    items: tuple[PlanItem, ...]
    java: JavaNode = field(default=NOWHERE, compare=False)

    @property
    def output(self) -> tuple[Attribute, ...]:
        return tuple(item.attribute for item in self.items)


@dataclass(frozen=True, slots=True)
class PlanAggregate:
    """One row per group; without grouping one row."""

    input: PlanOperator
    grouping: tuple[PlanExpression, ...]
    items: tuple[PlanItem, ...]
    java: JavaNode = field(default=NOWHERE, compare=False)

    @property
    def output(self) -> tuple[Attribute, ...]:
        return tuple(item.attribute for item in self.items)


@dataclass(frozen=True, slots=True)
class PlanJoin:
    """A join of Spark's kinds; `exists` is the column that an existence join adds."""

    kind: str
    left: PlanOperator
    right: PlanOperator
    condition: PlanExpression | None
    exists: Attribute | None = None
    java: JavaNode = field(default=NOWHERE, compare=False)

    @property
    def output(self) -> tuple[Attribute, ...]:
        if self.kind in ("LeftSemi", "LeftAnti"):
            return self.left.output
        if self.exists is not None:
            return (*self.left.output, self.exists)
        return (*self.left.output, *self.right.output)


@dataclass(frozen=True, slots=True)
class PlanUnion:
    """All rows of all inputs, column by column."""

    inputs: tuple[PlanOperator, ...]
    output: tuple[Attribute, ...]
    java: JavaNode = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class PlanBagOperation:
    """INTERSECT ALL or EXCEPT ALL."""

    kind: str
    left: PlanOperator
    right: PlanOperator
    output: tuple[Attribute, ...]
    java: JavaNode = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class PlanExpand:
    """Each row once per projection."""

    input: PlanOperator
    projections: tuple[tuple[PlanExpression, ...], ...]
    output: tuple[Attribute, ...]
    java: JavaNode = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class PlanGenerate:
    """Each row once per row that a generator makes of it; `made` are the columns of those."""

    input: PlanOperator
    generator: PlanExpression
    made: tuple[Attribute, ...]
    outer: bool
    output: tuple[Attribute, ...]
    java: JavaNode = field(default=NOWHERE, compare=False)


STRUCT = "StructColumns"
"""The kind of an operation that stands for a struct whose fields are columns of their own."""


@dataclass(frozen=True, slots=True)
class PlanSortKey:
    """An expression by which rows are sorted."""

    expression: PlanExpression
    descending: bool
    nulls_last: bool


@dataclass(frozen=True, slots=True)
class PlanSort:
    """The same rows in an order, which only a window or a limit above it can see."""

    input: PlanOperator
    order: tuple[PlanSortKey, ...]
    java: JavaNode = field(default=NOWHERE, compare=False)

    @property
    def output(self) -> tuple[Attribute, ...]:
        return self.input.output


@dataclass(frozen=True, slots=True)
class PlanLimit:
    """The first rows, or those behind the first, of rows in an order; None is no limit."""

    input: PlanOperator
    skipped: int
    limit: int | None
    java: JavaNode = field(default=NOWHERE, compare=False)

    @property
    def output(self) -> tuple[Attribute, ...]:
        return self.input.output


@dataclass(frozen=True, slots=True)
class PlanWindow:
    """Rows with the values of window functions; `items` are expressions of the kind
    WindowExpression."""

    input: PlanOperator
    items: tuple[PlanItem, ...]
    partition: tuple[PlanExpression, ...]
    order: tuple[PlanSortKey, ...]
    java: JavaNode = field(default=NOWHERE, compare=False)

    @property
    def output(self) -> tuple[Attribute, ...]:
        return (*self.input.output, *(item.attribute for item in self.items))


@dataclass(frozen=True, slots=True)
class PlanScalar:
    """The value of an uncorrelated scalar subquery: one row, NULL if its input has none."""

    input: PlanOperator
    value: Attribute
    takes_any: bool = False
    """Whether all rows have the same value, so that more than one row is no error."""
    java: JavaNode = field(default=NOWHERE, compare=False)

    @property
    def output(self) -> tuple[Attribute, ...]:
        return (self.value,)


@dataclass(frozen=True, slots=True)
class PlanBeside:
    """Every row with the values of scalar subqueries beside it."""

    input: PlanOperator
    scalars: tuple[PlanScalar, ...]
    java: JavaNode = field(default=NOWHERE, compare=False)

    @property
    def output(self) -> tuple[Attribute, ...]:
        return (*self.input.output, *(scalar.value for scalar in self.scalars))


PlanOperator = (
    PlanLeaf
    | PlanConstant
    | PlanFilter
    | PlanProject
    | PlanAggregate
    | PlanJoin
    | PlanUnion
    | PlanBagOperation
    | PlanExpand
    | PlanGenerate
    | PlanSort
    | PlanLimit
    | PlanWindow
    | PlanScalar
    | PlanBeside
)


def walk_plan(expression: PlanExpression) -> Iterator[PlanExpression]:
    """The expression and everything in it."""
    yield expression
    if isinstance(expression, PlanOperation):
        for operand in expression.operands:
            yield from walk_plan(operand)


def attributes_of(expression: PlanExpression) -> frozenset[int]:
    """The ids of the columns that an expression reads."""
    return frozenset(part.id for part in walk_plan(expression) if isinstance(part, Attribute))


def substitute_columns(
    expression: PlanExpression, shown: Mapping[int, PlanExpression]
) -> PlanExpression:
    """The expression with columns replaced by what computes them."""
    match expression:
        case Attribute():
            return shown.get(expression.id, expression)
        case PlanLiteral():
            return expression
        case PlanOperation():
            operands = tuple(substitute_columns(each, shown) for each in expression.operands)
            if (column := _field_of_struct(expression, operands)) is not None:
                return column
            call = expression.call
            if call is not None:
                spelled = tuple(substitute_columns(each, shown) for each in call.operands)
                call = PlanOperation(call.kind, spelled, call.facts, call.java)
            return PlanOperation(expression.kind, operands, expression.facts, expression.java, call)


def _field_of_struct(
    expression: PlanOperation, operands: tuple[PlanExpression, ...]
) -> PlanExpression | None:
    if expression.kind != "GetStructField" or not isinstance(operands[0], PlanOperation):
        return None
    if operands[0].kind != STRUCT:
        return None
    return operands[0].operands[int(dict(expression.facts)["ordinal"])]


def replace_parts(
    expression: PlanExpression, parts: Mapping[PlanExpression, Attribute]
) -> PlanExpression:
    """The expression with whole parts of it replaced by columns."""
    if expression in parts:
        return parts[expression]
    if not isinstance(expression, PlanOperation):
        return expression
    operands = tuple(replace_parts(each, parts) for each in expression.operands)
    call = expression.call
    if call is not None:
        spelled = tuple(replace_parts(each, parts) for each in call.operands)
        call = replace(call, operands=spelled)
    return replace(expression, operands=operands, call=call)


def split_conjuncts(expression: PlanExpression | None) -> list[PlanExpression]:
    """The operands of a conjunction."""
    if expression is None:
        return []
    if isinstance(expression, PlanOperation) and expression.kind == "And":
        return [part for operand in expression.operands for part in split_conjuncts(operand)]
    return [expression]
