"""Messages and delays of whole fleets, measured: one warehouse per view, mediators at work.

Some bases commit one update each, at random times, while those before are still under way. Messages
are counted as they are sent (`benchmarks.fleet_traffic`) and must be what the cost model
says, exactly. Delays are from a base's commit to each view's, in transmissions; a view change takes
a tenth of one.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from random import Random

from benchmarks.fleet_traffic import Traffic, pyco_traffic, ryco_traffic, uncoordinated_traffic
from viewkeeper.partition.message_cost import (
    MessageCounts,
    pyco_messages,
    ryco_messages,
    uncoordinated_messages,
)
from viewkeeper.partition.pyco import Partition

CHANGE = 0.1
"""The time of a view change, in transmissions."""


@dataclass(frozen=True, slots=True)
class Way:
    """What one way of coordination costs: messages per update, and delays in transmissions."""

    per_update: float
    equal: bool
    """Whether every kind of message was sent exactly as often as the model says."""
    delay_mean: float
    delay_p95: float


def measure_traffic(found: Partition, count: int, seed: int) -> dict[str, Way]:
    """Run one fleet three times: with one registry, with groups, without any."""
    graph, random = found.graph, Random(seed)
    chosen = random.sample(graph.bases, min(count, len(graph.bases)))
    updates = sorted((random.uniform(0, len(chosen)), base) for base in chosen)
    counts = dict.fromkeys(chosen, 1)
    return {
        "ryco": _run(ryco_traffic(graph, CHANGE), updates, ryco_messages(graph, counts)),
        "pyco": _run(pyco_traffic(found, CHANGE), updates, pyco_messages(found, counts)),
        "none": _run(
            uncoordinated_traffic(graph, CHANGE), updates, uncoordinated_messages(graph, counts)
        ),
    }


def _run(traffic: Traffic, updates: list[tuple[float, str]], model: MessageCounts) -> Way:
    traffic.run_updates(updates)
    delays = sorted(traffic.delays)
    return Way(
        traffic.message_sums.total / len(updates),
        traffic.message_sums == model,
        statistics.fmean(delays),
        delays[int(0.95 * (len(delays) - 1))],
    )
