"""How long an update takes to reach the views, by the model: with one registry, groups, or none.

Ding, Zhang, Rundensteiner, Scalable Maintenance in Distributed Data Warehousing Environment (2000),
section 5: transmissions, and at every level the view's computation and its wait.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.partition.message_cost import group_levels
from viewkeeper.partition.pyco import Partition
from viewkeeper.partition.view_graph import ViewGraph


@dataclass(frozen=True, slots=True)
class StepTimes:
    """How long things take; of what differs by level, the last value is for all higher ones."""

    transmission: float
    """From any site to any other (t_t)."""
    change: tuple[float, ...] = (0.0,)
    """Computing a view change at level 1, 2, ... (t_v)."""
    wait: tuple[float, ...] = (0.0,)
    """From a delta's arrival to its turn, at level 1, 2, ... (t_w)."""


def uncoordinated_times(graph: ViewGraph, times: StepTimes) -> dict[str, float]:
    """From an update at a base to every view, without registry: one transmission for each level."""
    return {view: _view_time(graph.levels[view], graph.levels[view], times) for view in graph.views}


def ryco_times(graph: ViewGraph, times: StepTimes) -> dict[str, float]:
    """The same with one registry: one transmission more, since the id passes the registry."""
    return {
        view: _view_time(graph.levels[view], graph.levels[view] + 1, times) for view in graph.views
    }


def pyco_times(found: Partition, times: StepTimes) -> dict[str, float]:
    """The same with groups: one transmission more for each level of the view's group."""
    above, levels = group_levels(found), found.graph.levels
    return {
        view: _view_time(levels[view], levels[view] + 1 + above[group.name], times)
        for group in found.groups
        for view in group.views
    }


def _view_time(level: int, transmissions: int, times: StepTimes) -> float:
    """T_i: transmissions, and the change and the wait at every level up to this one."""
    return times.transmission * transmissions + sum(
        _value_at(times.change, below) + _value_at(times.wait, below)
        for below in range(1, level + 1)
    )


def _value_at(values: tuple[float, ...], level: int) -> float:
    return values[min(level, len(values)) - 1]
