"""Reporters and the order in a store, over tables in any database that has transactions.

Every call is one short transaction. Whoever changes a group holds its row, so numbers are given one
caller at a time and a number is visible only together with all before it. Time is the database's:
leases of members on different machines are measured by one clock. Leases only say when somebody
else may try; what keeps the order right are tokens, which are compared in the transaction that
writes: the token of a reporter, and the epoch of the service that owns the store.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from viewkeeper.errors import OrderError, StaleReporterError, reload_hint
from viewkeeper.order.admission import AdmissionRefusal, admit_positions, check_claimed
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.member_groups import bases_behind
from viewkeeper.order.registry_protocol import (
    VOID,
    GroupStatus,
    MemberFacts,
    OrderedId,
    RegistryStatus,
    Reporter,
    ReportStatus,
)
from viewkeeper.order.store.group_rows import GroupRows, StatementRunner, read_facts

_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.02, 0.1
_ROWS_PER_INSERT = 200


class StoredOrder:
    """The order of every group, and who reports its sources."""

    def __init__(self, groups: GroupRows) -> None:
        self._groups = groups
        self._database = groups.database

    # Reporters

    def claim_source(self, group: str, source: str, member: str, seconds: float) -> Reporter | None:
        with self._groups.group_transaction(group, open_only=True) as (rows, _):
            seen = rows(
                f"UPDATE registry_member SET seen = {self._database.clock}"
                " WHERE grp = ? AND member = ? RETURNING facts",
                *(group, member),
            )
            if not seen:
                raise self._groups.no_member_error(group, member)
            self._check_reads(member, source, read_facts(seen[0][0]))
            held = rows(
                f"SELECT member, until - {self._database.clock} FROM registry_reporter"
                " WHERE grp = ? AND source = ?",
                *(group, source),
            )
            if held and held[0][0] != member and held[0][1] > 0:
                return None
            ((token,),) = rows(
                "INSERT INTO registry_reporter (grp, source, member, token, until)"
                f" VALUES (?, ?, ?, 1, {self._database.clock} + ?)"
                " ON CONFLICT (grp, source) DO UPDATE"
                " SET member = excluded.member, until = excluded.until,"
                " token = registry_reporter.token + 1 RETURNING token",
                *(group, source, member, float(seconds)),
            )
            return Reporter(group, source, member, token, self._last_position(rows, group, source))

    def release_claim(self, reporter: Reporter) -> None:
        with self._groups.group_transaction(reporter.group) as (rows, _):
            rows(
                "UPDATE registry_reporter SET until = 0 WHERE grp = ? AND source = ?"
                " AND token = ? AND member = ?",
                *(reporter.group, reporter.source, reporter.token, reporter.member),
            )

    def register_ids(self, group: str, ids: Sequence[GlobalId], reporter: Reporter) -> int:
        check_claimed(self._groups.name, group, ids, reporter)
        sent = [each.position for each in ids]
        with self._groups.group_transaction(group, open_only=True) as (rows, there):
            self._check_reporter(rows, reporter)
            if not sent:
                return 0
            registered = self._last_position(rows, group, reporter.source)
            found = rows(
                "SELECT position, n FROM registry_id WHERE grp = ? AND source = ?"
                " AND position BETWEEN ? AND ?",
                *(group, reporter.source, min(sent), max(sent)),
            )
            decided = admit_positions(sent, dict(found), registered, there.last)
            if isinstance(decided, AdmissionRefusal):
                raise self._refused_error(group, reporter.source, decided)
            self._append_ids(rows, group, reporter.source, decided.new, there.last)
            return decided.n

    def _append_ids(
        self, rows: StatementRunner, group: str, source: str, positions: Sequence[int], last: int
    ) -> None:
        numbered = [(group, last + i, source, p) for i, p in enumerate(positions, 1)]
        for start in range(0, len(numbered), _ROWS_PER_INSERT):
            some = numbered[start : start + _ROWS_PER_INSERT]
            places = ", ".join(["(?, ?, ?, ?)"] * len(some))
            rows(
                f"INSERT INTO registry_id (grp, n, source, position) VALUES {places}",
                *(value for row in some for value in row),
            )
        if numbered:
            number = last + len(numbered)
            rows("UPDATE registry_group SET last = ? WHERE name = ?", number, group)

    def take_back(self, group: str, source: str, position: int) -> int:
        with self._groups.group_transaction(group) as (rows, _):
            found = rows(
                "SELECT min(n), count(*) FROM registry_id WHERE grp = ? AND source = ?"
                " AND position >= ?",
                *(group, source, position),
            )
            first, count = found[0]
            if not count:
                return 0
            members = self._groups.read_members(rows, group)
            for member in members:
                if member.reached >= first and source in bases_behind(member.name, members):
                    raise self._committed_error(group, source, member.name, first)
            rows(
                "UPDATE registry_id SET source = ?, position = n WHERE grp = ? AND source = ?"
                " AND position >= ?",
                *(VOID, group, source, position),
            )
            # Whoever reported them must claim again, and hears from where to go on.
            rows(
                "UPDATE registry_reporter SET token = token + 1, until = 0 WHERE grp = ?"
                " AND source = ?",
                *(group, source),
            )
        return int(count)

    # Readers

    def fetch_order(
        self, group: str, after: int, limit: int, wait_seconds: float = 0.0
    ) -> tuple[OrderedId, ...]:
        end = time.monotonic() + wait_seconds
        pause = _PAUSE_SECONDS
        while True:
            found = self._ids_after(group, after, limit)
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _PAUSE_SECONDS_MAX)

    def _ids_after(self, group: str, after: int, limit: int) -> tuple[OrderedId, ...]:
        with self._database.read_transaction() as rows:
            there = self._groups.read_group(rows, group)
            if after > there.last:
                raise self._groups.older_error(group, after, there.last)
            if after < there.trimmed:
                raise self._groups.trimmed_error(group, after, there.trimmed)
            if after == there.last:
                if there.closed:
                    raise self._groups.closed_error(group, there.last)
                return ()
            found = rows(
                "SELECT n, source, position FROM registry_id WHERE grp = ? AND n > ?"
                " ORDER BY n LIMIT ?",
                *(group, after, limit),
            )
        return tuple(OrderedId(n, GlobalId(source, position)) for n, source, position in found)

    def fetch_status(self) -> RegistryStatus:
        with self._database.read_transaction() as rows:
            owner = self._groups.ownership.read_owner(rows)
            groups = rows(
                "SELECT name, identity, last, closed FROM registry_group"
                " ORDER BY closed, opened, name"
            )
            return RegistryStatus(
                self._groups.name,
                owner,
                tuple(
                    GroupStatus(
                        *(name, identity, last),
                        self._groups.read_members(rows, name),
                        self._read_reports(rows, name),
                        bool(closed),
                    )
                    for name, identity, last, closed in groups
                ),
            )

    # Inside a transaction

    def _last_position(self, rows: StatementRunner, group: str, source: str) -> int | None:
        ((position,),) = rows(
            "SELECT max(position) FROM registry_id WHERE grp = ? AND source = ?", group, source
        )
        return None if position is None else int(position)

    def _read_reports(self, rows: StatementRunner, group: str) -> tuple[ReportStatus, ...]:
        found = rows(
            f"SELECT source, member, token, until - {self._database.clock} FROM registry_reporter"
            " WHERE grp = ? ORDER BY source",
            group,
        )
        return tuple(
            ReportStatus(source, member, token, lease, self._last_position(rows, group, source))
            for source, member, token, lease in found
        )

    def _check_reporter(self, rows: StatementRunner, reporter: Reporter) -> None:
        found = rows(
            "SELECT member, token FROM registry_reporter WHERE grp = ? AND source = ?",
            *(reporter.group, reporter.source),
        )
        if found != [(reporter.member, reporter.token)]:
            now = f'"{found[0][0]}" by token {found[0][1]}' if found else "nobody"
            raise StaleReporterError(
                self._groups.name,
                f'group "{reporter.group}": "{reporter.member}" does not report source '
                f'"{reporter.source}" any more',
                detail=f"its token is {reporter.token}; now it is reported by {now}",
                hint="nothing to do: what it did not register, the other one does",
            )

    # Errors

    def _check_reads(self, member: str, source: str, facts: MemberFacts) -> None:
        if source not in facts.read_names:
            raise OrderError(
                self._groups.name,
                f'"{member}" cannot report source "{source}", which it does not read',
                detail=f"it says that it reads {', '.join(sorted(facts.read_names)) or 'nothing'}",
                hint="a member reports what its own views read; it joins again when that changes",
            )

    def _committed_error(self, group: str, source: str, member: str, n: int) -> OrderError:
        return OrderError(
            self._groups.name,
            f'group "{group}": number {n} of source "{source}" cannot be taken back',
            detail=f'"{member}" has committed it, so the source was at this position',
            hint="take back later positions; if the source was restored from a backup, let the "
            "members that read it leave, and run them again",
        )

    def _refused_error(self, group: str, source: str, refusal: AdmissionRefusal) -> OrderError:
        return OrderError(
            self._groups.name,
            f'group "{group}": position {refusal.position} of source "{source}" was never '
            f"registered, or long ago, and {refusal.registered} already is",
            detail="numbers are never given again, so nothing can be ordered before it",
            hint="report the registered positions, or greater ones; if the source was restored "
            f"from a backup, at every member of the group {reload_hint()}; if it never "
            f"was at {refusal.registered}, `viewkeeper registry take-back` removes that",
        )
