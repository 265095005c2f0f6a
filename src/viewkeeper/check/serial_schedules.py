"""What can come after what: all serial schedules of a history at once, as steps between vectors.

Transactions of one source keep its order; those of different sources have no order among them,
unless global transactions tie them. A *unit* is what a serial schedule applies in one step: one
transaction with all of its parts, or, where sources have global transactions in opposite orders,
all those that no serial order can separate (`viewkeeper.maintain.unit_intake` does the same).

A vector is *atomic* if it has every unit whole or not at all. The atomic vectors are exactly those
that serial schedules pass through, and any growing chain of them lies on one schedule; so a search
walks vectors by single units and never enumerates schedules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from viewkeeper.check.history.recorded_history import RecordedHistory, Vector
from viewkeeper.errors import HistoryError

Point = tuple[int, ...]
"""A vector as numbers only, in the order of the schedule's sources."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Transactions that are applied in one step: per source, by index, from where to where."""

    names: tuple[str, ...]
    spans: tuple[tuple[int, int, int], ...]

    def __str__(self) -> str:
        return " with ".join(self.names)


class Schedule:
    """The units of a history, and the vectors that they lead through."""

    def __init__(self, history: RecordedHistory) -> None:
        self.sources = history.sources
        self.logs = _source_logs(history, self.sources)
        self.start: Point = (0,) * len(self.sources)
        self.final: Point = tuple(len(log) for log in self.logs)
        self.units = tuple(_serial_units(self.logs))
        self._next = [dict[int, Unit]() for _ in self.sources]
        for unit in self.units:
            for source, begin, _ in unit.spans:
                self._next[source][begin] = unit
        # A unit of several transactions is at several sources too.
        self._divisible = [unit for unit in self.units if len(unit.spans) > 1]

    def units_after(self, point: Point) -> Iterator[tuple[Unit, Point]]:
        """The units that can come next after an atomic vector, and where each leads."""
        for source, position in enumerate(point):
            unit = self._next[source].get(position)
            # A unit is given once, by the first of its sources.
            if unit is None or unit.spans[0][0] != source:
                continue
            if len(unit.spans) == 1:
                yield unit, (*point[:source], unit.spans[0][2], *point[source + 1 :])
            elif all(point[s] == begin for s, begin, _ in unit.spans):
                moved = list(point)
                for s, _, end in unit.spans:
                    moved[s] = end
                yield unit, tuple(moved)

    def halved_unit(self, point: Point) -> Unit | None:
        """A unit that the vector has in part; None if it is atomic."""
        for unit in self._divisible:
            without = all(point[s] <= begin for s, begin, _ in unit.spans)
            if not without and not all(point[s] >= end for s, _, end in unit.spans):
                return unit
        return None

    def point_of(self, vector: Vector) -> Point | None:
        """A vector as a point; None if it has a source or a number that the history has not.

        A source that it does not mention is taken as far as the others' global transactions need.
        """
        given = {name: position for name, position in vector.items() if name in self.sources}
        if any(vector[name] for name in vector.keys() - given.keys()):
            return None
        point = [given.get(name, 0) for name in self.sources]
        if any(not 0 <= n <= len(log) for n, log in zip(point, self.logs, strict=True)):
            return None
        missing = {s for s, name in enumerate(self.sources) if name not in given}
        while missing and (found := self._complete_point(point, missing)) != point:
            point = found
        return tuple(point)

    def _complete_point(self, point: list[int], missing: set[int]) -> list[int]:
        found = list(point)
        for unit in self._divisible:
            if any(point[s] >= end for s, _, end in unit.spans):
                for s, _, end in unit.spans:
                    found[s] = max(found[s], end) if s in missing else found[s]
        return found

    def vector_of(self, point: Point) -> dict[str, int]:
        return dict(zip(self.sources, point, strict=True))


def is_within(point: Point, other: Point) -> bool:
    """Whether a vector has nothing that the other lacks."""
    return all(a <= b for a, b in zip(point, other, strict=True))


def _source_logs(history: RecordedHistory, sources: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Per source, the names of its transactions in order."""
    logs: dict[str, dict[str, None]] = {source: {} for source in sources}
    for transaction in history.transactions:
        for source in transaction.parts:
            if transaction.name in logs[source]:
                raise HistoryError(
                    f'transaction "{transaction.name}": committed twice at source "{source}"',
                    hint="give every transaction a name of its own; parts of a global transaction "
                    "share a name and are at different sources",
                )
            logs[source][transaction.name] = None
    return tuple(tuple(log) for log in logs.values())


def _serial_units(logs: tuple[tuple[str, ...], ...]) -> Iterator[Unit]:
    """The units, in one serial order."""
    parts: dict[str, list[tuple[int, int]]] = {}
    for source, log in enumerate(logs):
        for position, name in enumerate(log):
            parts.setdefault(name, []).append((source, position))
    done = [0] * len(logs)
    while heads := {log[n]: None for log, n in zip(logs, done, strict=True) if n < len(log)}:
        ready = [h for h in heads if all(done[s] == n for s, n in parts[h])]
        # Without one that is ready, heads wait for each other: the least that can go goes together.
        together = ready[:1] or min((_unit_closure(h, logs, done, parts) for h in heads), key=len)
        ends = list(done)
        for name in together:
            for source, _ in parts[name]:
                ends[source] += 1
        spans = [(s, a, b) for s, (a, b) in enumerate(zip(done, ends, strict=True)) if a < b]
        yield Unit(tuple(together), tuple(spans))
        done = ends


def _unit_closure(
    start: str,
    logs: tuple[tuple[str, ...], ...],
    done: list[int],
    parts: Mapping[str, list[tuple[int, int]]],
) -> list[str]:
    """A transaction with everything that must come before it or with it."""
    inside, waiting = dict[str, None](), [start]
    while waiting:
        name = waiting.pop()
        if name in inside:
            continue
        inside[name] = None
        waiting += [logs[s][n - 1] for s, n in parts[name] if n > done[s]]
    return sorted(inside, key=lambda name: min(n for _, n in parts[name]))
