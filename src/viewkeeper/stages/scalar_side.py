"""A side against values of scalar subqueries: what changes where either of them does.

Let S(t) be the side and v(t) the values as of ts t, and let f(S, v) be the rows that pass the
conditions, as they are shown. The result is f(S(t), v(t)) at every ts. Between two changes of v, a
change of the side is shown as it is under the value of then. At a ts u where v changes, the
difference is

    f(S(u), v(u)) - f(S(u-), v(u-))

with u- the moment before. Where no value is shown, only rows count whose conditions decide
otherwise than before; all rows are decided again for every new value, in one pass over columns.

Where a value is shown, as in a share of a total, every row is another one at every ts at which the
value changes. If that would be more than `SHOWN_ROWS_MAX` rows for a batch, the batch is one step:
the difference between its end and its beginning, at its last ts. The view is then right as of that
ts and of the ts before the batch, and shows nothing of what was between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.evaluate import evaluate_expression
from viewkeeper.delta.kernel import Kernel
from viewkeeper.delta.row_errors import can_fail
from viewkeeper.view.definition import Core, Place
from viewkeeper.view.expression import Expression, needs_spark, places_of
from viewkeeper.view.join_tree import comparison_of

SHOWN_ROWS_MAX = 2_000_000
"""How many rows a batch may change because a value that is shown has changed."""
START = np.iinfo(np.int64).min
"""The ts of what was there before a batch."""


@dataclass(frozen=True, slots=True)
class ScalarChanges:
    """The one row of a scalar before a batch, and its signed rows in it, with their ts."""

    place: Place
    before: pa.Table
    changes: pa.Table


@dataclass(frozen=True, slots=True)
class SideChanges:
    """What a core over a side and scalars changes: its signed rows, with their ts.

    `merged` says that the batch is one step, because it would have had too many rows.
    """

    rows: pa.Table
    merged: bool = False


@dataclass(frozen=True, slots=True)
class _Course:
    """The values of all scalars: row i of `values` holds from `stamps[i]` on."""

    stamps: Any
    values: pa.Table

    def put_beside(self, rows: pa.Table, versions: Any) -> pa.Table:
        """Rows with the values of these versions, one for each row."""
        for name in self.values.column_names:
            rows = rows.append_column(name, pc.take(self.values[name], pa.array(versions)))
        return rows

    def version_at(self, stamps: Any) -> Any:
        """The version that holds at each ts."""
        return np.searchsorted(self.stamps, stamps, side="right") - 1


def is_comparable(core: Core) -> bool:
    """Whether a core is a side with scalars that are evaluated here."""
    expressions = [*core.view.predicates, *(output.expression for output in core.view.outputs)]
    return bool(core.scalars) and core.copies is None and not any(map(needs_spark, expressions))


def has_shown_scalars(core: Core) -> bool:
    """Whether rows show values of scalars, so that all of them change when one does."""
    read = {place for output in core.view.outputs for place in places_of(output.expression)}
    return bool(read & set(core.scalars))


def compare_side(
    core: Core,
    read_side: Callable[[], pa.Table],
    changes: pa.Table,
    scalars: Sequence[ScalarChanges],
) -> SideChanges:
    """The signed rows of a core from those of its side and of its scalars.

    `read_side` gives the side before the batch, counted; it is called only if a scalar changes.
    """
    course = _course_of(scalars)
    side = _Side(core, Kernel().label_columns(changes, 0, core.view.places[0].columns), course)
    if len(course.stamps) == 1:
        return SideChanges(side.show_quiet_changes())
    before = Kernel().label_columns(read_side(), 0, core.view.places[0].columns)
    stamps = pa.array(np.full(before.num_rows, START))
    side = replace(side, before=before.append_column(TS, stamps).select(side.changes.column_names))
    steps = (len(course.stamps) - 1) * (before.num_rows + changes.num_rows)
    if has_shown_scalars(core) and steps > SHOWN_ROWS_MAX:
        return SideChanges(side.show_one_step(), merged=True)
    moved = side.show_moved_rows() if side.is_decided_again else side.show_all_rows()
    return SideChanges(Kernel().consolidate(pa.concat_tables([side.show_quiet_changes(), *moved])))


def _course_of(scalars: Sequence[ScalarChanges]) -> _Course:
    """The values of scalars, whenever one of them changes."""
    every = [np.asarray(each.changes[TS]) for each in scalars]
    stamps = np.unique(np.concatenate([np.array([START]), *every]))
    columns: dict[str, Any] = {}
    for each in scalars:
        new = each.changes.filter(pc.greater(each.changes[COUNT], 0)).sort_by(TS)
        assert each.before.num_rows == 1, "a scalar has one row at every ts"
        at = np.searchsorted(np.asarray(new[TS]), stamps, side="right")
        for field in each.place.fields:
            pieces = [each.before.select([field.name]), new.select([field.name])]
            known = pa.concat_tables(pieces)[field.name]
            columns[f"{each.place.index}.{field.name}"] = pc.take(known, pa.array(at))
    return _Course(stamps, pa.table(columns))


@dataclass(frozen=True, slots=True)
class _Side:
    """The side of a core before a batch and its changes, with labelled columns, `_ts`, `_count`."""

    core: Core
    changes: pa.Table
    course: _Course
    before: pa.Table | None = None

    @property
    def conditions(self) -> list[Expression]:
        view = self.core.view
        return [*map(comparison_of, view.equalities), *view.predicates]

    @property
    def is_decided_again(self) -> bool:
        """Whether a new value only moves rows in or out, and may be tried on rows that are gone."""
        outputs = [output.expression for output in self.core.view.outputs]
        return not has_shown_scalars(self.core) and not any(
            map(can_fail, [*self.conditions, *outputs])
        )

    @property
    def every_row(self) -> pa.Table:
        """All rows of the side, also those that come and go in the batch."""
        assert self.before is not None, "the side is read where a scalar changes"
        return pa.concat_tables([self.before, self.changes.cast(self.before.schema)])

    def show_quiet_changes(self) -> pa.Table:
        """Changes of the side at moments at which no scalar changes; if rows are only moved by new
        values, at all moments."""
        changes = self.changes
        stamps = np.asarray(changes[TS])
        if self.before is not None and not self.is_decided_again:
            quiet = ~np.isin(stamps, self.course.stamps)
            changes, stamps = changes.filter(pa.array(quiet)), stamps[quiet]
        return self._show(self.course.put_beside(changes, self.course.version_at(stamps)))

    def show_moved_rows(self) -> list[pa.Table]:
        """Rows that pass the conditions under a new value and did not before, or the other way."""
        rows, kernel = self.every_row, Kernel()
        free = [c for c in self.conditions if not places_of(c) & set(self.core.scalars)]
        rows = kernel.where(rows, free)
        tests = [c for c in self.conditions if c not in free]
        stamps, moved = np.asarray(rows[TS]), []
        passed = self._passing_rows(rows, 0, tests)
        for version in range(1, len(self.course.stamps)):
            before, passed = passed, self._passing_rows(rows, version, tests)
            ts = int(self.course.stamps[version])
            found = np.flatnonzero((before != passed) & (stamps < ts))
            picked = rows.take(found)
            signs = np.where(passed[found], 1, -1) * np.asarray(picked[COUNT])
            moved.append(_with_column(_at(picked, ts), COUNT, pa.array(signs)))
        return [kernel.project(each, self.core.view.outputs) for each in moved]

    def _passing_rows(self, rows: pa.Table, version: int, tests: Sequence[Expression]) -> Any:
        passed = np.ones(rows.num_rows, bool)
        beside = self.course.put_beside(rows, np.full(rows.num_rows, version))
        for test in tests:
            found = pc.fill_null(evaluate_expression(test, beside), False)
            passed &= np.asarray(found).astype(bool)
        return passed

    def show_all_rows(self) -> list[pa.Table]:
        """All that is shown after each new value, less all that was shown before it."""
        moved = []
        for version in range(1, len(self.course.stamps)):
            moved += self._show_step(version - 1, version, int(self.course.stamps[version]))
        return moved

    def show_one_step(self) -> pa.Table:
        """What is shown after the batch, less what was shown before it, at its last ts."""
        last = int(max(self.course.stamps[-1], *np.asarray(self.changes[TS]), START))
        newest = len(self.course.stamps) - 1
        rows = [
            Kernel().negate(self._show_version(_before(self.every_row, START + 1), 0, last)),
            self._show_version(self.every_row, newest, last),
        ]
        return Kernel().consolidate(pa.concat_tables(rows))

    def _show_step(self, old: int, new: int, ts: int) -> list[pa.Table]:
        was, now = _before(self.every_row, ts), _before(self.every_row, ts + 1)
        return [
            Kernel().negate(self._show_version(was, old, ts)),
            self._show_version(now, new, ts),
        ]

    def _show_version(self, rows: pa.Table, version: int, ts: int) -> pa.Table:
        """What is shown of the rows that are left after all came and went, under one value."""
        left = Kernel().consolidate(_at(rows, ts))
        return self._show(self.course.put_beside(left, np.full(left.num_rows, version)))

    def _show(self, rows: pa.Table) -> pa.Table:
        kernel = Kernel()
        return kernel.project(kernel.where(rows, self.conditions), self.core.view.outputs)


def _before(rows: pa.Table, ts: int) -> pa.Table:
    return rows.filter(pc.less(rows[TS], ts))


def _at(rows: pa.Table, ts: int) -> pa.Table:
    return _with_column(rows, TS, pa.array(np.full(rows.num_rows, ts)))


def _with_column(rows: pa.Table, name: str, values: Any) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, values)
