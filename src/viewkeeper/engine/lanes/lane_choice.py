"""Which views advance apart from the others, because their batches take so much longer.

Views that read one another, directly or by others, are one *family*: they advance together or not
at all, so that a child is always a state of its parents. A family is expensive if one of its views
has expressions that only Spark evaluates, if its last batches took long one after the other, or if
this batch has so many changes for it that it becomes a job on Spark. It advances apart if another
family of the same batch is much cheaper; where all cost about the same, none would gain by it, and
all go together.

One slow batch says nothing on a busy machine, so the quickest of the last few is what counts, and a
view that went apart comes back when the slowest of them is far below the limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping

from viewkeeper.view.definition import ViewDefinition
from viewkeeper.view.graph import needs_spark

APART_SECONDS = 0.5
"""A view whose batches take longer is expensive."""

BACK_SECONDS = 0.2
"""One that was, and whose batches are all shorter, is cheap again."""

SPARK_SECONDS = 0.25
"""What a batch on Spark costs at least: the job alone."""

MEASURED_BATCHES = 3
"""So many batches are remembered of each view."""

CHEAPER = 4.0
"""So many times cheaper must another family be, or nobody goes apart."""


class LaneChoice:
    """Knows what batches of each view cost, and chooses the families that advance apart."""

    def __init__(self, inline_rows: int) -> None:
        """Batches of more changes than `inline_rows` are jobs on Spark."""
        self._inline_rows = inline_rows
        self._seconds: dict[str, deque[float]] = {}
        self._slow: set[str] = set()
        self.reasons: dict[str, str] = {}
        """The views that went apart in the last batch that had them, and why."""

    def note_batch(self, seconds: Mapping[str, float]) -> None:
        """How long each view took in a batch, by itself."""
        for name, took in seconds.items():
            last = self._seconds.setdefault(name, deque(maxlen=MEASURED_BATCHES))
            last.append(took)
            if len(last) == MEASURED_BATCHES and min(last) > APART_SECONDS:
                self._slow.add(name)
            elif name in self._slow and max(last) < BACK_SECONDS:
                self._slow.remove(name)

    def divide_views(
        self,
        views: Mapping[str, ViewDefinition],
        changes_of: Callable[[str], int] | None,
        awaited: Callable[[], Collection[str]] = tuple,
    ) -> list[frozenset[str]]:
        """The families of these views that go apart; none that has a view that is `awaited` at the
        newest ts.

        `changes_of` counts what a view has before it; None: so little that nobody need ask.
        """
        if changes_of is None and not self._slow and not any(map(_only_on_spark, views.values())):
            self._note_reasons((), {}, views)
            return []
        reasons = {
            name: why for name in views if (why := self._why_expensive(name, views, changes_of))
        }
        families = list(find_families({name: view.parents for name, view in views.items()}))
        costs = {family: self._cost_of(family, reasons) for family in families}
        cheapest = min(costs.values(), default=0.0)
        apart = [
            family
            for family in families
            if not reasons.keys().isdisjoint(family) and costs[family] > CHEAPER * cheapest
        ]
        if apart:
            waited_for = awaited()
            apart = [family for family in apart if family.isdisjoint(waited_for)]
        self._note_reasons(apart, reasons, views)
        return apart

    def _why_expensive(
        self,
        name: str,
        views: Mapping[str, ViewDefinition],
        changes_of: Callable[[str], int] | None,
    ) -> str | None:
        if _only_on_spark(views[name]):
            return "only Spark evaluates some of its expressions"
        if name in self._slow:
            return f"its batches take {min(self._seconds[name]):.1f} s or longer"
        if changes_of is not None and (changes := changes_of(name)) > self._inline_rows:
            return f"{changes:,} changes are before it"
        return None

    def _cost_of(self, family: Collection[str], expensive: Collection[str]) -> float:
        """What a batch of a family costs, in seconds; of one that never had any, nothing."""
        measured = sum(min(self._seconds.get(name, (0.0,))) for name in family)
        is_on_spark = any(name in expensive for name in family)
        return max(measured, SPARK_SECONDS if is_on_spark else 0.0)

    def _note_reasons(
        self,
        apart: Collection[frozenset[str]],
        reasons: Mapping[str, str],
        views: Collection[str],
    ) -> None:
        if self.reasons:
            for name in views:
                self.reasons.pop(name, None)
        for family in apart:
            cause = min(name for name in family if name in reasons)
            for name in family:
                with_other = f'it goes with view "{cause}": {reasons[cause]}'
                self.reasons[name] = reasons.get(name, with_other)


def _only_on_spark(view: ViewDefinition) -> bool:
    """Whether every batch of a view is a job on Spark; one that is computed again has no batches
    but such that bring nothing."""
    return needs_spark(view) and not (view.graph is not None and view.graph.recomputed)


def find_families(parents: Mapping[str, Collection[str]]) -> Iterator[frozenset[str]]:
    """Views that read one another, directly or by others; `parents` are what each view reads.

    >>> found = find_families({"a": [], "b": ["a"], "c": [], "d": ["b"], "e": ["c", "gone"]})
    >>> [sorted(family) for family in found]
    [['a', 'b', 'd'], ['c', 'e']]
    """
    near: dict[str, set[str]] = {name: set() for name in parents}
    for name, read in parents.items():
        for parent in read:
            if parent in near:
                near[name].add(parent)
                near[parent].add(name)
    left = dict.fromkeys(parents)
    while left:
        family, reached = set[str](), [next(iter(left))]
        while reached:
            name = reached.pop()
            if name not in family:
                family.add(name)
                del left[name]
                reached += near[name]
        yield frozenset(family)
