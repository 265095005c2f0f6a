"""A fold over a batch: signed rows in, signed rows of its groups out.

    a_i = a_0 + d_1 + ... + d_i       out_i = finish(a_i)       emitted at t_i: out_i - out_(i-1)

for every group and every ts t_i at which it is touched. The deltas d_i are *partials*: one row per
group and ts, which tasks make of signed rows (`pre_aggregate`) and which can be summed in any order
(`combine_partials`). a_0 is what the stored row of the group holds.

A group without rows has no row, but a global fold always has exactly one. What is taken back is the
stored row as it is, what is put there comes from `finished_rows`, at the load and ever after.

Invariants, checked at every step: no count is negative, and a group without rows has nothing but
zeros left. If one does not hold, what is stored is not the sum of the changes: the view stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.delta.evaluate import evaluate_expression
from viewkeeper.delta.kernel import canonical_floats
from viewkeeper.errors import StateError, reload_hint
from viewkeeper.stages.accumulator import (
    Accumulator,
    Mask,
    measure_rows,
    read_partial,
    read_stored,
    write_partial,
    write_stored,
)
from viewkeeper.stages.exact_floats import Amounts, align_amounts
from viewkeeper.stages.exact_numbers import Places, add_numbers, numbers_of, plain_array
from viewkeeper.stages.extreme import (
    candidates_of_partials,
    candidates_of_rows,
    write_extreme,
    write_moves,
)
from viewkeeper.stages.extreme_course import (
    AskedRows,
    AskRows,
    CourseFrame,
    ExtremeCourse,
    follow_steps,
    recover_course,
)
from viewkeeper.stages.fold_calls import (
    FoldState,
    accumulators_of,
    finish_call,
    overflow_error,
    text_of_call,
)
from viewkeeper.stages.fold_layout import ROWS_COLUMN, FoldLayout, layout_of
from viewkeeper.stages.group_step import (
    Steps,
    find_rows_of,
    name_group,
    number_rows,
    steps_of,
)
from viewkeeper.view.definition import Fold


def stored_schema_of(fold: Fold) -> tuple[pa.Schema, tuple[str, ...]]:
    """The columns of a fold's table, the shown ones first, and the names of the hidden ones."""
    layout = layout_of(fold)
    return layout.stored, layout.hidden


# -- partials --------------------------------------------------------------------------------------


def pre_aggregate(fold: Fold, rows: pa.Table) -> pa.Table:
    """Signed rows of a fold's input as partials: one row per group and ts."""
    layout, steps = layout_of(fold), _steps_of_table(fold, rows)
    sums = {name: measure_rows(a, rows) for name, a in layout.accumulators.items()}
    extremes: dict[str, Any] = {}
    for name, extreme in layout.extremes.items():
        candidates = candidates_of_rows(extreme, rows, steps.step_of_row)
        extremes |= write_moves(extreme, name, candidates, steps.size)
    return _partial_table(layout, rows, steps, sums, extremes)


def combine_partials(fold: Fold, tables: Sequence[pa.Table]) -> pa.Table:
    """The sum of partials that were made of parts of the same rows."""
    layout = layout_of(fold)
    if len(tables) <= 1:
        return tables[0] if tables else layout.partial.empty_table()
    table = pa.concat_tables(tables)
    steps = _steps_of_table(fold, table)
    sums = {name: read_partial(a, table[name]) for name, a in layout.accumulators.items()}
    extremes: dict[str, Any] = {}
    for name, extreme in layout.extremes.items():
        candidates = candidates_of_partials(extreme, name, table, steps.step_of_row)
        extremes |= write_moves(extreme, name, candidates, steps.size)
    return _partial_table(layout, table, steps, sums, extremes)


def _steps_of_table(fold: Fold, table: pa.Table) -> Steps:
    columns = [table[group.name] for group in fold.groups]
    return steps_of(number_rows(columns, table.num_rows), numbers_of(table[TS]))


