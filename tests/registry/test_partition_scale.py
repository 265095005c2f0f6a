"""The benchmark of partitioning runs, on tiny graphs, and what it counts is what the model says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import registry
from benchmarks.registry import TINY, Shape, aims, make, measure

from tests.registry.graphs import as_defined, figure_12
from viewkeeper.partition.pyco import partition_graph
from viewkeeper.partition.view_graph import ViewGraph


def test_a_tiny_run_measures_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    registry.section(TINY, tmp_path)
    written = json.loads((tmp_path / "registry.json").read_text())
    assert [each["shape"]["views"] for each in written["growing"]] == [100, 200]
    for each in (*written["growing"], *written["clustered"]):
        messages = each["messages"]
        assert messages["none"]["total"] < messages["pyco"]["total"] <= messages["ryco"]["total"]
        assert messages["ryco"]["ordered"] == each["shape"]["views"]
        assert each["times"]["ryco"] == pytest.approx(each["times"]["none"] + 1)
        assert all(way["equal"] for way in each["traffic"].values())
    for name in ("time", "messages", "delays"):
        assert "views" in (tmp_path / f"registry-{name}.svg").read_text()
    assert "PyCo against RyCo" in capsys.readouterr().out


@pytest.mark.parametrize("clusters", [1, 4, 12])
def test_clusters_are_partitioned_like_any_graph(clusters: int) -> None:
    graph = ViewGraph(make(Shape(24, 120, clusters, far=0.05)))
    found = {frozenset(group.views) for group in partition_graph(graph).groups}
    assert found == figure_12(graph, as_defined)
    assert (len(graph.bases), len(graph.views)) == (24, 120)


def test_the_limit_is_for_ten_thousand_views() -> None:
    found = measure(Shape(10, 20, 2), TINY)
    assert len(aims([found])) == 2
    slow = replace(found, shape=Shape(1_000, 10_000, 1), seconds=10.5)
    assert [aim.holds for aim in aims([found, slow])] == [False, True, True]
