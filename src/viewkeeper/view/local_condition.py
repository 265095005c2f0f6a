"""Local conditions: what a source can leave out of an answer by itself.

A condition over one column and constants is one that every database understands alike, for some
types. A lookup carries those of the place that it asks; a source leaves out the rows that it can
tell to fail one of them, and may leave out none. Whoever asked checks all conditions again, so a
source has only to make sure that it keeps every row for which the kernel calls them all true.

>>> price = Column(0, "price", pa.int64())
>>> local_conditions_of([Compare("<", Literal(5, pa.int64()), price)])
(LocalCondition(column='price', operator='>', values=(5,), type=DataType(int64)),)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal as OneOf

import pyarrow as pa
import pyarrow.types as is_type

from viewkeeper.view.expression import Call, Column, Compare, Expression, Literal, Logic, Scalar

VALUES_MAX = 100
"""A list of more values is not sent with every lookup."""
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
Operator = OneOf["<", "<=", ">", ">=", "in", "within"]


@dataclass(frozen=True, slots=True)
class LocalCondition:
    """A column compared with one constant, or `in` several, or `within` one of several spans, each
    from one value to the next, both included; NULL meets no condition.

    Texts are only ever in a list: databases agree on which are equal, or call more of them so, but
    not on which is the greater one.
    """

    column: str
    operator: Operator
    values: tuple[Scalar, ...]
    type: pa.DataType


def spans_of(condition: LocalCondition) -> list[tuple[Scalar, Scalar]]:
    """The spans of a condition `within` some.

    >>> spans_of(LocalCondition("n", "within", (1, 2, 5, 9), pa.int64()))
    [(1, 2), (5, 9)]
    """
    return list(zip(condition.values[::2], condition.values[1::2], strict=True))


def local_conditions_of(conditions: Iterable[Expression]) -> tuple[LocalCondition, ...]:
    """Those conditions, and parts of them, that a source can check; all are of one place."""
    return tuple(found for condition in conditions for found in _parts_of(condition))


def _parts_of(condition: Expression) -> Iterator[LocalCondition]:
    match condition:
        case Logic("and", left, right):
            yield from _parts_of(left)
            yield from _parts_of(right)
        case Compare(operator, Column() as column, Literal() as literal) if operator in _TURNED:
            yield from _comparison_with(column, operator, [literal])
        case Compare(operator, Literal() as literal, Column() as column) if operator in _TURNED:
            yield from _comparison_with(column, _TURNED[operator], [literal])
        case Call("in", (Column() as column, *listed)):
            literals = [each for each in listed if isinstance(each, Literal)]
            if len(literals) == len(listed) <= VALUES_MAX:
                yield from _comparison_with(column, "=", literals)


def _comparison_with(
    column: Column, operator: str, literals: list[Literal]
) -> Iterator[LocalCondition]:
    values = tuple(literal.value for literal in literals if literal.value is not None)
    is_alike = all(literal.type == column.type for literal in literals)
    is_ordered = (
        is_type.is_int64(column.type)
        or is_type.is_decimal128(column.type)
        or is_type.is_date32(column.type)
    )
    if not values or not is_alike:
        return
    match operator:
        case "=" if is_ordered or is_type.is_string(column.type):
            yield LocalCondition(column.name, "in", values, column.type)
        case "<" | "<=" | ">" | ">=" if is_ordered:
            yield LocalCondition(column.name, operator, values, column.type)