def _partial_table(
    layout: FoldLayout,
    rows: pa.Table,
    steps: Steps,
    sums: dict[str, Amounts],
    extremes: dict[str, Any],
) -> pa.Table:
    """One row per step that adds something, by what each row adds."""
    first = steps.rows
    columns: dict[str, Any] = {
        group.name: plain_array(canonical_floats(rows[group.name].take(first)))
        for group in layout.fold.groups
    }
    columns[TS] = pa.array(steps.ts)
    moves = np.zeros(steps.size, np.bool_)
    for name, amounts in sums.items():
        total = amounts.take_places(steps.order).sum_parts(steps.starts)
        moves |= (total.numbers != 0).astype(np.bool_)
        columns[name] = write_partial(layout.accumulators[name], total)
    for name, values in extremes.items():
        if name.endswith("_ties"):
            moves |= np.asarray(values) != 0
    found = pa.table(columns | extremes, schema=layout.partial)
    return found if moves.all() else found.filter(pa.array(moves))


# -- from partials to rows -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoldCourse:
    """A fold at every step of a batch: its accumulators and extremes after the step.

    `groups` has the group of each step, `stored` the row of each group in the table before the
    batch, -1 if there is none, and `moves` says whether the step changes anything.
    """

    steps: Steps
    groups: pa.Table
    sums: dict[str, Amounts]
    extremes: dict[str, ExtremeCourse]
    stored: Places
    moves: Mask

    @property
    def is_empty(self) -> Mask:
        """Whether the group has no rows after each step."""
        return np.asarray(self.sums[ROWS_COLUMN].numbers == 0, np.bool_)

    def shows_row(self, fold: Fold) -> Mask:
        """Whether the group has a row in the table after each step."""
        return np.ones(self.steps.size, np.bool_) if fold.is_global else ~self.is_empty


def advance_fold(
    fold: Fold,
    partials: pa.Table,
    before_state: pa.Table,
    ask_input: AskRows,
    ask_changes: AskRows,
) -> pa.Table:
    """The signed rows by which a fold's table changes in a batch.

    `partials` are those of all changes of the input, combined. `before_state` has the stored rows
    of all touched groups as of before the batch. Groups that lose an extreme are asked for, once,
    by a table with their columns of the input: `ask_input` gives the input's rows as of before the
    batch, with their count, `ask_changes` the changes of the batch, with count and ts.
    """
    layout = layout_of(fold)
    before = _stored_columns(layout, before_state)
    if fold.is_global and before.num_rows != 1:
        raise StateError(
            f"the table of a fold has {before.num_rows} rows, not one", hint=reload_hint()
        )
    if not partials.num_rows:
        return _signed_rows(before, before, np.zeros(0, np.int64), ())
    course = _course_of(layout, partials, before, (ask_input, ask_changes))
    steps, shown = course.steps, course.shows_row(fold)
    at = np.flatnonzero(shown)
    after = finished_rows(layout, course, at)
    # Where the row of each step is: those before the batch come first, then those after steps.
    places = np.full(steps.size, -1)
    places[at] = before.num_rows + np.arange(len(at))
    earlier = np.empty_like(places)
    earlier[1:] = places[:-1]
    earlier[steps.first] = course.stored
    taken, put = course.moves & (earlier >= 0), course.moves & (places >= 0)
    rows = np.concatenate([earlier[taken], places[put]])
    return _signed_rows(before, after, rows, (steps.ts[taken], steps.ts[put]))


def _stored_columns(layout: FoldLayout, table: pa.Table) -> pa.Table:
    """The stored columns of a table that may have more."""
    stored = layout.stored
    if table.schema.names != stored.names:
        table = table.select(stored.names)
    return table if table.schema.equals(stored) else table.cast(stored)


def _take_rows(table: pa.Table, rows: Places) -> pa.Table:
    """Some rows of a table; the table itself if these are all rows in order."""
    if len(rows) == table.num_rows and np.array_equal(rows, np.arange(len(rows))):
        return table
    return table.take(rows)


def load_groups(fold: Fold, partials: pa.Table) -> pa.Table:
    """The stored rows of a fold, each with its count, from the partials of all rows of its input.

    There is one ts, and nothing is taken away. A global fold has its row even without partials;
    so its partials are combined before, all of them.
    """
    layout = layout_of(fold)
    if fold.is_global and not partials.num_rows:
        partials = _nothing_added(layout)
    before = layout.stored.empty_table()
    course = _course_of(layout, partials, before, (_refuse_question, _refuse_question))
    assert len(course.steps.first) == course.steps.size, "a load has one ts"
    at = np.flatnonzero(course.shows_row(fold))
    found = finished_rows(layout, course, at)
    return found.append_column(COUNT, pa.array(np.ones(len(at), np.int64)))


