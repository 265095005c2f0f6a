"""Expressions of which a row may reach one part and not another: CASE, COALESCE, AND, OR, IN.

`Part` is how they ask for a value: an expression, the rows, and a mask of those that reach it.
Where the mask is false the answer has any value, mostly NULL, and nobody looks at it. What cannot
fail is evaluated for all rows, which is quicker than to pick some out.

Spark evaluates operands from left to right, and the next one only if those before are not NULL, so
even `a + 1 % b` does not fail for `b = 0` where `a` is NULL. Divisors come before dividends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.column_values import (
    Values,
    equal_values,
    is_constant,
    less_values,
    repeat_constant,
)
from viewkeeper.delta.row_errors import can_fail, known_type
from viewkeeper.view.expression import Call, Expression, Literal, Logic

Evaluate = Callable[[Expression, pa.RecordBatch], Values]


def evaluate_reached(
    evaluate: Evaluate, expression: Expression, batch: pa.RecordBatch, reached: Values
) -> Values:
    """The value of an expression in the rows of a mask without NULLs."""
    if is_constant(reached):
        reached = pa.repeat(reached, batch.num_rows)
    if not can_fail(expression):
        return evaluate(expression, batch)
    count: int = reached.true_count
    if count == batch.num_rows:
        return evaluate(expression, batch)
    kind: Any = known_type(expression)
    if count == 0:
        return pa.scalar(None, kind)
    picked = repeat_constant(evaluate(expression, batch.filter(reached)), count)
    return pc.replace_with_mask(pa.nulls(batch.num_rows, kind), reached, picked)


def evaluate_operands(
    evaluate: Evaluate, operands: Sequence[Expression], batch: pa.RecordBatch
) -> list[Values]:
    """The values of operands of which one that is NULL decides the result."""
    values: list[Values] = []
    known: Values = None
    for operand in operands:
        if values and can_fail(operand):
            for value in values[-1:] if known is not None else values:
                valid = pc.is_valid(value)
                known = valid if known is None else pc.and_(known, valid)
            values.append(evaluate_reached(evaluate, operand, batch, known))
        else:
            known = None
            values.append(evaluate(operand, batch))
    return values


def evaluate_logic(evaluate: Evaluate, node: Logic, batch: pa.RecordBatch) -> Values:
    """AND and OR: the right side counts where the left one does not decide."""
    left = evaluate(node.left, batch)
    decided = node.operator == "or"
    open_rows = pc.fill_null(pc.not_equal(left, decided), True)
    right = evaluate_reached(evaluate, node.right, batch, open_rows)
    return (pc.or_kleene if decided else pc.and_kleene)(left, right)


def evaluate_branches(evaluate: Evaluate, call: Call, batch: pa.RecordBatch) -> Values:
    """One of the words of `BRANCH_WORDS`."""
    return BRANCH_WORDS[call.function](evaluate, call, batch)


def _evaluate_case(evaluate: Evaluate, call: Call, batch: pa.RecordBatch) -> Values:
    kind: Any = call.type
    found: Values = pa.scalar(None, kind)
    waiting: Values = pa.repeat(pa.scalar(True), batch.num_rows)
    paired = len(call.arguments) // 2 * 2
    for at in range(0, paired, 2):
        met = evaluate_reached(evaluate, call.arguments[at], batch, waiting)
        hit = pc.and_(waiting, pc.fill_null(met, False))
        found = pc.if_else(
            hit, evaluate_reached(evaluate, call.arguments[at + 1], batch, hit), found
        )
        waiting = pc.and_not(waiting, hit)
    if len(call.arguments) > paired:
        rest = evaluate_reached(evaluate, call.arguments[-1], batch, waiting)
        found = pc.if_else(waiting, rest, found)
    return found


def _evaluate_coalesce(evaluate: Evaluate, call: Call, batch: pa.RecordBatch) -> Values:
    found = evaluate(call.arguments[0], batch)
    for argument in call.arguments[1:]:
        missing = pc.is_null(found)
        found = pc.coalesce(found, evaluate_reached(evaluate, argument, batch, missing))
    return found


def _evaluate_extreme(evaluate: Evaluate, call: Call, batch: pa.RecordBatch) -> Values:
    """The greatest or least value that is not NULL; of equal ones the first."""
    found, *others = (evaluate(argument, batch) for argument in call.arguments)
    for other in others:
        sides = (found, other) if call.function == "greatest" else (other, found)
        better = pc.or_kleene(less_values(*sides), pc.is_null(found))
        found = pc.if_else(pc.fill_null(better, False), other, found)
    return found


def _evaluate_in(evaluate: Evaluate, call: Call, batch: pa.RecordBatch) -> Values:
    value = evaluate(call.arguments[0], batch)
    constants = [option for option in call.arguments[1:] if isinstance(option, Literal)]
    if len(constants) == len(call.arguments) - 1 and not pa.types.is_floating(value.type):
        return _find_among(value, [option.value for option in constants])
    met: Values = pc.equal(value, value)
    met = pc.and_kleene(met, False) if len(call.arguments) == 1 else None
    for option in call.arguments[1:]:
        known = pc.is_valid(value)
        waiting = known if met is None else pc.and_(known, pc.fill_null(pc.invert(met), True))
        same = equal_values(value, evaluate_reached(evaluate, option, batch, waiting))
        met = same if met is None else pc.or_kleene(met, same)
    return met


def _find_among(value: Values, options: Sequence[Any]) -> Values:
    """Three-valued: where nothing is equal and an option is NULL, nobody knows."""
    known = pa.array([option for option in options if option is not None], value.type)
    found = pc.is_in(value, value_set=known)
    if len(known) < len(options):
        found = pc.if_else(found, True, pa.scalar(None, pa.bool_()))
    return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))


BRANCH_WORDS: dict[str, Callable[[Evaluate, Call, pa.RecordBatch], Values]] = {
    "case": _evaluate_case,
    "if": _evaluate_case,
    "coalesce": _evaluate_coalesce,
    "greatest": _evaluate_extreme,
    "least": _evaluate_extreme,
    "in": _evaluate_in,
}
"""`if(a, b, c)` is `case(a, b, c)`."""
