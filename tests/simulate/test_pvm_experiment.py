"""What the PVM paper found in its experiment, found again in the simulated one.

The curves are those that are drawn for the documentation. Times are simulated, so every run gives
the same ones; what is asserted are still shapes and ratios, which do not depend on how long a
lookup takes.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks import pvm_plots
from benchmarks.pvm_curves import EXPERIMENTS, LOOKUP_MS, SWEEP, Curve, Experiment, pvm
from benchmarks.pvm_experiment import FIGURES, findings, speed_ups, turning_point
from benchmarks.pvm_ticks import TickSetting, run_timeline


@pytest.fixture(scope="module")
def found() -> dict[int, Experiment]:
    """All experiments, by the number of their figure."""
    return {experiment.number: experiment for experiment in (make() for make in EXPERIMENTS)}


def test_the_settings_are_the_papers(found: dict[int, Experiment]) -> None:
    xs = {number: experiment.curves[0].xs for number, experiment in found.items()}
    assert xs[21] == xs[23] == xs[24] == tuple(range(1, 11))
    assert (xs[25][0], xs[25][-1], xs[26][0], xs[26][-1]) == (4, 40, 0, 1600)
    lookups = {
        number: round(experiment.curves[0].simulated[0] * 1000 / LOOKUP_MS)
        for number, experiment in found.items()
        if number != 23
    }
    assert lookups == {21: 60 * 3, 24: 30 * 2, 25: 8, 26: 40}
    one_at_a_time = [round(curve.at(1) * 1000 / LOOKUP_MS) for curve in found[23].curves]
    assert one_at_a_time == [10 * m * (m - 1) for m in range(2, 7)]


def test_figure_21_speed_up_and_turning_point(found: dict[int, Experiment]) -> None:
    curve = found[21].curve("PVM")
    ups = speed_ups(curve)
    assert max(ups.values()) >= 3.3
    assert max(ups.values()) <= 4, "four sources, one lookup at a time each"
    until_m = [ups[p] for p in (1, 2, 3, 4)]
    assert until_m == sorted(until_m)
    assert all(later - earlier > 0.4 for earlier, later in pairwise(until_m))
    beyond = [curve.at(p) for p in range(5, 11)]
    assert max(beyond) <= 1.05 * min(beyond), "beyond p = m + 1 there is nothing to gain"
    assert curve.at(1) - curve.at(4) >= 0.85 * (curve.at(1) - min(beyond))


def test_figure_21_turns_at_m_once_view_changes_do_not_go_in_step(
    found: dict[int, Experiment],
) -> None:
    ups = speed_ups(found[21].curves[2])
    assert ups[4] >= 3.3
    assert max(ups.values()) <= 1.05 * ups[4]


def test_figure_21_one_at_a_time_is_sweep(found: dict[int, Experiment]) -> None:
    sweep = found[21].curve("SWEEP")
    assert set(sweep.simulated) == {found[21].curve("PVM").at(1)}
    assert sweep.simulated == sweep.model


@pytest.mark.parametrize("m", range(2, 7))
def test_figure_23_every_curve_flattens_near_m(found: dict[int, Experiment], m: int) -> None:
    curve = found[23].curve(f"m = {m}")
    first, best = curve.at(1), min(curve.simulated)
    assert first - curve.at(m) >= 0.85 * (first - best)
    beyond = [curve.at(p) for p in range((3 * m + 1) // 2, 11)]
    assert max(beyond) <= 1.05 * min(beyond)
    assert 0.9 * m <= first / best <= m


def test_figure_23_blocking_costs_most_near_m_and_the_model_is_never_beaten(
    found: dict[int, Experiment],
) -> None:
    for curve in found[23].curves:
        costs = [s / m for s, m in zip(curve.simulated, curve.model, strict=True)]
        assert min(costs) >= 1
        assert max(costs) <= 1.6
        assert costs[-1] <= 1.15


def test_figure_24_runs_from_one_source_cost_a_little(found: dict[int, Experiment]) -> None:
    sweep, curve = found[24].curve("SWEEP"), found[24].curve("PVM")
    assert list(curve.simulated) == sorted(curve.simulated)
    assert curve.at(1) < curve.at(6)
    assert len({curve.at(c) for c in range(6, 11)}) == 1
    assert len(set(sweep.simulated)) == 1
    assert all(2 <= sweep.at(c) / curve.at(c) <= 3 for c in curve.xs)


def test_figure_25_sweep_takes_twice_as_long(found: dict[int, Experiment]) -> None:
    sweep, curve = found[25].curve("SWEEP"), found[25].curve("PVM")
    assert all(sweep.at(n) / curve.at(n) == pytest.approx(2, rel=0.05) for n in curve.xs)
    assert all(curve.at(n) / n == pytest.approx(curve.at(4) / 4, rel=0.05) for n in curve.xs)


def test_figure_26_flat_then_linear_and_pvm_turns_twice_as_early(
    found: dict[int, Experiment],
) -> None:
    sweep, curve = found[26].curve("SWEEP"), found[26].curve("PVM")
    assert turning_point(sweep) == LOOKUP_MS
    assert turning_point(sweep) / turning_point(curve) == pytest.approx(2, rel=0.1)
    for line in (sweep, curve):
        late = [x for x in line.xs if x >= turning_point(line)]
        slopes = [(line.at(b) - line.at(a)) / (b - a) * 1000 for a, b in pairwise(late)]
        assert slopes == pytest.approx([39] * len(slopes)), "n - 1 intervals"
    assert all(sweep.at(x) == curve.at(x) for x in sweep.xs if x >= LOOKUP_MS)


def test_the_model_is_exact_where_nothing_blocks(found: dict[int, Experiment]) -> None:
    curves = [*found[25].curves, *found[26].curves, found[23].curve("m = 2")]
    for curve in curves:
        assert curve.simulated == pytest.approx(curve.model)


# -- what is written about it ----------------------------------------------------------------------


def test_the_page_says_what_is_found(found: dict[int, Experiment]) -> None:
    page = re.sub(r"\s+", " ", (FIGURES.parent / "pvm.md").read_text(encoding="utf-8"))
    for sentence in findings(list(found.values())):
        assert sentence in page


def test_the_page_shows_every_figure(found: dict[int, Experiment]) -> None:
    page = (FIGURES.parent / "pvm.md").read_text(encoding="utf-8")
    for name in ("ticks", *(experiment.name for experiment in found.values())):
        assert f"(figures/pvm-{name}.svg)" in page
        assert (FIGURES / f"pvm-{name}.svg").is_file()


def test_figures_are_the_same_every_time_and_have_their_text_as_text(tmp_path: Path) -> None:
    curve = Curve("PVM", (1, 2), (2.0, 1.0), (2.0, 1.5))
    experiment = Experiment(21, "x", "a title", "what varies", (curve,))
    lines = [run_timeline(TickSetting(3, 3), subject) for subject in (SWEEP, pvm(2))]
    for name in ("one", "other"):
        pvm_plots.draw_curves(tmp_path / f"{name}.svg", experiment)
        pvm_plots.draw_ticks(tmp_path / f"{name}-ticks.svg", lines)
    one = (tmp_path / "one.svg").read_text()
    assert one == (tmp_path / "other.svg").read_text()
    assert ">what varies</text>" in one
    ticks = (tmp_path / "one-ticks.svg").read_text()
    assert ticks == (tmp_path / "other-ticks.svg").read_text()
    assert ">SWEEP: 12 ticks</text>" in ticks
