"""Deliberate mistakes in folds, recomputes, sides and indexes: each must be found within 50 seeds.

The switches are here, not in the product. The unbroken stage passes the very same seeds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.stages.histories import make_call, make_fold
from tests.stages.test_folds import FLOAT_GROUP, GROUP, check_fold, many_calls
from tests.stages.test_key_index import IndexedHistory
from tests.stages.test_key_recompute import check_recompute, groups, windows
from tests.stages.test_scalar_side import ABOVE, BETWEEN, EQUAL, SUM, check_side
from viewkeeper.delta.algebra import COUNT
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import StateError
from viewkeeper.stages import fold, key_index, key_recompute, scalar_side
from viewkeeper.stages.accumulator import measure_rows
from viewkeeper.stages.sorted_rows import order_ranks
from viewkeeper.view.definition import Field, SortKey

SEEDS = 50
Run = Callable[[int, Path], None]


def run_fold(seed: int, _: Path) -> None:
    check_fold(make_fold([GROUP], many_calls(None)), seed, mild=True)


def run_extreme(seed: int, _: Path) -> None:
    check_fold(make_fold([GROUP], [make_call("v", "min", Field("x", pa.int64()))]), seed)


def run_distinct_floats(seed: int, _: Path) -> None:
    check_fold(make_fold([FLOAT_GROUP], []), seed)


def run_windows(seed: int, _: Path) -> None:
    check_recompute(windows, seed)


def run_groups(seed: int, _: Path) -> None:
    check_recompute(groups, seed)


def run_side(seed: int, _: Path) -> None:
    check_side(seed, (ABOVE, BETWEEN, EQUAL, SUM)[seed % 4])


def run_index(seed: int, folder: Path) -> None:
    IndexedHistory(folder / str(seed), ("c", "a"), random.Random(seed)).take_steps(25)


# -- folds -----------------------------------------------------------------------------------------


def add_what_goes(patch: pytest.MonkeyPatch) -> None:
    """A row that goes is not netted with one that came: it is added too."""

    def wrong(accumulator: Any, rows: pa.Table) -> Any:
        counts = pc.abs(rows[COUNT])
        return measure_rows(accumulator, rows.set_column(rows.num_columns - 1, COUNT, counts))

    patch.setattr(fold, "measure_rows", wrong)


def take_the_next_best_without_asking(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fold, "recover_course", lambda extreme, course, steps, asked: course)


def keep_negative_zeros(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fold, "canonical_floats", lambda column: column)


def keep_groups_without_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        fold.FoldCourse, "shows_row", lambda course, _: np.ones(course.steps.size, np.bool_)
    )


def forget_what_is_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fold, "_stored_rows", lambda steps, numbers: np.full(len(steps.first), -1))


# -- recomputes ------------------------------------------------------------------------------------


def leave_orders_incomplete(patch: pytest.MonkeyPatch) -> None:
    def wrong(rows: pa.Table, keys: Sequence[SortKey]) -> Any:
        # The user's order is a tuple, what completes it a list.
        return order_ranks(rows, keys) if isinstance(keys, tuple) else []

    patch.setattr(key_recompute, "order_ranks", wrong)


def evaluate_changes_alone(patch: pytest.MonkeyPatch) -> None:
    right = key_recompute._pool_of
    patch.setattr(
        key_recompute, "_pool_of", lambda node, before, delta: right(node, before.slice(1), delta)
    )


# -- sides -----------------------------------------------------------------------------------------


def leave_the_side_where_it_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scalar_side._Side, "show_moved_rows", lambda side: [])


def compare_with_the_value_before(patch: pytest.MonkeyPatch) -> None:
    def wrong(course: Any, stamps: Any) -> Any:
        return np.maximum(np.searchsorted(course.stamps, stamps, side="left") - 1, 0)

    patch.setattr(scalar_side._Course, "version_at", wrong)


# -- indexes ---------------------------------------------------------------------------------------


def lose_a_row_of_the_index(patch: pytest.MonkeyPatch) -> None:
    right = key_index._sorted_run

    def wrong(rows: pa.Table, owner: Any) -> Any:
        return right(rows.slice(1) if rows.num_rows > 3 else rows, owner)

    patch.setattr(key_index, "_sorted_run", wrong)


def forget_to_net_the_index(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(key_index, "_net_rows", lambda rows: rows)


@dataclass(frozen=True, slots=True)
class StageMistake:
    """What is broken, and the run in which that must show."""

    apply: Callable[[pytest.MonkeyPatch], None]
    run: Run


MISTAKES = (
    StageMistake(add_what_goes, run_fold),
    StageMistake(take_the_next_best_without_asking, run_extreme),
    StageMistake(keep_negative_zeros, run_distinct_floats),
    StageMistake(keep_groups_without_rows, run_fold),
    StageMistake(forget_what_is_stored, run_fold),
    StageMistake(leave_orders_incomplete, run_windows),
    StageMistake(evaluate_changes_alone, run_windows),
    StageMistake(evaluate_changes_alone, run_groups),
    StageMistake(leave_the_side_where_it_is, run_side),
    StageMistake(compare_with_the_value_before, run_side),
    StageMistake(lose_a_row_of_the_index, run_index),
    StageMistake(forget_to_net_the_index, run_index),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"{m.apply.__name__}-{m.run.__name__}")
def test_a_mistake_is_found(
    mistake: StageMistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        mistake.apply(patch)
        broken = (seed for seed in range(SEEDS) if _fails(mistake.run, seed, tmp_path / "broken"))
        found = next(broken, None)
    assert found is not None, f"{SEEDS} seeds do not find it"
    assert not _fails(mistake.run, found, tmp_path), f"seed {found} fails without the mistake too"


def _fails(run: Run, seed: int, folder: Path) -> bool:
    try:
        run(seed, folder)
    except (AssertionError, StateError):
        # What is stored and contradicts its changes stops a view: that finds a mistake too.
        return True
    return False
