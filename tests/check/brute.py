"""The definitions of the predicates, word for word, for histories small enough to try everything.

Every serial schedule is enumerated, the view is every combination of rows, nothing is shared with
the checker. Transactions that no serial order can separate are found by reachability.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, product

from viewkeeper.check.history.recorded_history import RecordedHistory, Row
from viewkeeper.check.levels import Predicate
from viewkeeper.delta.reference_carrier import evaluate_for_row
from viewkeeper.view.expression import Compare, Expression

Value = frozenset[tuple[Row, int]]
Schedule = list[frozenset[str]]


class Brute:
    """A history, judged by trying everything."""

    def __init__(self, history: RecordedHistory) -> None:
        self.history = history
        self.sources = history.sources
        self.logs = {
            source: [t.name for t in history.transactions if source in t.parts]
            for source in self.sources
        }
        self.final = {source: len(log) for source, log in self.logs.items()}
        self._known: dict[tuple[tuple[str, int], ...], Value] = {}

    # -- the view over a vector --------------------------------------------------------------------

    def view(self, vector: dict[str, int]) -> Value:
        key = tuple(sorted(vector.items()))
        if key not in self._known:
            self._known[key] = self._compute(vector)
        return self._known[key]

    def _compute(self, vector: dict[str, int]) -> Value:
        view = self.history.view
        bags = []
        for place in view.places:
            rows = Counter(dict(self.history.initial.get(place.relation, {})))
            source = place.relation.source
            parts = [t.parts[source] for t in self.history.transactions if source in t.parts]
            for part in parts[: vector[source]]:
                for row, count in part.get(place.relation, ()):
                    rows[row] += count
            names = [f"{place.index}.{f.name}" for f in self.history.tables[place.relation]]
            bags.append([(dict(zip(names, row, strict=True)), n) for row, n in rows.items() if n])
        conditions: list[Expression] = [
            Compare("<=>" if e.null_safe else "=", e.left, e.right) for e in view.equalities
        ]
        conditions += view.predicates
        total: Counter[Row] = Counter()
        for combination in product(*bags):
            values = {name: value for row, _ in combination for name, value in row.items()}
            count = 1
            for _, n in combination:
                count *= n
            if all(evaluate_for_row(condition, values) is True for condition in conditions):
                total[tuple(evaluate_for_row(o.expression, values) for o in view.outputs)] += count
        return frozenset((row, n) for row, n in total.items() if n)

    # -- schedules ---------------------------------------------------------------------------------

    def components(self) -> list[frozenset[str]]:
        """Transactions that can only be applied together."""
        names = list(dict.fromkeys(t.name for t in self.history.transactions))
        reach = {name: {name} for name in names}
        for _ in names:
            for log in self.logs.values():
                for i, name in enumerate(log):
                    for other in log[i + 1 :]:
                        reach[name] |= reach[other]
        together = {n: frozenset(m for m in reach[n] if n in reach[m]) for n in names}
        return list(dict.fromkeys(together.values()))

    def schedules(self, left: list[frozenset[str]] | None = None) -> Iterator[Schedule]:
        """Every serial schedule."""
        left = self.components() if left is None else left
        if not left:
            yield []
        for unit in left:
            others = [name for other in left if other != unit for name in other]
            if all(self.may_precede(unit, name) for name in others):
                for rest in self.schedules([other for other in left if other != unit]):
                    yield [unit, *rest]

    def may_precede(self, unit: frozenset[str], name: str) -> bool:
        """Whether no member of the unit must come after a transaction."""
        return not any(
            name in log and member in log and log.index(name) < log.index(member)
            for log in self.logs.values()
            for member in unit
        )

    def vectors(self, schedule: Schedule) -> list[dict[str, int]]:
        """The vectors that a schedule passes through."""
        done = set[str]()
        vectors = [dict.fromkeys(self.sources, 0)]
        for unit in schedule:
            done |= unit
            vectors.append({s: sum(name in done for name in log) for s, log in self.logs.items()})
        return vectors

    # -- predicates --------------------------------------------------------------------------------

    def answers(self) -> dict[Predicate, bool]:
        states = [
            frozenset((row, n) for row, n in state.rows.items() if n)
            for state in self.history.states
        ]
        merged = [value for value, _ in groupby(states)]
        runs = [[self.view(v) for v in self.vectors(s)] for s in self.schedules()]
        ranges = [range(n + 1) for n in self.final.values()]
        legal = {
            self.view(dict(zip(self.sources, point, strict=True))) for point in product(*ranges)
        }
        quiet = [v for v, s in zip(states, self.history.states, strict=True) if s.quiet]
        return {
            Predicate.CONVERGENT: states[-1] == self.view(self.final)
            and all(value in legal for value in quiet),
            Predicate.LEGAL: all(value in legal for value in states),
            Predicate.ORDERED: any(_follows(run, merged) for run in runs),
            Predicate.COMPLETE: any([v for v, _ in groupby(run)] == merged for run in runs),
        }


def _follows(run: list[Value], states: list[Value]) -> bool:
    """Whether the states are among the run's values, in order."""
    rest = iter(run)
    return all(state in rest for state in states)
