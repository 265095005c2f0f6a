"""Partitioning at scale, and what it saves: `python -m benchmarks.registry`.

View graphs in clusters, as departments have them: the bases and views of a cluster read each other,
and some views read over to another cluster. Measured is the time of one core from the parents of
every view to the groups; counted, by the cost model (`viewkeeper.partition.message_cost`), are the
messages for one update with one registry (RyCo), with one for each group (PyCo) and without any;
and, in fleets at work (`benchmarks.registry_traffic`), the messages that are sent and how long
updates take. Seconds belong to a machine; all else is the same everywhere, by the seed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from benchmarks import registry_plots
from benchmarks.registry_times import StepTimes, pyco_times, ryco_times, uncoordinated_times
from benchmarks.registry_traffic import Way, measure_traffic
from benchmarks.report import Aim, at_least, at_most
from viewkeeper.partition.message_cost import (
    even_updates,
    pyco_messages,
    ryco_messages,
    uncoordinated_messages,
)
from viewkeeper.partition.pyco import Partition, partition_graph
from viewkeeper.partition.view_graph import ViewGraph

ROOT = Path(__file__).resolve().parent.parent
SECONDS_MAX = 10
"""For 10,000 views, on one core."""
TIMES = StepTimes(transmission=1.0)
"""Update times in transmissions: what coordination adds, with no work in between."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a graph is, and how it hangs together."""

    bases: int
    views: int
    clusters: int
    parents_max: int = 3
    far: float = 0.01
    """The share of views that read one name of another cluster."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Found:
    """What one shape gives: seconds of one core, groups, and messages for one update."""

    shape: Shape
    seconds: float
    levels: int
    groups: int
    registries: int
    largest: int
    messages: dict[str, dict[str, float]]
    times: dict[str, float]
    """The mean time of a view after an update, in transmissions, by the model."""
    traffic: dict[str, Way]
    """What was sent, and how long it took, for some of the updates."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The shapes to be measured, and how often."""

    growing: tuple[Shape, ...]
    """More and more clusters of one size."""
    clustered: tuple[Shape, ...]
    """One size in more and more clusters."""
    repetitions: int
    updates: int
    """How many updates the fleets have at most."""


FULL = Sizes(
    growing=tuple(Shape(10 * n, 100 * n, n) for n in (1, 2, 5, 10, 20, 50, 100)),
    clustered=tuple(Shape(1_000, 10_000, n) for n in (1, 5, 10, 20, 50, 100, 250, 1_000)),
    repetitions=5,
    updates=50,
)
QUICK = Sizes(FULL.growing[:4], tuple(Shape(100, 1_000, n) for n in (1, 10, 100)), 3, 20)
TINY = Sizes(FULL.growing[:2], tuple(Shape(20, 100, n) for n in (1, 5)), 1, 5)


