"""The judge of a fleet: every kept state of every view against SQLite's join over base states.

It believes nobody. The rows of a view show, by counters, which state of each base they are made
from; all rows must show one, and be what SQLite makes of exactly those recorded states, through all
levels. States go forward. Members of a group, after the same number, show the same state of each
base that they have in common. In the end everybody shows the last state of every base.

From the warehouses it takes rows by ts, and from ledger and coordination file which number of which
group a ts has; nothing else.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from tests.live.fleet.bases import COLUMNS
from tests.live.fleet.fleet import Fleet
from viewkeeper.errors import CorruptError
from viewkeeper.warehouse.metadata.coordination import read_coordination
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.plan_files import LedgerEntry, load_ledger
from viewkeeper.warehouse.rows import view_state

Rows = Counter[tuple[Any, ...]]
Vector = tuple[tuple[str, int], ...]
"""A state of each base that is shown: base and counter."""
_COUNTER = re.compile(r"(\w+)_n\d*")


@dataclass
class Judged:
    """What was looked at."""

    states: int = 0
    """States of views, each compared row by row."""
    agreements: int = 0
    """Pairs of members that were compared after one number, at one base."""
    numbers: int = 0
    groups: int = 0
    vectors: dict[str, dict[str, dict[int, Vector]]] = field(default_factory=dict)
    """By member, view and ts."""

    def __str__(self) -> str:
        return (
            f"{self.states} states, {self.numbers} numbers in {self.groups} groups,"
            f" {self.agreements} agreements"
        )


def judge(fleet: Fleet, ended: bool = True) -> Judged:
    """Look at everything that is kept; `ended`: nothing more is to come."""
    found, oracle = Judged(), Oracle(fleet)
    for member, plan in fleet.members.items():
        found.vectors[member] = {}
        for view in plan.views:
            vectors = found.vectors[member][view] = _view(fleet, oracle, member, view)
            found.states += len(vectors)
            if ended:
                last = vectors[max(vectors)]
                wanted = tuple((base, fleet.bases[base].last) for base, _ in last)
                assert last == wanted, f"{member}.{view} ends with {last} instead of {wanted}"
    _agree(fleet, found)
    return found


def finish(fleet: Fleet) -> Judged:
    """Let everybody come to the end, stop all, judge."""
    fleet.wait("all members to show the last state", lambda: not late(fleet))
    fleet.stop()
    found = judge(fleet)
    print(found)
    return found


def late(fleet: Fleet, *names: str) -> list[str]:
    """The views, of these members or of all, that do not show the last state of each base."""
    return [
        f"{member}.{view}"
        for member in names or fleet.members
        for view in fleet.members[member].views
        if not _is_newest(fleet, member, view)
    ]


def _is_newest(fleet: Fleet, member: str, view: str) -> bool:
    head = fleet.head(member).views.get(view)
    if head is None:
        return False
    try:
        found = view_state.read_counted(fleet.warehouse(member), head)
    except CorruptError:
        # The runner removes replaced files at once, perhaps before we have read them.
        return False
    rows = Counter({tuple(row.values())[:-1]: row["_count"] for row in found.to_pylist()})
    vector = shown([column.name for column in head.shown_schema], rows, f"{member}.{view}")
    return all(fleet.bases[base].last == n for base, n in vector)


# -- one view ------------------------------------------------------------------------------------


def _view(fleet: Fleet, oracle: Oracle, member: str, view: str) -> dict[int, Vector]:
    """The vector of every kept ts of a view, each proven."""
    head = fleet.head(member).views[view]
    assert not head.stopped, f"{member}.{view} has stopped: {head.stopped}"
    names = [column.name for column in head.shown_schema]
    vectors: dict[int, Vector] = {}
    before: Mapping[str, int] = {}
    for ts, rows in states(fleet, member, head):
        where = f"{member}.{view}, ts {ts}"
        vector = shown(names, rows, where)
        assert rows == oracle.rows(member, view, vector), (
            f"{where}, shows {vector}: has {+(rows - oracle.rows(member, view, vector))} too much,"
            f" lacks {+(oracle.rows(member, view, vector) - rows)}"
        )
        at = dict(vector)
        assert all(at[base] >= n for base, n in before.items()), f"{where}: {at} after {before}"
        vectors[ts], before = vector, at
    return vectors


def states(fleet: Fleet, member: str, head: ViewHead) -> Iterator[tuple[int, Rows]]:
    """Every kept state of a view: the first one that it shows, then one per ts."""
    root = fleet.warehouse(member)
    changes = view_state.read_view_changes(root, head, 0)
    columns = [changes[name].to_pylist() for name in changes.column_names]
    by_ts: dict[int, Rows] = {}
    for *row, count, ts in zip(*columns, strict=True):
        by_ts.setdefault(ts, Counter())[tuple(row)] += count
    first = max(head.exact_ts, head.horizon)
    rows: Rows = Counter()
    for ts in sorted(ts for ts in by_ts if ts <= first):
        rows.update(by_ts[ts])
    yield first, _plain(rows)
    taken = {entry.ts for entry in load_ledger(root).entries if first < entry.ts <= head.ts}
    for ts in sorted({*by_ts, *taken}):
        if ts > first:
            rows.update(by_ts.get(ts, Counter()))
            yield ts, _plain(rows)


def _plain(rows: Rows) -> Rows:
    assert all(count >= 0 for count in rows.values()), f"counts below zero: {rows}"
    return +rows


def shown(names: list[str], rows: Rows, where: str) -> Vector:
    """The one state of each base that all rows show."""
    assert rows, f"{where}: no rows"
    found: dict[str, set[int]] = {}
    for at, name in enumerate(names):
        if match := _COUNTER.fullmatch(name):
            found.setdefault(match[1], set()).update(row[at] for row in rows)
    for base, counters in found.items():
        assert len(counters) == 1, f"{where} shows {base} in the states {sorted(counters)}"
    return tuple((base, counters.pop()) for base, counters in sorted(found.items()))


class Oracle:
    """SQLite's answer to what a view is over one state of each base."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._known: dict[tuple[str, str, Vector], Rows] = {}

    def rows(self, member: str, view: str, vector: Vector) -> Rows:
        key = (member, view, vector)
        if key not in self._known:
            with closing(sqlite3.connect(":memory:")) as connection:
                for base, n in vector:
                    assert n in self._fleet.bases[base].states, f"{base} never committed state {n}"
                    self._base(connection, base, n)
                self._make(connection, member, view, set())
                self._known[key] = Counter(connection.execute(f"SELECT * FROM {member}.{view}"))
        return self._known[key]

    def _base(self, connection: sqlite3.Connection, base: str, n: int) -> None:
        connection.execute(f"ATTACH ':memory:' AS {base}")
        for table, rows in self._fleet.bases[base].states[n].items():
            columns = COLUMNS[table]
            connection.execute(f"CREATE TABLE {base}.{table} ({', '.join(columns)})")
            marks = ", ".join("?" for _ in columns)
            connection.executemany(
                f"INSERT INTO {base}.{table} VALUES ({marks})", list(rows.elements())
            )
        connection.commit()

    def _make(
        self, connection: sqlite3.Connection, member: str, view: str, made: set[tuple[str, str]]
    ) -> None:
        """A view as a table, after those that it reads."""
        if (member, view) in made or member in self._fleet.bases:
            return
        for read_member, read_view in self._fleet.members[member].read_by(view):
            self._make(connection, read_member, read_view, made)
        if member not in {name for name, _ in made}:
            connection.execute(f"ATTACH ':memory:' AS {member}")
        made.add((member, view))
        sql = self._fleet.members[member].views[view]
        connection.execute(f"CREATE TABLE {member}.{view} AS {sql}")
        connection.commit()


