"""The experiment's clock: figure 22 cell by cell, and the cost model wherever it is exact.

The algorithms are the production ones. What is checked besides time: every lookup is asked that the
model counts, and the view in the end is the recomputed one.
"""

from __future__ import annotations

from collections import Counter
from math import inf, prod

import pyarrow as pa
import pytest
from benchmarks.pvm_cost import (
    concurrent_updates,
    pvm_time,
    remote_messages,
    source_of,
    sweep_time,
    sweep_time_with_local,
    waiting_time,
)
from benchmarks.pvm_ticks import TickSetting, Timeline, run_timeline, tick_table

from viewkeeper.simulate.scenario import AlgorithmSubject
from viewkeeper.updates.backlog import Backlog
from viewkeeper.updates.source_protocol import Lookup

SWEEP = AlgorithmSubject("sweep")
ANY = 1_000
"""Lookups at a time, when the sources are not what limits."""


def pvm(parallel: int) -> AlgorithmSubject:
    return AlgorithmSubject("pvm", {"parallel": parallel})


FIGURE_22 = """
0  | DU1    | DU2    | DU3    | DU1    | DU2    | DU3    | DU1    | DU2    | DU3
1  |        | SQ1,2  |        | SQ2,1  | SQ1,2  |        | SQ2,1  | SQ1,2  |
2  |        | SQR1,2 |        | SQR2,1 | SQR1,2 |        | SQR2,1 | SQR1,2 |
3  |        |        | SQ1,3  |        |        | SQ1,3  |        | SQ3,2  | SQ1,3
4  |        |        | SQR1,3 |        |        | SQR1,3 |        | SQR3,2 | SQR1,3
5  | SQ2,1  |        |        |        | SQ3,2  | SQ2,3  | SQ3,1  |        | SQ2,3
6  | SQR2,1 |        |        |        | SQR3,2 | SQR2,3 | SQR3,1 |        | SQR2,3
7  |        |        | SQ2,3  | SQ3,1  |        |        |        |        |
8  |        |        | SQR2,3 | SQR3,1 |        |        |        |        |
9  |        | SQ3,2  |        |        |        |        |        |        |
10 |        | SQR3,2 |        |        |        |        |        |        |
11 | SQ3,1  |        |        |        |        |        |        |        |
12 | SQR3,1 |        |        |        |        |        |        |        |
"""


@pytest.mark.parametrize(
    ("subject", "column", "ticks"), [(SWEEP, 0, 12), (pvm(2), 1, 8), (pvm(3), 2, 6)]
)
def test_figure_22(subject: AlgorithmSubject, column: int, ticks: int) -> None:
    printed = [
        [cell.strip() for cell in line.split("|")[1:]] for line in FIGURE_22.strip().splitlines()
    ]
    line = run_timeline(TickSetting(sources=3, updates=3), subject)
    assert line.elapsed_ticks == ticks
    wanted = [cells[3 * column : 3 * column + 3] for cells in printed]
    assert tick_table(line) == wanted[: ticks + 1]
    assert not any(cell for cells in wanted[ticks + 1 :] for cell in cells)


SETTINGS = [
    (TickSetting(2, 8), 3),
    (TickSetting(4, 24), 4),
    (TickSetting(4, 24), 7),
    (TickSetting(3, 30, run=4), 5),
    (TickSetting(3, 12, interval=3, local=1, start=1), 4),
    (TickSetting(6, 18, at_once=2), 8),
]


@pytest.mark.parametrize(("setting", "parallel"), SETTINGS)
def test_the_view_is_the_recomputed_one(setting: TickSetting, parallel: int) -> None:
    places = range(1, setting.sources + 1)
    happened = [source_of(u, setting.sources, setting.run) for u in range(1, setting.updates + 1)]
    copies = Counter(happened)
    expected = {
        (value,) * setting.sources: prod(2 if value <= copies[place] else 1 for place in places)
        for value in range(1, max(copies.values()) + 1)
    }
    for subject in (SWEEP, pvm(parallel)):
        line = run_timeline(setting, subject)
        assert line.rows == expected
        assert len(line.served) == remote_messages(setting.updates, setting.sources)
        assert sorted(line.ended) == list(range(1, setting.updates + 1))


