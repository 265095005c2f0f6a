"""The judge: what a warehouse shows, against the applications' own journal.

The journal is replayed in plain SQLite, transaction by transaction. The ledger views say how many
transactions of each database a state contains; that state must be the join as SQLite computes it
after just these transactions, and so must every report be that the project has, made from the same
text by views of SQLite. Every state that is still kept is judged, not only the newest, and
nothing of Viewkeeper is used but its reader of files. A view that is computed again shows fewer
states: those that it shows are judged.
"""

from __future__ import annotations

import datetime
import json
import sqlite3
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.faults.project_clock import day_position
from tests.faults.shop import (
    AGAIN,
    JOIN_HERE,
    JOURNAL,
    LEDGERS,
    REPORTS,
    TABLES,
    first_rows,
    read_day,
    reports_here,
    run_all,
)
from viewkeeper.engine.batch.change_archive import archive_files, read_index
from viewkeeper.sources.clock.ticks import moment_of
from viewkeeper.view.definition import CLOCK
from viewkeeper.warehouse.lake.verified_files import PATTERN
from viewkeeper.warehouse.metadata import plan_files
from viewkeeper.warehouse.metadata.head import Head, read_head
from viewkeeper.warehouse.recovery import removed_files
from viewkeeper.warehouse.rows import view_state
from viewkeeper.warehouse.rows.view_state import files_of

RELATIONS = {"crm": 2, "shop": 3, "cat": 2, CLOCK: 1}
"""How many tables of each source the views read, once all of them are loaded."""

Row = tuple[Any, ...]
Rows = Counter[Row]