# -- many views ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """What a member showed in one group: its state after a number is that of a ts."""

    since: int
    until: int
    reached: int
    entries: list[LedgerEntry]

    def ts(self, n: int) -> int:
        """The ts whose state is that after number n."""
        return max((e.ts for e in self.entries if e.n <= n), default=self.since)

    def shows(self, n: int) -> bool:
        """Whether there is one: ids that became one transaction have one state, after the last."""
        return not any(0 < entry.first <= n < entry.n for entry in self.entries)


def _agree(fleet: Fleet, found: Judged) -> None:
    """View consistency: per group and number, one state of each base for all members."""
    groups: dict[str, dict[str, Numbers]] = {}
    for member in fleet.members:
        for identity, numbers in spans(fleet, member):
            groups.setdefault(identity, {})[member] = numbers
    for identity, members in groups.items():
        last = max(each.reached for each in members.values())
        found.groups += len(members) > 1
        found.numbers += last if len(members) > 1 else 0
        starts = _starts(found, members)
        for n in range(last + 1):
            _after(found, f"number {n} of {identity}", starts, _shown_after(found, members, n))


def spans(fleet: Fleet, member: str) -> Iterator[tuple[str, Numbers]]:
    """The groups that a member was in, and what it took there."""
    root = fleet.warehouse(member)
    coordination = read_coordination(root)
    assert coordination is not None, f"{member} was in no group"
    entries = load_ledger(root).entries
    ends = [span.since for span in coordination.spans[1:]]
    for span, end in zip(coordination.spans, [*ends, None], strict=True):
        until = entries[-1].ts if end is None and entries else end or span.since
        own = [e for e in entries if span.since < e.ts <= until and e.n]
        numbers = [entry.n for entry in own]
        assert numbers == sorted(numbers), f"{member}: numbers go back in {span.group}"
        reached = max(span.n, *numbers) if numbers else span.n
        if not span.alone:
            yield span.identity, Numbers(span.since, until, reached, own)


def _starts(found: Judged, members: Mapping[str, Numbers]) -> dict[str, int]:
    """Per base the newest state at which some member came into a group.

    Those that came with less are brought there by the ids that lie between; only what is newer has
    become theirs through the order, and must be the same for all.
    """
    starts: dict[str, int] = {}
    for member, numbers in members.items():
        for vectors in found.vectors[member].values():
            for base, counter in vectors.get(numbers.since, ()):
                starts[base] = max(counter, starts.get(base, counter))
    return starts


def _shown_after(
    found: Judged, members: Mapping[str, Numbers], n: int
) -> dict[str, dict[str, int]]:
    """Per base what every view shows of it after a number, as far as it has got there."""
    at: dict[str, dict[str, int]] = {}
    for member, numbers in members.items():
        if n > numbers.reached or not numbers.shows(n):
            continue
        ts = numbers.ts(n)
        for view, vectors in found.vectors[member].items():
            if ts not in vectors:
                # Folded, or before the view was loaded.
                assert ts < min(vectors) or ts > max(vectors), f"{member}.{view} has no ts {ts}"
                continue
            for base, counter in vectors[ts]:
                at.setdefault(base, {})[f"{member}.{view}"] = counter
    return at


def _after(
    found: Judged, where: str, starts: Mapping[str, int], at: Mapping[str, Mapping[str, int]]
) -> None:
    for base, counters in at.items():
        if max(counters.values()) > starts.get(base, -1):
            found.agreements += len(counters) - 1
            assert len({*counters.values()}) == 1, f"{base} differs after {where}: {counters}"
