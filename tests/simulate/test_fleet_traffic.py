"""Messages that are counted as they are sent, against the cost model; delays against its levels.

The model is section 5 of Ding, Zhang, Rundensteiner (2000) (`viewkeeper.partition.message_cost`);
the counts come from mediators and registries at work. They must be equal, for even and uneven
updates, however much the updates overlap.
"""

from __future__ import annotations

from random import Random

import pytest
from benchmarks.fleet_traffic import Traffic, pyco_traffic, ryco_traffic, uncoordinated_traffic
from benchmarks.registry_times import StepTimes, pyco_times, ryco_times, uncoordinated_times
from hypothesis import given
from hypothesis import strategies as st

from tests.registry.graphs import (
    FIGURE_10,
    KNOT,
    SHORTCUT,
    dependents_of,
    random_graph,
    view_graphs,
)
from viewkeeper.partition.message_cost import (
    pyco_messages,
    ryco_messages,
    uncoordinated_messages,
)
from viewkeeper.partition.pyco import partition_graph
from viewkeeper.partition.view_graph import ViewGraph


def random_updates(random: Random, graph: ViewGraph, count: int) -> list[tuple[float, str]]:
    """Updates at random times, most of them while others are under way."""
    return sorted((random.uniform(0, 10), random.choice(graph.bases)) for _ in range(count))


def check(graph: ViewGraph, updates: list[tuple[float, str]], change: float) -> None:
    """All three ways cost what the model says, and every view gets every update."""
    found = partition_graph(graph)
    counts = {base: sum(each == base for _, each in updates) for base in graph.bases}
    reached = sum(counts[base] for view in graph.views for base in graph.bases_of(view))
    for traffic, model in (
        (ryco_traffic(graph, change), ryco_messages(graph, counts)),
        (pyco_traffic(found, change), pyco_messages(found, counts)),
        (uncoordinated_traffic(graph, change), uncoordinated_messages(graph, counts)),
    ):
        traffic.run_updates(updates)
        assert traffic.message_sums == model
        assert len(traffic.delays) == reached


@pytest.mark.parametrize(
    "graph", [FIGURE_10, SHORTCUT, KNOT], ids=["figure 10", "shortcut", "knot"]
)
@pytest.mark.parametrize("change", [0.0, 0.7])
def test_known_graphs(graph: ViewGraph, change: float) -> None:
    check(graph, [(0.5 * n, base) for n, base in enumerate(graph.bases * 3)], change)


@given(view_graphs(), st.integers(0, 2**32))
def test_random_graphs(graph: ViewGraph, seed: int) -> None:
    random = Random(seed)
    check(graph, random_updates(random, graph, random.randint(1, 12)), random.choice([0.0, 0.3, 2]))


def test_a_larger_graph() -> None:
    random = Random(3)
    graph = random_graph(random, 10, 120, 3)
    check(graph, random_updates(random, graph, 40), 0.2)


def lone(traffic: Traffic, base: str) -> float:
    """The longest delay of one update when nothing else happens."""
    traffic.run_updates([(0.0, base)])
    return max(traffic.delays)


@pytest.mark.parametrize("base", FIGURE_10.bases)
def test_an_undisturbed_update_takes_what_the_levels_say(base: str) -> None:
    """Exactly, with one registry or none. With groups, levels are those of the worst way there."""
    found, times = partition_graph(FIGURE_10), StepTimes(transmission=1.0)
    reached = dependents_of(FIGURE_10, base)[1:]
    level = {view: _level_from(base, view) for view in reached}
    assert lone(uncoordinated_traffic(FIGURE_10), base) == max(level.values())
    assert lone(ryco_traffic(FIGURE_10), base) == 1 + max(level.values())
    assert max(level.values()) <= max(uncoordinated_times(FIGURE_10, times)[v] for v in reached)
    assert 1 + max(level.values()) <= max(ryco_times(FIGURE_10, times)[v] for v in reached)
    most = max(pyco_times(found, times)[view] for view in reached)
    assert lone(pyco_traffic(found), base) <= most


def _level_from(base: str, view: str) -> int:
    """The longest way from a base to a view."""
    if view == base:
        return 0
    behind = [p for p in FIGURE_10.parents[view] if base in FIGURE_10.bases_of(p)]
    return 1 + max(_level_from(base, parent) for parent in behind)
