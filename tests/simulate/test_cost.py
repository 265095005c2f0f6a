"""The cost model of the PVM paper, against counting and against the figures that the paper gives.

The formulas are checked by brute force where there is something to count (matrix 3 counts pairs of
updates), and by the paper's own numbers otherwise.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from math import inf

import pytest
from benchmarks.pvm_cost import (
    concurrent_updates,
    concurrent_updates_as_printed,
    concurrent_updates_max,
    local_messages,
    local_share,
    pvm_time,
    pvm_time_at_interval,
    pvm_time_in_full_rounds,
    remote_messages,
    source_of,
    sum_over,
    sweep_time,
    sweep_time_with_local,
    update_time,
    waiting_time,
)

SIZES = [(4, 2), (9, 3), (60, 4), (60, 6), (40, 2)]


@pytest.mark.parametrize(("updates", "sources"), SIZES)
def test_matrix_3_counts_the_later_updates_of_other_sources(updates: int, sources: int) -> None:
    for update in range(1, updates + 1):
        later = [source_of(other, sources) for other in range(update + 1, updates + 1)]
        for source in range(1, sources + 1):
            own = source == source_of(update, sources)
            expected = 0 if own else later.count(source)
            assert concurrent_updates(updates, sources, update, source) == expected


@pytest.mark.parametrize(("updates", "sources"), SIZES)
def test_equation_6_is_the_sum_of_matrix_3(updates: int, sources: int) -> None:
    pairs = combinations([source_of(u, sources) for u in range(1, updates + 1)], 2)
    between_sources = sum(one != other for one, other in pairs)
    assert sum_over(concurrent_updates, updates, sources) == between_sources
    assert local_messages(updates, sources) == between_sources


def test_equation_4_contradicts_equation_6_and_matrix_3_agrees_with_equation_6() -> None:
    assert local_messages(60, 4) == 1_350
    assert sum_over(concurrent_updates, 60, 4) == 1_350
    assert sum_over(concurrent_updates_as_printed, 60, 4) == 1_395


def test_equation_4_is_wrong_from_the_second_update_on() -> None:
    def rows(update: int) -> tuple[list[int], list[int]]:
        sources = range(1, 5)
        right = [concurrent_updates(60, 4, update, source) for source in sources]
        printed = [concurrent_updates_as_printed(60, 4, update, source) for source in sources]
        return right, printed

    assert rows(1) == ([0, 15, 15, 15], [0, 15, 15, 15])
    assert rows(2) == ([14, 0, 15, 15], [15, 0, 15, 15])
    assert rows(5) == ([0, 14, 14, 14], [0, 14, 14, 15])
    assert rows(60) == ([0, 0, 0, 0], [0, 0, 0, 0])


def test_a_corrected_equation_4_is_matrix_3() -> None:
    """i - 1 for i - 2 and m for m + 1, the four times that they occur."""
    n, m = 60, 4
    for i in range(1, n + 1):
        k = (i - 1) // m + 1
        for j in range(1, m + 1):
            own = j == (i - 1) % m + 1
            corrected = 0 if own else n // m - (k if j <= (i - 1) % m else k - 1)
            assert concurrent_updates(n, m, i, j) == corrected


@pytest.mark.parametrize(("updates", "sources"), SIZES)
def test_sweep_takes_the_time_of_all_its_queries(updates: int, sources: int) -> None:
    assert remote_messages(updates, sources) == updates * (sources - 1)
    assert sweep_time(updates, sources, remote=7) == 7 * remote_messages(updates, sources)
    local = sweep_time_with_local(updates, sources, 7, 2) - sweep_time(updates, sources, 7)
    assert local == 2 * local_messages(updates, sources)


@pytest.mark.parametrize("parallel", [1, 3, 5])
def test_an_update_waits_for_the_one_whose_slot_it_takes(parallel: int) -> None:
    waits = [waiting_time(update, parallel, inf, each=100, start=2) for update in range(1, 30)]
    assert waits[:parallel] == [2 * ahead for ahead in range(parallel)]
    later = zip(waits, waits[parallel:], strict=False)
    assert all(taken == given + 100 for given, taken in later)


def test_what_is_short_decides_threads_or_sources() -> None:
    numbers = range(1, 20)
    few_threads = [waiting_time(update, 3, 8, 10, 1) for update in numbers]
    few_sources = [waiting_time(update, 8, 3, 10, 1) for update in numbers]
    assert few_threads == few_sources == [waiting_time(update, 3, inf, 10, 1) for update in numbers]


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 6])
def test_equation_15_is_equation_14_under_its_conditions(at_once: int) -> None:
    for rounds in range(1, 5):
        updates = rounds * at_once + 1
        exact = pvm_time(updates, at_once, inf, each=1_000, start=1)
        assert pvm_time_in_full_rounds(updates, at_once, inf, each=1_000) == exact


def test_the_best_case_is_k_fold() -> None:
    each = update_time(4, remote=1)
    sweep = sweep_time(60, 4, remote=1)
    ratios = [sweep / pvm_time(60, p, 4, each) for p in range(1, 11)]
    assert ratios == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]


def test_an_interval_counts_once_it_is_longer_than_an_update_takes() -> None:
    def times(parallel: int) -> list[float]:
        intervals = range(0, 1601, 100)
        return [pvm_time_at_interval(40, parallel, 2, 800, interval) for interval in intervals]

    for parallel, turn in ((1, 8), (2, 4), (5, 4)):
        steps = [later - earlier for earlier, later in pairwise(times(parallel))]
        assert max(steps[:turn]) <= 100
        assert set(steps[turn:]) == {39 * 100}
    assert times(1)[8:] == times(5)[8:]


@pytest.mark.parametrize("at_once", [1, 2, 3, 5])
def test_at_an_interval_an_update_waits_for_its_slot_or_for_its_time(at_once: int) -> None:
    for interval in (0, 20, 50, 70, 100, 130):
        ends: list[float] = []
        for update in range(31):
            slot = ends[update - at_once] if update >= at_once else 0
            ends.append(max(slot, update * interval) + 100)
        assert pvm_time_at_interval(31, at_once, 9, 100, interval) == max(ends)


def test_200_updates_over_ten_sources_before_local_time_counts() -> None:
    assert concurrent_updates_max(10, cost_ratio=0.01, share=0.1) == pytest.approx(200)
    assert local_share(200, 10, cost_ratio=0.01) == pytest.approx(0.1)


@pytest.mark.parametrize(("updates", "sources"), SIZES)
def test_equation_16_is_the_ratio_of_the_two_terms_of_equation_8(
    updates: int, sources: int
) -> None:
    remote = sweep_time_with_local(updates, sources, 50, 0)
    local = sweep_time_with_local(updates, sources, 0, 3)
    assert local_share(updates, sources, 3 / 50) == pytest.approx(local / remote)
