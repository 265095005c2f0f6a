"""The queue of Dyno: reports that are not in the view, their order, and what is claimed.

Reports are numbered by arrival. The order has exactly the reports of the queue, in units that are
maintained together. What leaves the queue is in the view, under the next ts; a commit claims, per
source, the longest prefix that is in the view, but for what moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from viewkeeper.evolution.dyno.dyno_events import DynoReport, DynoStamp
from viewkeeper.evolution.dyno.foresight import find_data_moves
from viewkeeper.evolution.dyno.table_identity import DynoShapes
from viewkeeper.maintain.algorithm_protocol import CommitAction
from viewkeeper.updates.view_actions import ViewAction


@dataclass(slots=True)
class QueuedReport:
    """A report in the queue; `settled`: its schema changes are done, its rows are not."""

    number: int
    report: DynoReport
    settled: bool = False

    @property
    def has_open_shapes(self) -> bool:
        return bool(self.report.shapes) and not self.settled

    def settle_schema(self) -> None:
        """The schema changes of the report are done."""
        self.settled = True


Unit = tuple[int, ...]


class ReportQueue:
    """The UMQ of one view."""

    def __init__(self, sources: Iterable[str]) -> None:
        self.reports: dict[int, QueuedReport] = {}
        self.order: list[Unit] = []
        self.ts = 0
        self._received = 0
        self._positions = dict.fromkeys(sources, 0)
        self._done: set[tuple[str, int]] = set()
        """What is in the view and lies beyond what is claimed."""

    def add_report(self, report: DynoReport) -> None:
        """A report has arrived; it is a unit of its own until the order is corrected."""
        self._received += 1
        self.reports[self._received] = QueuedReport(self._received, report)
        self.order.append((self._received,))

    def put_order(self, order: Iterable[Unit]) -> None:
        """Another order of the same reports."""
        self.order = list(order)

    def waiting_reports(self) -> list[tuple[int, DynoReport, bool]]:
        """The reports with their numbers, and whether their schema changes are still to be done."""
        return [(each.number, each.report, each.has_open_shapes) for each in self.reports.values()]

    def finish_reports(
        self, numbers: Iterable[int], shapes: DynoShapes, changes: Iterable[ViewAction]
    ) -> tuple[DynoStamp, CommitAction]:
        """Reports are in the view and leave the queue: their ts, and the commit."""
        gone = set(numbers)
        named = [(self.reports[n].report.source, self.reports[n].report.position) for n in gone]
        for n in gone:
            del self.reports[n]
        left = (tuple(n for n in unit if n not in gone) for unit in self.order)
        self.order = [unit for unit in left if unit]
        self._done |= set(named)
        positions = self._claim_positions(shapes)
        self.ts += 1
        commit = CommitAction(self.ts, positions, tuple(changes))
        return DynoStamp(self.ts, tuple(sorted(named)), positions), commit

    def _claim_positions(self, shapes: DynoShapes) -> dict[str, int]:
        """What the view stands for now."""
        waiting = self.waiting_reports()
        passable = {
            (report.source, report.position)
            for (_, report, _), moves in zip(waiting, find_data_moves(shapes, waiting), strict=True)
            if not moves
        }
        for source, position in self._positions.items():
            at = position + 1
            while (source, at) in self._done or (source, at) in passable:
                if (source, at) in self._done:
                    self._positions[source] = at
                at += 1
        self._done = {(source, at) for source, at in self._done if at > self._positions[source]}
        return dict(self._positions)