def make(shape: Shape) -> dict[str, tuple[str, ...]]:
    """The parents of every view; a view reads names of its own cluster that were there before."""
    random = Random(shape.seed)
    names = [
        [f"b{cluster}_{n}" for n in range(shape.bases // shape.clusters)]
        for cluster in range(shape.clusters)
    ]
    parents: dict[str, tuple[str, ...]] = {}
    for n in range(shape.views // shape.clusters):
        for cluster, known in enumerate(names):
            count = min(random.randint(1, shape.parents_max), len(known))
            read = random.sample(known, count)
            if n < shape.bases // shape.clusters:
                # So that every base is read.
                read[0] = known[n]
            if shape.clusters > 1 and random.random() < shape.far:
                other = (cluster + random.randrange(1, shape.clusters)) % shape.clusters
                read.append(random.choice(names[other]))
            parents[f"v{cluster}_{n}"] = tuple(dict.fromkeys(read))
            known.append(f"v{cluster}_{n}")
    return parents


def measure(shape: Shape, sizes: Sizes) -> Found:
    """Partition one graph several times, and count what its groups cost."""
    parents = make(shape)
    seconds = []
    for _ in range(sizes.repetitions):
        begin = time.process_time()
        found = partition_graph(ViewGraph(parents))
        seconds.append(time.process_time() - begin)
    graph, updates = found.graph, even_updates(found.graph)
    ways = {
        "ryco": ryco_messages(graph, updates),
        "pyco": pyco_messages(found, updates),
        "none": uncoordinated_messages(graph, updates),
    }
    per_update = {name: way.per_update(len(graph.bases)) for name, way in ways.items()}
    return Found(
        shape,
        statistics.median(seconds),
        max(graph.levels.values()),
        len(found.groups),
        sum(group.needs_registry for group in found.groups),
        max(len(group.views) for group in found.groups),
        {name: asdict(way) | {"total": way.total} for name, way in per_update.items()},
        _times(found),
        measure_traffic(found, sizes.updates, shape.seed),
    )


def _times(found: Partition) -> dict[str, float]:
    graph = found.graph
    ways = {
        "ryco": ryco_times(graph, TIMES),
        "pyco": pyco_times(found, TIMES),
        "none": uncoordinated_times(graph, TIMES),
    }
    return {name: statistics.fmean(way.values()) for name, way in ways.items()}


HEADER = (
    f"{'bases':>6} {'views':>7} {'clusters':>8} {'levels':>6} {'seconds':>8} {'groups':>7}"
    f" {'registries':>10} {'largest':>8} | messages per update: {'RyCo':>9} {'PyCo':>9} {'none':>9}"
    f" | transmissions: {'RyCo':>5} {'PyCo':>5} {'none':>5}"
    f" | measured delay: {'RyCo':>5} {'PyCo':>5} {'none':>5}"
)


def line(found: Found) -> str:
    """One row of the table."""
    shape = found.shape
    totals = " ".join(f"{found.messages[way]['total']:9,.0f}" for way in registry_plots.WAYS)
    times = " ".join(f"{found.times[way]:5.1f}" for way in registry_plots.WAYS)
    delays = " ".join(f"{found.traffic[way].delay_mean:5.1f}" for way in registry_plots.WAYS)
    return (
        f"{shape.bases:>6,} {shape.views:>7,} {shape.clusters:>8,} {found.levels:>6}"
        f" {found.seconds:8.3f} {found.groups:>7,} {found.registries:>10,} {found.largest:>8,}"
        f" | {'':20} {totals} | {'':14} {times} | {'':15} {delays}"
    )


def aims(found: Sequence[Found]) -> list[Aim]:
    """The aims that the measured sizes allow to judge."""
    slowest = max((each.seconds for each in found if each.shape.views == 10_000), default=None)
    judged = (
        []
        if slowest is None
        else [at_most("seconds to partition 10,000 views, on one core", slowest, SECONDS_MAX)]
    )
    worst = max(
        each.messages["pyco"]["ordered"] / each.messages["ryco"]["ordered"] for each in found
    )
    equal = [way.equal for each in found for way in each.traffic.values()]
    return [
        *judged,
        at_most("messages from registries, PyCo against RyCo", worst, 1),
        at_least("share of fleets whose messages are the model's", sum(equal) / len(equal), 1),
    ]


def section(sizes: Sizes, out: Path) -> None:
    """Measure, print, write and draw."""
    out.mkdir(parents=True, exist_ok=True)
    print(HEADER)
    growing, clustered = (
        [_told(measure(shape, sizes)) for shape in shapes]
        for shapes in (sizes.growing, sizes.clustered)
    )
    judged = aims([*growing, *clustered])
    for aim in judged:
        print(aim)
    body = {
        "load": os.getloadavg()[0],
        "growing": [asdict(each) for each in growing],
        "clustered": [asdict(each) for each in clustered],
        "aims": [asdict(aim) for aim in judged],
    }
    (out / "registry.json").write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    registry_plots.draw(out, growing, clustered)
    print(f"written to {out}")


def _told(found: Found) -> Found:
    print(line(found), flush=True)
    return found


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.registry", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    options = parser.parse_args(arguments)
    section(QUICK if options.quick else FULL, options.out)


if __name__ == "__main__":
    main(sys.argv[1:])
