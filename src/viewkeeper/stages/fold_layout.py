"""The columns in which a fold keeps its groups: names and types, of its table and of its partials.

A stored row has the shown columns first, then hidden ones: groups that are not shown, and what the
calls are computed from. All hidden names begin with `__`. Calls that need the same accumulator
share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from viewkeeper.delta.algebra import TS
from viewkeeper.stages.accumulator import ROWS, Accumulator
from viewkeeper.stages.extreme import ENDS, Extreme
from viewkeeper.stages.fold_calls import accumulators_of, extreme_of
from viewkeeper.view.definition import Field, Fold
from viewkeeper.view.expression import Column

ROWS_COLUMN = "__count"
"""The column that counts the rows of a group."""

_LAYOUTS_MAX = 1000


@dataclass(frozen=True, slots=True)
class FoldLayout:
    """The columns of a fold: what it keeps by name, its table, its partials."""

    fold: Fold
    accumulators: Mapping[str, Accumulator]
    extremes: Mapping[str, Extreme]
    group_columns: tuple[str, ...]
    stored: pa.Schema
    partial: pa.Schema
    hidden: tuple[str, ...]


@lru_cache(_LAYOUTS_MAX)
def layout_of(fold: Fold) -> FoldLayout:
    """The columns of a fold."""
    sums, extremes, columns = name_accumulators(fold), name_extremes(fold), group_columns_of(fold)
    shown = {field.name: field.type for field in fold.fields}
    groups = {
        name: group.type
        for name, group in zip(columns, fold.groups, strict=True)
        if name not in shown
    }
    hidden = groups | {field.name: field.type for field in accumulator_fields(fold)}
    stored = pa.schema({**shown, **hidden})
    return FoldLayout(fold, sums, extremes, columns, stored, _partial_schema(fold), tuple(hidden))


def name_accumulators(fold: Fold) -> dict[str, Accumulator]:
    """The accumulators of a fold by the names of their columns; the first counts rows."""
    found = dict.fromkeys([ROWS, *(a for call in fold.calls for a in accumulators_of(call))])
    return {f"__{a.measure}_{n}" if n else ROWS_COLUMN: a for n, a in enumerate(found)}


def name_extremes(fold: Fold) -> dict[str, Extreme]:
    """The extremes of a fold by the names of their columns."""
    found = dict.fromkeys(e for call in fold.calls if (e := extreme_of(call)) is not None)
    return {f"__{'max' if e.is_largest else 'min'}_{n}": e for n, e in enumerate(found, 1)}


def accumulator_fields(fold: Fold) -> tuple[Field, ...]:
    """The columns in which a fold keeps what its calls are computed from."""
    sums = [Field(name, a.stored_type) for name, a in name_accumulators(fold).items()]
    extremes = [
        Field(column, kind)
        for name, extreme in name_extremes(fold).items()
        for column, kind in extreme.stored_columns(name).items()
    ]
    return (*sums, *extremes)


def group_columns_of(fold: Fold) -> tuple[str, ...]:
    """The columns of a fold's table that hold its groups, in the order of `groups`."""
    shown = {
        output.expression.name: output.name
        for output in reversed(fold.outputs)
        if isinstance(output.expression, Column)
    }
    return tuple(
        shown.get(group.name, f"__group_{number}") for number, group in enumerate(fold.groups, 1)
    )


def _partial_schema(fold: Fold) -> pa.Schema:
    columns: dict[str, pa.DataType] = {group.name: group.type for group in fold.groups}
    columns[TS] = pa.int64()
    columns |= {name: a.partial_type for name, a in name_accumulators(fold).items()}
    for name, extreme in name_extremes(fold).items():
        for end in ENDS:
            columns |= extreme.stored_columns(name + end)
    return pa.schema(columns)
