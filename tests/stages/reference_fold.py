"""Folds in plain Python: fractions, dictionaries, one group at a time. Short enough to be believed.

`fold_rows` takes the rows of a state, each with its count, and gives the shown rows of each group.
Nothing here is shared with `viewkeeper.stages`: it is what that is compared with.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import pyarrow as pa

from viewkeeper.view.definition import Fold, FoldCall
from viewkeeper.view.expression import Column

Row = dict[str, Any]
Rows = list[tuple[Row, int]]


class OverflowedError(Exception):
    """A value does not fit into its type."""


def fold_rows(fold: Fold, rows: Rows) -> list[tuple[Any, ...]]:
    """The shown rows of a fold over a state."""
    groups: dict[tuple[Any, ...], Rows] = {(): []} if fold.is_global else {}
    names: dict[tuple[Any, ...], tuple[Any, ...]] = {(): ()}
    for row, count in rows:
        values = tuple(without_sign(row[group.name]) for group in fold.groups)
        key = tuple(key_of(value) for value in values)
        names[key] = values
        groups.setdefault(key, []).append((row, count))
    return [show(fold, names[key], own) for key, own in groups.items()]


def show(fold: Fold, group: tuple[Any, ...], rows: Rows) -> tuple[Any, ...]:
    values = {field.name: value for field, value in zip(fold.groups, group, strict=True)}
    values |= {call.name: value_of(call, rows) for call in fold.calls}
    shown = []
    for output in fold.outputs:
        assert isinstance(output.expression, Column)
        shown.append(values[output.expression.name])
    return tuple(shown)


def without_sign(value: Any) -> Any:
    return 0.0 if isinstance(value, float) and value == 0 else value


def key_of(value: Any) -> Any:
    """Equal for values that are one group, in an order that Spark has too; NULL is first."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, without_sign(value))


def value_of(call: FoldCall, rows: Rows) -> Any:
    if call.where is not None:
        rows = [(row, count) for row, count in rows if row[call.where]]
    names = [field.name for field in call.arguments]
    tuples = [(tuple(row[name] for name in names), count) for row, count in rows]
    if call.function.endswith("_by"):
        return picked(call, [each for each in tuples if each[0][1] is not None])
    full = [(values, count) for values, count in tuples if None not in values]
    return FUNCTIONS[call.function](call, full)


def picked(call: FoldCall, tuples: Any) -> Any:
    if not tuples:
        return None
    best = (max if call.function == "max_by" else min)(
        tuples, key=lambda each: (key_of(each[0][1]), key_of(each[0][0]))
    )
    return without_sign(best[0][0])


def extreme(choose: Callable[..., Any]) -> Callable[[FoldCall, Any], Any]:
    def find(call: FoldCall, tuples: Any) -> Any:
        values = [values[0] for values, _ in tuples]
        return without_sign(choose(values, key=key_of)) if values else None

    return find


def count(call: FoldCall, tuples: Any) -> int:
    return sum(count for _, count in tuples)


def total(call: FoldCall, tuples: Any) -> Any:
    if not tuples:
        return None
    kind: Any = call.type
    if pa.types.is_floating(kind):
        return nearest(terms(tuples), lambda exact: exact)
    exact = sum(Fraction(values[0]) * count for values, count in tuples)
    if pa.types.is_decimal(kind):
        return as_decimal(exact, kind)
    if not -(2**63) <= exact < 2**63:
        raise OverflowedError
    return int(exact)


def average(call: FoldCall, tuples: Any) -> Any:
    n = count(call, tuples)
    if not n:
        return None
    if pa.types.is_decimal(call.type):
        exact = sum(Fraction(values[0]) * each for values, each in tuples) / n
        return as_decimal(exact, call.type)
    return nearest(terms(tuples), lambda exact: exact / n)


def terms(tuples: Any, place: int = 0) -> list[tuple[Any, int]]:
    return [(values[place], each) for values, each in tuples]


