"""Foresight: what each report in Dyno's queue reads, changes and breaks, before any of it is done.

Dependencies can be told from the view definition alone (Dyno paper, section 6.1.1). For rows that
is the present one, or what the schema changes before them at their own source will make of it. For
a schema change the rewriting is made on trial: if the stored rows could not be repaired without
reading, its maintenance queries read every relation of the rewritten view.

What breaks depends on how tables are asked for. By name, whatever gives a table, or a column that
is read, another name breaks the questions to it. By handle only what is gone breaks.

Tables are named by identity here; a schema change also refers to the names that it gives and takes
away, so that two that pass a name on keep their order.

Reports are queued, numbered by arrival. The order has exactly the reports of the queue, in units
that are maintained together. What leaves the queue is in the view, under the next ts; a commit
claims, per source, the longest prefix that is in the view, but for what moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from viewkeeper.evolution.dependencies import NONE, ReceivedUpdate, Relations, reads_of
from viewkeeper.evolution.dyno.dyno_events import DynoReport, DynoStamp
from viewkeeper.evolution.dyno.rewriter import Rewriter, is_reading_needed
from viewkeeper.evolution.dyno.table_identity import (
    BoundDefinition,
    DynoShape,
    DynoShapes,
    Key,
    token_of,
)
from viewkeeper.evolution.synchronization.synchronize import NoRewriting
from viewkeeper.maintain.algorithm_protocol import CommitAction
from viewkeeper.updates.view_actions import ViewAction
from viewkeeper.view.definition import Relation

Asking = Literal["name", "handle"]
Waiting = tuple[int, DynoReport, bool]
"""A report's number, the report, and whether its schema changes are still to be done."""


@dataclass(frozen=True, slots=True)
class _Outlook:
    """The definition and the shapes after what is queued of one source; None: none is possible."""

    definition: BoundDefinition | None
    shapes: DynoShapes


class Foresight:
    """A definition, and what is asked how."""

    def __init__(
        self, definition: BoundDefinition, shapes: DynoShapes, rewriter: Rewriter, asking: Asking
    ) -> None:
        self._definition = definition
        self._shapes = shapes
        self._rewriter = rewriter
        self._asking = asking

    def updates_of(self, waiting: Iterable[Waiting]) -> list[ReceivedUpdate]:
        """The updates of a queue, in its order."""
        outlooks: dict[str, _Outlook] = {}
        made = []
        queue = list(waiting)
        moved = find_data_moves(self._shapes, queue)
        for (number, report, reshapes), moves in zip(queue, moved, strict=True):
            now = outlooks.get(report.source) or _Outlook(self._definition, self._shapes)
            if reshapes:
                update, outlooks[report.source] = self._schema_update(number, report, now)
            else:
                update = self._row_update(number, report, now)
            made.append(replace(update, moves=moves))
        return made

    def _row_update(self, number: int, report: DynoReport, now: _Outlook) -> ReceivedUpdate:
        changes = frozenset(token_of((report.source, table)) for table in report.rows)
        reads = self._relations_read(report, now.definition)
        return ReceivedUpdate(number, report.source, changes, reads)

    def _schema_update(
        self, number: int, report: DynoReport, now: _Outlook
    ) -> tuple[ReceivedUpdate, _Outlook]:
        after = now.shapes.apply_change(report.source, report.shapes)
        found = None
        if now.definition is not None:
            found = self._rewriter.rewritten(now.definition, after)
        definition = None if isinstance(found, NoRewriting) else found
        pairs = list(_reshaped_tables(report, now.shapes))
        used = self._used_columns(now.definition or self._definition)
        changes = {token_of((report.source, table)) for table in (*report.rows, *report.shapes)}
        changes |= {
            Relation(report.source, shape.name)
            for _, *both in pairs
            for shape in both
            if shape is not None
        }
        update = ReceivedUpdate(
            number,
            report.source,
            frozenset(changes),
            self._adaptation_reads(report, now.definition, definition),
            frozenset(token_of(key) for key, b, a in pairs if self._is_broken(b, a, used.get(key))),
        )
        return update, _Outlook(definition, after)

    def _relations_read(self, report: DynoReport, definition: BoundDefinition | None) -> Relations:
        """What the queries of a report's rows read."""
        if definition is None:
            return self._all_relations(self._definition)
        keys = definition.table_keys
        mine = {(report.source, table) for table in report.rows}
        changed = [relation for relation, key in keys.items() if key in mine]
        return frozenset(
            token_of(keys[relation]) for relation in reads_of(definition.view, changed)
        )

    def _adaptation_reads(
        self, report: DynoReport, before: BoundDefinition | None, after: BoundDefinition | None
    ) -> Relations:
        if before is None or after is None:
            return self._all_relations(self._definition)
        added = frozenset(((report.source, table), column) for table, column in report.added)
        whole = (
            self._all_relations(after)
            if is_reading_needed(self._rewriter.repair(before, after, added))
            else NONE
        )
        return whole | self._relations_read(report, after)

    def _all_relations(self, definition: BoundDefinition) -> Relations:
        return frozenset(token_of(key) for key in definition.table_keys.values())

    def _used_columns(self, definition: BoundDefinition) -> dict[Key, set[int]]:
        """Per table that may be asked, the columns that may be."""
        used: dict[Key, set[int]] = {}
        for each in (self._definition, definition):
            for relation, key in each.table_keys.items():
                used.setdefault(key, set()).update(c.id for c in each.columns_read(relation))
        for stand_in in self._rewriter.wishes.stand_ins:
            used.setdefault(stand_in.table, set()).update(stand_in.columns.values())
        return used

    def _is_broken(
        self, before: DynoShape | None, after: DynoShape | None, used: set[int] | None
    ) -> bool:
        """Whether a question that could be asked before cannot be asked after."""
        if before is None or used is None:
            return False
        if after is None or (self._asking == "name" and before.name != after.name):
            return True
        for column in (c for c in before.columns if c.id in used):
            now = after.column_by_id(column.id)
            if now is None or (self._asking == "name" and now.name != column.name):
                return True
        return False


def _reshaped_tables(
    report: DynoReport, shapes: DynoShapes
) -> Iterator[tuple[Key, DynoShape | None, DynoShape | None]]:
    """The tables that a report reshapes, before and after it."""
    tables: Mapping[Key, DynoShape] = shapes.tables
    for table, after in report.shapes.items():
        key = (report.source, table)
        yield key, tables.get(key), after


def find_data_moves(shapes: DynoShapes, waiting: Iterable[Waiting]) -> Iterator[bool]:
    """Of every report whether it moves data of its source: rows, or something that went, or came
    with values, by a schema change."""
    now: dict[str, DynoShapes] = {}
    for _, report, reshapes in waiting:
        before = now.get(report.source, shapes)
        yield bool(report.rows) or (reshapes and _is_moving_data(report, before))
        if reshapes:
            now[report.source] = before.apply_change(report.source, report.shapes)


def _is_moving_data(report: DynoReport, shapes: DynoShapes) -> bool:
    for _, before, after in _reshaped_tables(report, shapes):
        if before is not None and after is None:
            return True
        if before is not None and after is not None:
            had, has = ({column.id for column in shape.columns} for shape in (before, after))
            filled = any((after.id, column) not in report.added for column in has - had)
            if filled or had - has:
                return True
    return False


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
