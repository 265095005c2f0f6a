"""How long a lookup takes: N random keys of a table of many rows, against the raw ways to ask.

A round draws keys, opens a snapshot, asks twice in it (the first answer has what is opened, read or
planned only once), and asks by every raw way, whose connections are open. Rounds begin by turns
with the lookup and with the raw ways, and medians are compared. All answers must have the same
rows. What a maintained batch pays is opening and the first answer; the aim is judged by the first
answer too.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from benchmarks import report
from benchmarks.source_ways import ASKED, Way, ways
from benchmarks.source_worlds import COLUMNS, NAME, TABLE, SourceWorld
from viewkeeper.updates.source_protocol import Answer, Lookup, Source
from viewkeeper.view.definition import Relation

JUDGED_KEYS = 10_000
JUDGED_KINDS = ("sqlite", "postgres", "postgres, triggers", "mariadb")
LIMIT = 2.0
_STEPS = ("opening", "first", "again")


@dataclass(frozen=True, slots=True)
class LookedUp:
    """One kind and one number of keys; seconds are medians over the rounds."""

    kind: str
    keys: int
    rows: int
    """Rows of the table."""
    rounds: int
    opening: float
    """Seconds of preparing snapshots and opening one."""
    first: float
    """Seconds of the first answer in it."""
    again: float
    """Seconds of another answer in it."""
    raw: Mapping[str, float]
    load: float

    @property
    def fastest(self) -> str:
        return min(self.raw, key=lambda way: self.raw[way])

    @property
    def ratio(self) -> float:
        """The first answer against the fastest raw way."""
        return self.first / self.raw[self.fastest]


def measure(world: SourceWorld, keys: Mapping[int, int], seed: int = 1) -> list[LookedUp]:
    """Lookups of as many keys, in as many rounds."""
    draw = random.Random(seed)
    found = []
    with closing(world.open()) as source, ways(world) as raw:
        after = source.follow_tables({TABLE: COLUMNS})
        for count, rounds in keys.items():
            times: dict[str, list[float]] = defaultdict(list)
            # The round before the first fills the caches.
            for number in range(-1, rounds):
                ids = pa.array(draw.sample(range(1, world.rows + 1), count), pa.int64())
                took = _round(source, after, raw, ids, number % 2 == 0)
                for name, seconds in took.items() if number >= 0 else ():
                    times[name].append(seconds)
            found.append(_figure(world, count, times))
    return found


def _figure(world: SourceWorld, keys: int, times: Mapping[str, list[float]]) -> LookedUp:
    rounds = len(times["first"])
    medians = {name: statistics.median(took) for name, took in times.items()}
    ours = {name: medians.pop(name) for name in _STEPS}
    return LookedUp(
        kind=world.label,
        keys=keys,
        rows=world.rows,
        rounds=rounds,
        raw=medians,
        load=os.getloadavg()[0],
        **ours,
    )


def _round(
    source: Source, after: int, raw: Mapping[str, Way], ids: Any, ours_first: bool
) -> dict[str, float]:
    """Seconds by what was done."""
    took = _ask(source, after, ids) if ours_first else {}
    for name, way in raw.items():
        started = time.perf_counter()
        rows = way(ids)
        took[name] = time.perf_counter() - started
        assert rows.num_rows == len(ids), f"{name}: {rows.num_rows} rows of {len(ids)} keys"
    return took if ours_first else took | _ask(source, after, ids)


def _ask(source: Source, after: int, ids: Any) -> dict[str, float]:
    keys = pa.table({"id": ids})
    lookup = Lookup(0, Relation(NAME, TABLE), ASKED, ("id",), (False,), keys)
    clock = [time.perf_counter()]
    with source.prepare_snapshots(after, {TABLE: ASKED}) as opener, closing(opener()) as snapshot:
        clock.append(time.perf_counter())
        for _ in range(2):
            _check(snapshot.answer_lookup(lookup, after), ids)
            clock.append(time.perf_counter())
    return {step: b - a for step, (a, b) in zip(_STEPS, pairwise(clock), strict=True)}


def _check(answer: Answer, ids: Any) -> None:
    found = answer.rows.num_rows
    assert found >= len(ids), f"{found} rows of {len(ids)} keys"
    assert not answer.tail.num_rows, "nothing was written meanwhile"


def aims(found: list[LookedUp]) -> list[report.Aim]:
    """A lookup of many keys costs little more than the fastest raw way."""
    return [
        report.at_most(
            f"lookup of {each.keys:,} keys against {each.fastest}, {each.kind}", each.ratio, LIMIT
        )
        for each in found
        if each.keys == JUDGED_KEYS and each.kind in JUDGED_KINDS
    ]


HEADER = (
    f"{'kind':<20}{'keys':>8}{'opening ms':>12}{'first ms':>10}{'again ms':>10}"
    f"{'raw ms':>10}{'ratio':>7}{'load':>6}  fastest raw way"
)


def line(found: LookedUp) -> str:
    raw = 1000 * found.raw[found.fastest]
    return (
        f"{found.kind:<20}{found.keys:>8,}{1000 * found.opening:>12.1f}{1000 * found.first:>10.1f}"
        f"{1000 * found.again:>10.1f}{raw:>10.1f}{found.ratio:>7.2f}{found.load:>6.1f}"
        f"  {found.fastest}"
    )