def test_the_updates_interfere(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = TickSetting(sources=3, updates=6)
    right = run_timeline(setting, pvm(3)).rows
    matching = Backlog.matching_changes

    def nothing(self: Backlog, lookup: Lookup) -> pa.Table:
        return matching(self, lookup).slice(0, 0)

    monkeypatch.setattr(Backlog, "matching_changes", nothing)
    assert run_timeline(setting, pvm(3)).rows != right


@pytest.mark.parametrize(("setting", "parallel"), SETTINGS)
def test_a_source_serves_no_more_at_a_time_than_it_can(setting: TickSetting, parallel: int) -> None:
    line = run_timeline(setting, pvm(parallel))
    for tick in range(line.elapsed_ticks):
        at_work = Counter(s.source for s in line.served if s.begin <= tick < s.end)
        assert all(count <= setting.at_once for count in at_work.values())
    assert {s.end - s.begin for s in line.served} == {setting.lookup}


@pytest.mark.parametrize(("setting", "parallel"), SETTINGS)
def test_no_more_view_changes_are_at_work_than_are_allowed(
    setting: TickSetting, parallel: int
) -> None:
    line = run_timeline(setting, pvm(parallel))
    at_work = [
        sum(line.begun[u] <= tick < line.ended[u] for u in line.begun)
        for tick in range(line.elapsed_ticks)
    ]
    assert max(at_work) <= parallel
    assert all(line.begun[u] >= tick for u, (_, tick) in line.happened.items())


def test_pvm_with_one_at_a_time_is_sweep() -> None:
    setting = TickSetting(sources=4, updates=16)
    assert run_timeline(setting, pvm(1)).served == run_timeline(setting, SWEEP).served


def test_a_slot_is_free_as_soon_as_its_own_view_change_ends() -> None:
    """PVM commits out of order; the pipelined SWEEP has to wait for the first in line."""
    setting = TickSetting(sources=4, updates=60)
    out_of_order = run_timeline(setting, pvm(4))
    in_order = run_timeline(setting, AlgorithmSubject("sweep", {"parallel": 4}))
    assert list(out_of_order.ended) != sorted(out_of_order.ended)
    assert list(in_order.ended) == sorted(in_order.ended)
    assert out_of_order.elapsed_ticks < in_order.elapsed_ticks


# -- where the cost model is exact -----------------------------------------------------------------


def sweep_line(updates: int, sources: int, local: int = 0) -> Timeline:
    return run_timeline(TickSetting(sources, updates, lookup=50, local=local), SWEEP)


@pytest.mark.parametrize(("updates", "sources"), [(8, 2), (12, 3), (24, 4)])
def test_sweep_takes_what_equations_8_and_11_say(updates: int, sources: int) -> None:
    assert sweep_line(updates, sources).elapsed_ticks == sweep_time(updates, sources, 50)
    with_local = sweep_line(updates, sources, local=3).elapsed_ticks
    assert with_local == sweep_time_with_local(updates, sources, 50, 3)


@pytest.mark.parametrize("subject", [SWEEP, pvm(5)], ids=["sweep", "pvm"])
def test_answers_contain_the_concurrent_updates_of_matrix_3(subject: AlgorithmSubject) -> None:
    line = run_timeline(TickSetting(sources=4, updates=60), subject)
    for served in line.served:
        expected = concurrent_updates(60, 4, served.update, served.source)
        assert served.concurrent == expected
    assert sum(served.concurrent for served in line.served) == 1_350


@pytest.mark.parametrize("parallel", [1, 2, 5, 8])
def test_with_sources_that_answer_at_once_updates_wait_as_in_equation_12(parallel: int) -> None:
    setting = TickSetting(sources=4, updates=30, at_once=ANY, lookup=20, start=2)
    line = run_timeline(setting, pvm(parallel))
    each = 3 * setting.lookup
    waits = {u: waiting_time(u, parallel, inf, each, setting.start) for u in range(1, 31)}
    assert line.begun == waits
    assert line.elapsed_ticks == pvm_time(30, parallel, inf, each, setting.start)


def test_starting_view_changes_costs_time() -> None:
    free, dear = (
        run_timeline(TickSetting(4, 24, start=start), pvm(8)).elapsed_ticks for start in (0, 5)
    )
    assert free < 23 * 5 < dear
