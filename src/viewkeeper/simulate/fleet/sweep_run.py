"""The work on a run of ids: one batch sweep for each view, a lookup at a time, then one commit.

The sweep and its compensation are the production code (`viewkeeper.maintain`). Bases are asked as
they are at that moment and say by their cut what they contain; other members are asked as of the
run's last id. Between two lookups anything may happen in the world.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from viewkeeper.check.history.recorded_history import Row
from viewkeeper.delta.algebra import Algebra
from viewkeeper.delta.reference_carrier import Reference, ReferenceDelta
from viewkeeper.maintain.query_terms import join_given_rows
from viewkeeper.maintain.sweep_family.batch_sweep import batch_sweep
from viewkeeper.maintain.view_change import SweepGenerator
from viewkeeper.order.mediator import TakenIds
from viewkeeper.simulate.fleet.member_warehouse import MemberEntry, MemberWarehouse
from viewkeeper.simulate.fleet.signed_log import Change, SignedLog, change_table, stamped_table
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.view.definition import Relation
from viewkeeper.view.sweep_plan import SweepPlan

Ask = Callable[[Lookup, int], Answer]
"""Answers a lookup for a run that ends at a position of the lookup's source."""
Logs = Mapping[str, SignedLog]
Stamped = dict[Relation, list[tuple[int, Change]]]
REFERENCE: Algebra[ReferenceDelta] = Reference()


@dataclass(frozen=True, slots=True)
class RunChanges:
    """The changes of a run, as compensation asks for them."""

    changes: Stamped

    def matching_changes(self, lookup: Lookup) -> pa.Table:
        return stamped_table(lookup.columns, self.changes.get(lookup.relation, []))


@dataclass(slots=True)
class ViewSweep:
    """One view's sweep, and the lookups that it waits for."""

    view: str
    sweep: SweepGenerator[ReferenceDelta | None]
    lookups: tuple[Lookup, ...] = ()
    result: ReferenceDelta | None = None
    ended: bool = False

    def go_on(self, answers: tuple[Answer, ...] | None) -> None:
        try:
            self.lookups = next(self.sweep) if answers is None else self.sweep.send(answers)
        except StopIteration as end:
            self.lookups, self.result, self.ended = (), end.value, True


@dataclass(slots=True)
class SweepRun:
    """Ids under way: the entries that they will be, and the sweeps of all views."""

    n: int
    entries: list[MemberEntry]
    works: list[ViewSweep] = field(default_factory=list)

    @property
    def end_positions(self) -> Mapping[str, int]:
        return self.entries[-1].positions

    def answer_next(self, ask: Ask) -> bool:
        """Answer what one sweep waits for; whether all have ended."""
        work = next((work for work in self.works if not work.ended), None)
        if work is not None:
            work.go_on(
                tuple(ask(each, self.end_positions[each.relation.source]) for each in work.lookups)
            )
        return all(work.ended for work in self.works)

    def rows_by_ts(self) -> dict[int, dict[str, dict[Row, int]]]:
        """Per ts and view, the signed rows."""
        found: dict[int, dict[str, dict[Row, int]]] = {}
        for work in self.works:
            for row, count in (work.result.counts if work.result else {}).items():
                found.setdefault(row[-1], {}).setdefault(work.view, {})[row[:-1]] = count
        return found


@dataclass(frozen=True, slots=True)
class ReceivedLogs:
    """What a member has of its sources: their logs, each up to a position."""

    logs: Logs
    until: Mapping[str, int]

    def changes_between(self, relation: Relation, after: int, until: int) -> Iterator[Change]:
        end = min(until, self.until[relation.source])
        return self.logs[relation.source].changes_between(relation.table, after, end)


def begin_run(
    warehouse: MemberWarehouse,
    taken: Sequence[TakenIds],
    n: int,
    received: ReceivedLogs,
    rng: random.Random,
    merges: bool = True,
) -> SweepRun:
    """A run over what was taken; now and then two of them become one state, as barriers make it."""
    entries: list[MemberEntry] = []
    at = dict(warehouse.positions)
    ts, group = warehouse.ts, warehouse.span.group
    merge = merges and rng.random() < 0.15
    for each in taken:
        ts += 0 if entries and not entries[-1].shown else 1
        if each.first < each.n:
            # Whoever reads us must not take our state before these ids for one with some of them.
            entries.append(MemberEntry(ts, group, each.first, each.ids[0], False, at))
        at = {**at, **each.moves}
        hidden = merge and each is not taken[-1] and rng.random() < 0.5
        entries.append(MemberEntry(ts, group, each.n, each.ids[-1], not hidden, at))
    run = SweepRun(n, entries)
    changes = _stamp_changes(warehouse, entries, received)
    for view, plan in warehouse.plans.items():
        origins = {
            place.index: stamped_table(place.columns, changes[place.relation])
            for place in plan.view.places
            if place.relation in changes
        }
        sweep = batch_sweep(REFERENCE, plan, origins, RunChanges(changes))
        work = ViewSweep(view, sweep)
        work.go_on(None)
        run.works.append(work)
    return run


def _stamp_changes(
    warehouse: MemberWarehouse, entries: Sequence[MemberEntry], received: ReceivedLogs
) -> Stamped:
    """What the sources changed on the way, each with the ts that it becomes part of."""
    found: Stamped = {}
    relations = {r for view in warehouse.plan.views.values() for r in view.relations}
    before: Mapping[str, int] = warehouse.positions
    for entry in entries:
        for relation in relations:
            begin, end = before[relation.source], entry.positions[relation.source]
            for change in received.changes_between(relation, begin, end):
                found.setdefault(relation, []).append((entry.ts, change))
        before = entry.positions
    return found


def rows_loaded_at(plan: SweepPlan, logs: Logs, positions: Mapping[str, int]) -> dict[Row, int]:
    """A view over its sources as of positions."""
    bound = {
        place.index: change_table(place.columns, _rows_at(logs, place.relation, positions))
        for place in plan.view.places
    }
    rows = join_given_rows(Reference(), plan, bound)
    return {row[:-1]: count for row, count in rows.counts.items()}


def _rows_at(logs: Logs, relation: Relation, positions: Mapping[str, int]) -> list[Change]:
    rows = logs[relation.source].tables_at(positions[relation.source])[relation.table]
    return [(0, row, count) for row, count in rows.items()]