def _nothing_added(layout: FoldLayout) -> pa.Table:
    columns: dict[str, Any] = {TS: pa.array([0], pa.int64())}
    for name, accumulator in layout.accumulators.items():
        columns[name] = write_partial(accumulator, Amounts(np.zeros(1, np.int64)))
    for field in layout.partial:
        if field.name not in columns:
            zeros = pa.array([0], pa.int64())
            columns[field.name] = zeros if field.name.endswith("_ties") else pa.nulls(1, field.type)
    return pa.table(columns, schema=layout.partial)


def _refuse_question(keys: pa.Table) -> pa.Table:
    raise StateError(
        f"the load of a view found {keys.num_rows} groups from which rows are taken away",
        hint=reload_hint(),
    )


def _signed_rows(
    before: pa.Table, after: pa.Table, rows: Places, ts: tuple[Places, ...]
) -> pa.Table:
    """Rows of two tables, one behind the other: first those taken away, then those put there."""
    found = pa.concat_tables([before, after]).take(rows)
    taken = len(ts[0]) if ts else 0
    counts = np.repeat([-1, 1], [taken, len(rows) - taken])
    stamps = np.concatenate(ts) if ts else np.zeros(0, np.int64)
    return found.append_column(TS, pa.array(stamps)).append_column(COUNT, pa.array(counts))


def finished_rows(layout: FoldLayout, course: FoldCourse, at: Places) -> pa.Table:
    """The stored rows of groups after some steps."""
    fold = layout.fold
    groups = _take_rows(course.groups, at)
    sums = {name: course.sums[name].take_places(at) for name in layout.accumulators}
    extremes = {name: course.extremes[name].values_at(at) for name in layout.extremes}
    state = FoldState(
        {each: sums[name] for name, each in layout.accumulators.items()},
        {each: extremes[name] for name, each in layout.extremes.items()},
        course.steps.ts[at],
    )
    labels: dict[str, Any] = {f"0.{group.name}": groups[group.name] for group in fold.groups}
    labels |= {f"0.{call.name}": finish_call(call, state) for call in fold.calls}
    columns = dict(zip(layout.group_columns, groups.columns, strict=True))
    table = pa.table(labels) if labels else _rows_without_columns(len(at))
    for output in fold.outputs:
        columns[output.name] = canonical_floats(evaluate_expression(output.expression, table))
    for name, each in layout.accumulators.items():
        columns[name] = _write_sum(layout, each, sums[name], state)
    for name, extreme in layout.extremes.items():
        ties = course.extremes[name].ties[at]
        columns |= write_extreme(extreme, name, extremes[name], ties)
    return pa.table({name: columns[name] for name in layout.stored.names}, schema=layout.stored)


def _rows_without_columns(size: int) -> pa.Table:
    return pa.table({"": pa.nulls(size)})


def _write_sum(
    layout: FoldLayout, accumulator: Accumulator, amounts: Amounts, state: FoldState
) -> Any:
    kind: Any = accumulator.stored_type
    try:
        return write_stored(accumulator, amounts)
    except OverflowError as error:
        calls = [text_of_call(c) for c in layout.fold.calls if accumulator in accumulators_of(c)]
        limit = 10**kind.precision if pa.types.is_decimal(kind) else 1 << 63
        bad = np.abs(amounts.numbers) >= limit
        raise overflow_error(f"the sum behind {', '.join(calls)}", kind, state, bad) from error


# -- the course of a batch -------------------------------------------------------------------------


def _course_of(
    layout: FoldLayout, partials: pa.Table, before: pa.Table, ask: tuple[AskRows, AskRows]
) -> FoldCourse:
    """Accumulators and extremes after every step; `before` are stored rows."""
    fold, size = layout.fold, partials.num_rows
    stored_groups = before.select(layout.group_columns).rename_columns(_group_names(fold))
    groups = pa.concat_tables([partials.select(_group_names(fold)), stored_groups])
    numbers = number_rows(groups.columns, size + before.num_rows)
    steps = steps_of(numbers[:size], numbers_of(partials[TS]))
    assert steps.size == size, "partials are combined before a fold is advanced"
    stored = _stored_rows(steps, numbers)
    partials = _take_rows(partials, steps.order)
    sums, moves = {}, np.zeros(size, np.bool_)
    for name, accumulator in layout.accumulators.items():
        added = read_partial(accumulator, partials[name])
        moves |= (added.numbers != 0).astype(np.bool_)
        sums[name] = _sums_after(added, read_stored(accumulator, before[name]), steps, stored)
    own_groups = _take_rows(groups, steps.rows)
    course = FoldCourse(steps, own_groups, sums, {}, stored, moves)
    _check_sums(layout, course)
    if not layout.extremes:
        return course
    return _with_extremes(layout, course, partials, before, ask)


