"""The benchmarks run, on a tiny world: so that they cannot rot unseen.

Nothing here is about speed. What is checked is that the measuring itself works: both ways are
measured, their phases add up, the counts that the aims speak of are right, and the results are
written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import aims as aims_page
from benchmarks import backlog, evolution, lanes, latency, sources
from benchmarks.evolution_places import PLACES
from benchmarks.maintenance import Bench, prepared
from benchmarks.peers.installation import CONTESTANTS, Contestant
from benchmarks.peers.race import run_contestant, table_of
from benchmarks.probe import PHASES
from benchmarks.report import Aim, aims, at_least, at_most
from benchmarks.run import SECTIONS, TINY, measure
from benchmarks.source_capture import Captured
from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Bench]:
    with prepared(tmp_path_factory.mktemp("bench") / "world", TINY.rows, spark) as bench:
        bench.load()
        yield bench


def test_a_tiny_run_measures_both_ways(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(bench, TINY, tmp_path)
    written = json.loads((tmp_path / "maintenance.json").read_text())
    sizes = [(figure["updates"], figure["way"]) for figure in written["batches"]]
    assert sizes == [(n, way) for n in TINY.repetitions for way in ("inline", "spark")]
    for figure in written["batches"]:
        assert figure["jobs"] == (figure["way"] == "spark")
        assert 0 < figure["lookups_per_part"] <= 6
        assert set(figure["phases"]) == set(PHASES)
        assert sum(figure["phases"].values()) == pytest.approx(figure["seconds"], rel=1e-6)
    assert written["recompute_seconds"] > 0
    assert (tmp_path / "maintenance.png").stat().st_size > 0
    assert "Spark jobs per batch" in capsys.readouterr().out


def test_a_tiny_backlog_is_maintained(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backlog.measure(bench, 300, tmp_path) > 0
    assert json.loads((tmp_path / "backlog.json").read_text())["changes"] == 300
    assert "maintained: 300 changes" in capsys.readouterr().out


def test_a_tiny_experiment_runs_every_algorithm(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run compares its view with SQLite's answer; here only the counts are asserted."""
    measured = latency.measure(tmp_path / "chain", {8: (1, 3)}, 50, 0.0, spark)
    lookups = {found.label: found.lookups for found in measured}
    assert lookups["sweep"] == lookups["pvm p=1"] == lookups["pvm p=3"] == 8 * 3
    assert lookups["batch_sweep"] <= 6
    assert lookups["nested_sweep"] < lookups["sweep"]
    assert [aim.holds for aim in latency.aims(measured)][1:] == [True]
    assert "nested_sweep" in capsys.readouterr().out