class Judge:
    """Looks at one project again and again, while nobody maintains it; remembers the last look."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self._root = project / "warehouse"
        self._last = read_head(self._root)
        files = {file.stem for file in (project / "views").glob("*.sql")}
        self.views = {"lines"} | ({*REPORTS, AGAIN} & files)
        """The views that are compared with the journal, besides the ledgers."""

    def check(self) -> Head:
        """Every kept state is right, and nothing went back; less while views are being loaded."""
        head = read_head(self._root)
        assert head.record >= self._last.record, "records went back"
        for name, view in self._last.views.items():
            assert head.views[name].ts >= view.ts, f"{name} went back in ts"
            for source, position in view.positions.items():
                assert head.views[name].positions[source] >= position, f"{name} went back"
        self._last = head
        if len(head.shown_views) == len(self.views) + len(LEDGERS):
            self._check_views(head, {view: self._ledger(head, view) for view in LEDGERS})
        self._check_history()
        return head

    def check_end(self) -> None:
        """Everything that was written is shown, and nothing is left lying about."""
        head = self.check()
        for view, database in LEDGERS.items():
            with sqlite3.connect(self._project / f"{database}.db") as source:
                written = source.execute("SELECT count(*), max(n) FROM ledger").fetchone()
            source.close()
            shown = len(self._ledger(head, view))
            assert (shown, shown or None) == written, f"{view}: {shown} shown, {written} written"
        assert len({view.ts for view in head.views.values()}) == 1, "a view stayed behind"
        if "recent" in self.views:
            now = day_position(read_day(self._project))
            assert head.views["recent"].positions[CLOCK] == now, "the time stayed behind"
        self.check_no_orphans(head)

    def _ledger(self, head: Head, view: str) -> list[int]:
        """The ts of transaction 1, 2, 3, ... of a database; every one there, and once."""
        shown = view_state.read_view_changes(self._root, head.views[view], 0)
        counts: dict[int, int] = defaultdict(int)
        for n, count in zip(*(shown[c].to_pylist() for c in ("n", "_count")), strict=True):
            counts[n] += count
            assert counts[n] == 1, f"{view}: transaction {n} was applied {counts[n]} times"
        order = sorted(zip(*(shown[c].to_pylist() for c in ("n", "_ts")), strict=True))
        assert [n for n, _ in order] == list(range(1, len(order) + 1)), f"{view}: one is missing"
        stamps = [ts for _, ts in order]
        assert stamps == sorted(stamps), f"{view}: ts against the order of commits"
        return stamps

    def _check_views(self, head: Head, ledgers: dict[str, list[int]]) -> None:
        exact = [each for name, each in head.views.items() if name != AGAIN]
        oldest = max(max(each.horizon, each.exact_ts) for each in exact)
        newest = min(each.ts for each in exact)
        days = self._days(head)
        stamps = {ts for each in ledgers.values() for ts in each} | {oldest, newest, *days}
        shown = {
            name: States(view_state.read_view_changes(self._root, head.views[name], 0))
            for name in sorted(self.views)
        }
        replay = Replay(self._project)
        for ts in sorted(ts for ts in stamps if oldest <= ts <= newest):
            passed = {LEDGERS[name]: bisect_right(each, ts) for name, each in ledgers.items()}
            replay.bring_forward(passed, days[max(each for each in days if each <= ts)])
            for name, states in shown.items():
                if name == AGAIN and ts not in states.stamps:
                    continue
                found, expected = states(ts), replay.rows_of(name)
                assert found == expected, f"{name} {_difference(ts, found, expected)}"
        replay.close()

    def _days(self, head: Head) -> dict[int, datetime.date]:
        """The day from each ts on, as far as the ledger tells; under 0 the first of them."""
        entries = [
            each
            for each in plan_files.load_ledger(self._root).entries
            if each.source == CLOCK and each.ts <= max(view.ts for view in head.views.values())
        ]
        last = [view.positions[CLOCK] for view in head.views.values() if CLOCK in view.positions]
        first = entries[0].after if entries else max(last, default=0)
        positions = {0: first, **{each.ts: each.until for each in entries}}
        return {ts: moment_of(position).date() for ts, position in positions.items()}

    def _check_history(self) -> None:
        """Of every transaction in the window that `history:` promises, all changes are kept."""
        folder = self._root / "history"
        index = read_index(folder)
        kept: Counter[tuple[str, int]] = Counter()
        for relation in index:
            for file in archive_files(folder, relation, -1):
                stamps: list[Any] = pq.read_table(file, columns=["_ts"])["_ts"].to_pylist()
                kept.update((relation.source, ts) for ts in stamps)
        for entry in plan_files.load_ledger(self._root).entries:
            mine = [kept_ for relation, kept_ in index.items() if relation.source == entry.source]
            whole = len(mine) == RELATIONS[entry.source]
            if whole and all(k.since < entry.ts <= k.through for k in mine):
                found = kept[entry.source, entry.ts]
                assert found == entry.changes, (
                    f"history of {entry.source} at ts {entry.ts}: {found} of {entry.changes}"
                )

    def check_no_orphans(self, head: Head) -> None:
        """No file in the warehouse that neither a table nor a record knows."""
        _, records = plan_files.load_records(self._root)
        known = {path for _, path in removed_files(records)}
        for view in head.views.values():
            folder = self._root / "views" / view.table
            active = {file.path for file in files_of(folder, view)}
            unknown = {path.name for path in folder.glob(PATTERN)} - active - known
            assert not unknown, f"{view.view}: files that nobody knows: {sorted(unknown)}"
        left = [str(path) for path in self._root.rglob(".new-*")]
        left += [str(path) for path in (self._root / "spool").iterdir()]
        assert not left, f"left behind: {left}"


class Replay:
    """The applications' databases as one, brought forward by the journal."""

    def __init__(self, project: Path) -> None:
        self._todo: dict[str, Iterator[list[Any]]] = {}
        self._done = dict.fromkeys(TABLES, 0)
        lines = [json.loads(line) for line in (project / JOURNAL).read_text().splitlines()]
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        for name in TABLES:
            mine = [line for line in lines if line[0] == name]
            assert [line[1] for line in mine] == list(range(1, len(mine) + 1)), "a torn journal"
            self._todo[name] = iter([line[2] for line in mine])
            for statement in TABLES[name]:
                self._connection.execute(statement)
            run_all(self._connection, first_rows(name))
        self._connection.execute("CREATE TABLE today (day TEXT)")
        for name, text in {"lines": JOIN_HERE, **reports_here()}.items():
            self._connection.execute(f"CREATE VIEW {name} AS {text}")

    def bring_forward(self, numbers: dict[str, int], day: datetime.date) -> None:
        """Apply so many transactions of each database; it is this day then."""
        self._connection.execute("DELETE FROM today")
        self._connection.execute("INSERT INTO today VALUES (?)", (day.isoformat(),))
        for name, number in numbers.items():
            while self._done[name] < number:
                run_all(self._connection, next(self._todo[name]))
                self._done[name] += 1

    def rows_of(self, view: str) -> Rows:
        """A view as SQLite computes it now."""
        return Counter(self._connection.execute(f"SELECT * FROM {view}").fetchall())

    def close(self) -> None:
        self._connection.close()


class States:
    """The state as of growing ts, from signed rows."""

    def __init__(self, changes: pa.Table) -> None:
        self._columns = [name for name in changes.column_names if name not in ("_ts", "_count")]
        self.stamps = {*changes["_ts"].to_pylist()}
        """The ts at which something changed."""
        self._changes = iter(sorted(changes.to_pylist(), key=lambda row: int(row["_ts"])))
        self._next = next(self._changes, None)
        self._rows: Rows = Counter()

    def __call__(self, ts: int) -> Rows:
        while self._next is not None and self._next["_ts"] <= ts:
            row = tuple(self._next[name] for name in self._columns)
            self._rows[row] += self._next["_count"]
            self._next = next(self._changes, None)
        assert min(self._rows.values(), default=0) >= 0, f"a negative count at ts {ts}"
        return +self._rows


def _difference(ts: int, found: Rows, expected: Rows) -> str:
    return f"as of ts {ts}: too much {found - expected}, missing {expected - found}"
