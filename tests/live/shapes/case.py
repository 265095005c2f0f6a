"""A case: one kind of schema change, as each database says it, and how a view must end.

A case has a table of its own, with one view over it. The change is made twice: while a maintainer
runs (moment 1), and once more, to another column or under another name, while none does (moment 2).
Where a view ends for good there are two tables, one for each moment. Moment 0 is before both.

Statements are templates: `{was}` and `{now}` are the names of the table before and after the
moment, `{c}` a column that the view shows (`a`, then `b`), `{u}` one that it does not (`u`, then
`w`), `{n}` the moment. What the view must show at each moment is said in SQL of the database itself
(`shows`), by the names that the columns have then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Family = Literal["sqlite", "postgres", "mariadb"]

Ending = Literal["exact", "stops", "refused", "none"]
"""The view goes on and is exact; it stops, its last state served; the database refuses the
statement; the database has no such statement."""

ReportKind = Literal["fold", "window", "above"]
"""What stands beside the plain view: a fold and a window of the table, a fold of that view."""

Moment = Literal[1, 2]

RUNNING: Moment = 1
DOWN: Moment = 2

SHOWN = {name: name for name in ("id", "v", "a", "b")}
COLUMNS = "a INTEGER, b INTEGER, u INTEGER, w INTEGER"


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of schema change.

    `sql` has the statements per family, or for those that it does not name under `any`; a family
    with none has no such statement. Cases that concern nothing that a view uses share a `table`.
    `names` are what the table is called at the moments, `{t}`
    being its own name; `other` is a table that it swaps names with; `apart` wants a table for each
    moment. `shown` is the view's select list without the other source's column; `shows` overrides,
    per moment, what its columns stand for (None: it is not shown any more). `endings` are those
    that are not `exact`, by variant or family; `causes` is what a stopped view must name. `reports`
    are endings of reports that differ, and `cause_of_reports` what those must name then.
    """

    name: str
    title: str
    sql: Mapping[str, tuple[str, ...]]
    table: str = ""
    columns: str = COLUMNS
    created: Mapping[str, str] = field(default_factory=dict)
    fill: tuple[str, ...] = ("a", "b")
    view: str = "SELECT t.id, t.v, t.a, t.b, g.name"
    shown: Mapping[str, str] = field(default_factory=lambda: SHOWN)
    shows: Mapping[int, Mapping[str, str | None]] = field(default_factory=dict)
    names: tuple[str, str, str] = ("{t}", "{t}", "{t}")
    other: str = ""
    apart: bool = False
    endings: Mapping[str, Ending] = field(default_factory=dict)
    causes: str = ""
    reports: Mapping[ReportKind, Ending] = field(default_factory=dict)
    cause_of_reports: str = ""
    evolution: str = ""
    substitutes: tuple[str, ...] = ()
    approved: bool = False
    note: str = ""

    def statements(self, family: Family) -> tuple[str, ...]:
        return self.sql[family] if family in self.sql else self.sql.get("any", ())

    def ending(self, variant: str, family: Family) -> Ending:
        if not self.statements(family):
            return "none"
        return self.endings.get(variant) or self.endings.get(family) or "exact"

    def report_ending(self, kind: ReportKind, variant: str, family: Family) -> Ending:
        """How a report of some kind over the table must end; as the plain view by default."""
        plain = self.ending(variant, family)
        return plain if plain in ("none", "refused") else self.reports.get(kind, plain)


@dataclass(frozen=True, slots=True)
class Subject:
    """A table that a case changes, with its view.

    `called` is what it is called at the moments. Of two that one statement changes, one `leads`.
    """

    case: Case
    called: tuple[str, str, str]
    moments: tuple[Moment, ...] = (RUNNING, DOWN)
    leads: bool = True

    @property
    def view(self) -> str:
        return f"of_{self.called[0]}"

    def reached(self, at: int) -> int:
        """The last moment up to `at` at which something happens to it."""
        return max((m for m in self.moments if m <= at), default=0)

    def table(self, at: int) -> str:
        """What the table is called after a moment."""
        return self.called[self.reached(at)]

    def shows(self, at: int) -> dict[str, str]:
        """What the view's columns stand for after a moment."""
        found: dict[str, str | None] = dict(self.case.shown)
        for moment in self.moments:
            if moment <= at:
                found |= self.case.shows.get(moment, {})
        return {name: sql for name, sql in found.items() if sql is not None}

    def statements(self, family: Family, moment: Moment) -> list[str]:
        facts = {
            "was": self.table(moment - 1),
            "now": self.table(moment),
            "c": "ab"[moment - 1],
            "u": "uw"[moment - 1],
            "n": str(moment),
            "columns": self.case.columns,
        }
        return [sql.format(**facts) for sql in self.case.statements(family)]


def subjects_of(case: Case, ending: Ending) -> tuple[Subject, ...]:
    """The tables of a case: one, one for each moment if it ends the view, or two that swap."""
    if ending == "none":
        return ()
    if ending == "stops" or case.apart:
        names = {m: f"{case.name}_{m}" for m in (RUNNING, DOWN)}
        return tuple(Subject(case, (name, name, name), (m,)) for m, name in names.items())
    first, second, third = (name.format(t=case.table or case.name) for name in case.names)
    if case.other:
        other = Subject(case, (case.other, first, case.other), leads=False)
        return (Subject(case, (first, case.other, first)), other)
    return (Subject(case, (first, second, third)),)
