"""Reports over the changing tables: a fold, a window, and a fold of the plain view of each table.

Each shows every column that the case's plain view shows, so what happens to one of these happens to
the reports too; the first two read the table itself, the third reads the view. What they must show
is computed here, row by row in Python, from plain SELECTs over the tables as they are. One above a
view is a fold of what that view must show, or, where that has stopped, of what it shows: what that
may be is judged by itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from tests.live.shapes.case import ReportKind, Subject
from tests.live.shapes.databases import Session

Row = tuple[Any, ...]
Record = Mapping[str, Any]

REPORT_KINDS: tuple[ReportKind, ...] = ("fold", "window", "above")
Kinds = Callable[[int], Sequence[ReportKind]]
"""The kinds of reports that stand beside the plain view of each table, by its number."""


def every_kind(_: int) -> Sequence[ReportKind]:
    """All kinds beside each table."""
    return REPORT_KINDS


def by_turns(offset: int) -> Kinds:
    """One kind beside every other table, by turns; with another offset tables have another one."""

    def kinds(number: int) -> Sequence[ReportKind]:
        turn = (number + offset) % (2 * len(REPORT_KINDS))
        return () if turn % 2 else (REPORT_KINDS[turn // 2],)

    return kinds


@dataclass(frozen=True, slots=True)
class Report:
    """A report of some kind over the table of a subject, or over its plain view."""

    kind: ReportKind
    subject: Subject

    @property
    def view(self) -> str:
        return f"{self.kind}_{self.subject.view}"

    @property
    def columns(self) -> tuple[str, ...]:
        """What the case is about: what its plain view shows besides the columns of writers."""
        return tuple(name for name in self.subject.case.shown if name not in ("id", "k", "v"))

    @property
    def sql(self) -> str:
        """The SELECT of the report."""
        tops = "".join(f", max(t.{name}) AS {name}" for name in self.columns)
        sums = f"count(*) AS n, sum(t.v) AS total{tops}"
        table = f"db.{self.subject.table(0)} t"
        match self.kind:
            case "fold":
                return f"SELECT t.k, {sums} FROM {table} GROUP BY t.k"
            case "window":
                listed = "".join(f", t.{name}" for name in self.columns)
                place = "row_number() OVER (PARTITION BY t.k ORDER BY t.id) AS place"
                return f"SELECT t.id, t.k, t.v{listed}, {place} FROM {table}"
            case "above":
                return f"SELECT t.name, {sums} FROM {self.subject.view} t GROUP BY t.name"
            case _:
                assert_never(self.kind)

    def rows_of(self, records: Iterable[Record]) -> Counter[Row]:
        """What the report makes of rows of the table, or of its plain view."""
        key = "name" if self.kind == "above" else "k"
        groups: dict[Any, list[Record]] = defaultdict(list)
        for record in records:
            groups[record[key]].append(record)
        if self.kind == "window":
            return Counter(row for each in groups.values() for row in self._places_of(each))
        return Counter((value, *self._sums_of(each)) for value, each in groups.items())

    @staticmethod
    def together(rows: Counter[Row]) -> Counter[Row]:
        """What all groups of a fold have together."""
        columns = list(zip(*(row[1:] for row in rows.elements()), strict=True))
        tops = (
            max((each for each in column if each is not None), default=None)
            for column in columns[2:]
        )
        return Counter([(*map(sum, columns[:2]), *tops)])

    def _places_of(self, records: Sequence[Record]) -> Iterable[Row]:
        listed = ("id", "k", "v", *self.columns)
        ordered = sorted(records, key=lambda record: int(record["id"]))
        for place, record in enumerate(ordered, 1):
            yield (*(record[name] for name in listed), place)

    def _sums_of(self, records: Sequence[Record]) -> Row:
        tops = []
        for name in self.columns:
            known = [record[name] for record in records if record[name] is not None]
            tops.append(max(known, default=None))
        return (len(records), sum(record["v"] for record in records), *tops)

    def expected_rows(self, own: Session, side: Session, at: int) -> Counter[Row]:
        """What the report must show after a moment, if it goes on."""
        stands = self.subject.shows(at)
        names = ("id", "k", "v", *self.columns)
        listed = ", ".join(stands.get(name, name) for name in names)
        rows = own.run(f"SELECT {listed} FROM {self.subject.table(at)}")
        groups = {int(id): name for id, name in side.run("SELECT id, name FROM grp")}
        records = [dict(zip(names, row, strict=True)) for row in rows]
        return self.rows_of({**each, "name": groups[each["k"]]} for each in records)