def nearest(values: list[tuple[Any, int]], finish: Callable[[Fraction], Fraction]) -> float:
    odd = [value for value, _ in values if not math.isfinite(value)]
    if odd:
        return math.fsum(odd) if len({*map(str, odd)}) == 1 else math.nan
    return to_float(finish(sum((Fraction(value) * n for value, n in values), Fraction())))


def to_float(exact: Fraction) -> float:
    try:
        return float(exact) or 0.0
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def as_decimal(exact: Fraction, kind: Any) -> decimal.Decimal:
    scaled = abs(exact) * 10**kind.scale
    digits = math.floor(scaled + Fraction(1, 2))
    if digits >= 10**kind.precision:
        raise OverflowedError
    with decimal.localcontext(prec=80):
        return decimal.Decimal(-digits if exact < 0 else digits).scaleb(-kind.scale)


def moments(tuples: Any) -> tuple[int, Fraction, Fraction, Fraction]:
    """n, and the sums of the squares and the product of what x and y differ from their means."""
    n = sum(each for _, each in tuples)
    x, y = ([(Fraction(v), each) for v, each in terms(tuples, place)] for place in (0, -1))
    mean_x, mean_y = (sum(v * each for v, each in values) / n for values in (x, y))
    pairs = [(a - mean_x, b - mean_y, each) for (a, each), (b, _) in zip(x, y, strict=True)]
    return (
        n,
        sum((a * a * each for a, _, each in pairs), Fraction()),
        sum((b * b * each for _, b, each in pairs), Fraction()),
        sum((a * b * each for a, b, each in pairs), Fraction()),
    )


def has_odd(values: Iterable[float]) -> bool:
    return not all(map(math.isfinite, values))


def moment(is_sample: bool, is_root: bool = False) -> Callable[[FoldCall, Any], Any]:
    def find(call: FoldCall, tuples: Any) -> float | None:
        if count(call, tuples) <= is_sample:
            return None
        if any(has_odd(values) for values, _ in tuples):
            return math.nan
        n, _, _, product = moments(tuples)
        exact = product / (n - is_sample)
        return root_of(exact) if is_root else to_float(exact)

    return find


def correlation(call: FoldCall, tuples: Any) -> float | None:
    if count(call, tuples) <= 1:
        return None
    for place in (0, 1):
        is_one = len({key_of(values[place]) for values, _ in tuples}) == 1
        if is_one and not has_odd([tuples[0][0][place]]):
            return None
    if any(has_odd(values) for values, _ in tuples):
        return math.nan
    _, xx, yy, xy = moments(tuples)
    root = root_of(xy * xy / (xx * yy))
    return -root if xy < 0 and root else root


def root_of(exact: Fraction) -> float:
    """The double nearest to a square root: the one whose neighbours' midpoints enclose it."""
    if not exact:
        return 0.0
    with decimal.localcontext(prec=1200, Emax=10**6, Emin=-(10**6)):
        root = (decimal.Decimal(exact.numerator) / decimal.Decimal(exact.denominator)).sqrt()
        try:
            return float(root)
        except OverflowError:
            return math.inf


def truth(of: Callable[[Iterable[bool]], bool]) -> Callable[[FoldCall, Any], Any]:
    return lambda call, tuples: of(values[0] for values, _ in tuples) if tuples else None


FUNCTIONS: dict[str, Callable[[FoldCall, Any], Any]] = {
    "count": count,
    "count_if": lambda call, tuples: sum(each for values, each in tuples if values[0]),
    "sum": total,
    "avg": average,
    "min": extreme(min),
    "max": extreme(max),
    "bool_and": truth(all),
    "every": truth(all),
    "bool_or": truth(any),
    "some": truth(any),
    "any": truth(any),
    "variance": moment(True),
    "var_samp": moment(True),
    "var_pop": moment(False),
    "stddev": moment(True, True),
    "std": moment(True, True),
    "stddev_samp": moment(True, True),
    "stddev_pop": moment(False, True),
    "covar_samp": moment(True),
    "covar_pop": moment(False),
    "corr": correlation,
}