def test_a_tiny_run_measures_a_cheap_view_beside_an_expensive_one(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """In each way all views are verified by the benchmark itself."""
    figures = {figure.way: figure for figure in lanes.measure(tmp_path, 0.3, 100, spark)}
    assert {*figures} == {*lanes.WAYS}
    assert all(figure.batches > 0 for figure in figures.values())
    assert not figures["alone"].expensive_batches
    assert all(figures[way].expensive_batches > 0 for way in ("lanes", "together"))
    assert capsys.readouterr().out.count("\n") == len(figures)


def test_a_tiny_run_measures_every_kind_of_source(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each measurement counts the rows that it got; here the shape of what is written counts."""
    sources.section(tmp_path / "world", sources.TINY, tmp_path, spark)
    written = json.loads((tmp_path / "sources.json").read_text())
    kinds = {"sqlite", "postgres", "postgres, triggers", "mariadb", "files, parquet", "files, csv"}
    kinds |= {"delta_lake", "delta_lake, no feed"}
    assert {each["kind"] for each in written["capture"]} == kinds
    assert {each["kind"] for each in written["lookups"]} == kinds
    for each in written["capture"]:
        assert each["signed_rows"] == 1.5 * each["changes"]
        assert each["changes_per_second"] > 0
    for each in written["lookups"]:
        assert each["ratio"] == each["first"] / min(each["raw"].values())
    for each in written["costs"]:
        assert each["changes"] == 2 * each["updates"]
        updated = "shop" if "PostgreSQL" in each["updated"] else "crm"
        cost, other = (
            each["sources"][updated],
            each["sources"][{"shop": "crm", "crm": "shop"}[updated]],
        )
        assert cost["lookups"] == 0 < other["lookups"] <= other["queries"]
        assert cost["traffic"]["received"]["stream"] > 0
        # PostgreSQL answers on a connection that is kept, MariaDB on one that is opened.
        answered = other["traffic"]["received"]
        assert answered["standing"] + answered["opened"] > 0
        assert cost["traffic"]["received"]["opened"] == 0
    assert "queries/upd" in capsys.readouterr().out


def test_a_tiny_run_does_the_three_experiments_of_dyno(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run compares its view with recomputation, and each break is counted there."""
    evolution.section(tmp_path / "world", evolution.TINY, tmp_path, spark)
    written = json.loads((tmp_path / "evolution.json").read_text())
    measured = [(each["algorithm"], each["updates"]) for each in written["overheads"]]
    assert measured == [("batch_sweep", 4), ("sweep", 3)]
    for each in written["overheads"]:
        labels = {place.label for place in PLACES[each["kind"]]}
        always = {"scan of what waits", "which table it is, in a snapshot"}
        assert always <= each["places"].keys() <= labels
        assert 0 < each["share"] < 1
    aborted = {
        (each["pair"], each["setting"]): (each["aborted_batches"], each["aborted_adaptations"])
        for each in written["costs"]
    }
    assert aborted == {("DU/SC", "broken"): (1, 0), ("SC/SC", "broken"): (0, 1)}
    assert [each["detection"] for each in written["mixed"]] == ["pessimistic", "optimistic"]
    assert {each["schema_changes"] for each in written["mixed"]} == {1}
    for name in ("overhead", "broken", "mixed"):
        assert "As in figure" in (tmp_path / f"evolution-{name}.svg").read_text()
    assert "share of detection" in capsys.readouterr().out


@pytest.mark.parametrize("kind", PLACES)
def test_the_places_of_detection_are_there(kind: str) -> None:
    for place in PLACES[kind]:
        assert callable(getattr(place.owner, place.name)), place.label


def test_capture_is_judged_where_enough_was_captured() -> None:
    few, slow, fast = (
        Captured("postgres", changes, 2, 1, 0, seconds, 0.0, 0.0)
        for changes, seconds in ((400, 1.0), (20_000, 2.0), (200_000, 2.0))
    )
    assert [aim.holds for aim in sources.Figures([few, slow, fast], [], []).aims()] == [False, True]


def test_an_aim_is_judged_by_its_limit() -> None:
    assert at_most("a", 4, 4).holds
    assert not at_most("a", 4.1, 4).holds
    assert str(at_least("a", 9, 10)) == "MISSED  a: 9 (at least 10)"
    assert aims([], None) == list[Aim]()


def test_a_contestant_of_the_race_is_measured_and_judged() -> None:
    sizes = {1: 1, 20: 1}
    result = run_contestant(CONTESTANTS[0], 200, sizes)
    assert (result.error, result.is_right) == ("", True)
    assert [len(result.seconds[size]) for size in sizes] == [1, 1]
    assert "| yes |" in table_of([result], sizes)


def test_a_contestant_that_cannot_run_says_why() -> None:
    missing = Contestant("missing", "no_such_program")
    result = run_contestant(missing, 200, {1: 1})
    assert "no_such_program" in result.error
    assert "did not run" in table_of([result], {1: 1})


def test_an_aim_is_a_line_of_the_page() -> None:
    figures = [
        aims_page.AimedFigure("idle", "57 ms", 1.84, 3, "ms"),
        aims_page.AimedFigure("often", "", 4.8, 2, "times", "p95 63 ms"),
        aims_page.AimedFigure("two workers", "", 1.75, 1.7, "times", is_least=True),
    ]
    assert [figure.holds for figure in figures] == [True, False, True]
    assert [str(figure) for figure in figures] == [
        "| idle | 57 ms | at most 3 ms | 1.84 ms | yes |",
        "| often |  | at most 2 times | 4.8 times (p95 63 ms) | **no** |",
        "| two workers |  | at least 1.7 times | 1.75 times | yes |",
    ]


def test_every_part_of_the_aims_is_a_benchmark() -> None:
    """What is run as a benchmark of its own has that name."""
    apart = {"small_batches", "reading", "loads", "cluster"}
    assert apart <= {*aims_page.PARTS} & {*SECTIONS}