def _group_names(fold: Fold) -> list[str]:
    return [group.name for group in fold.groups]


def _stored_rows(steps: Steps, numbers: Places) -> Places:
    """The stored row of each group, -1 if it has none."""
    kept = numbers[len(steps.order) :]
    rows = find_rows_of(numbers[steps.rows[steps.first]], kept)
    if len(np.unique(kept)) != len(kept):
        raise StateError("the table of a fold has a group twice", hint=reload_hint())
    return rows


def _sums_after(added: Amounts, before: Amounts, steps: Steps, stored: Places) -> Amounts:
    """An accumulator after each step."""
    added, before = align_amounts([added, before])
    totals = added.sum_prefixes().numbers
    # What earlier groups have added to the running sum is taken out of it again.
    others = add_numbers(added.numbers[steps.first], -totals[steps.first])
    if len(before.numbers):
        is_stored = stored >= 0
        held = np.where(is_stored, before.numbers[np.where(is_stored, stored, 0)], 0)
        others = add_numbers(others, held)
    return Amounts(add_numbers(totals, others[steps.which]), added.exponent)


def _check_sums(layout: FoldLayout, course: FoldCourse) -> None:
    """Stop where a count is negative, or a group without rows has something left."""
    kept = layout.accumulators
    is_empty = course.is_empty
    for name, accumulator in kept.items():
        numbers = course.sums[name].numbers
        if accumulator.measure != "sum":
            _refuse_steps(course, numbers < 0, f"{name} is negative")
        if is_empty.any():
            what = f"no rows are left, and {name} is not zero"
            _refuse_steps(course, is_empty & (numbers != 0), what)


def _refuse_steps(course: FoldCourse, wrong: Any, what: str) -> None:
    if not wrong.any():
        return
    step = int(np.flatnonzero(wrong)[0])
    raise StateError(
        f"what is stored of a group contradicts its changes: {what}",
        detail=f"group {name_group(course.groups, step)}, ts {course.steps.ts[step]}",
        hint=reload_hint(),
    )


# -- extremes --------------------------------------------------------------------------------------


def _with_extremes(
    layout: FoldLayout,
    course: FoldCourse,
    partials: pa.Table,
    before: pa.Table,
    ask: tuple[AskRows, AskRows],
) -> FoldCourse:
    steps = course.steps
    kept = np.flatnonzero(course.stored >= 0)
    own = before.take(course.stored[kept])
    frame = CourseFrame(steps, kept, course.is_empty)
    found = {
        name: follow_steps(extreme, name, partials, own, frame)
        for name, extreme in layout.extremes.items()
    }
    lost = sorted(set().union(*(each.lost for each in found.values())))
    if lost:
        asked = _ask_groups(layout, course, np.array(lost), ask)
        for name, extreme in layout.extremes.items():
            if found[name].lost:
                found[name] = recover_course(extreme, found[name], steps, asked)
    moves = course.moves.copy()
    for name, each in found.items():
        _refuse_steps(course, each.ties < 0, f"{name}_ties is negative")
        moves |= each.changes_at(steps)
    return FoldCourse(steps, course.groups, course.sums, found, course.stored, moves)


def _ask_groups(
    layout: FoldLayout, course: FoldCourse, lost: Places, ask: tuple[AskRows, AskRows]
) -> AskedRows:
    """Rows and changes of the input for groups that lost an extreme."""
    keys = course.groups.take(course.steps.first[lost])
    found: list[Any] = []
    for question in ask:
        rows = question(keys)
        both = pa.concat_tables([keys, rows.select(keys.column_names)])
        numbers = number_rows(both.columns, len(lost) + rows.num_rows)
        own = find_rows_of(numbers[len(lost) :], numbers[: len(lost)])
        found += [rows.filter(pa.array(own >= 0)), lost[own[own >= 0]]]
    return AskedRows(*found)
