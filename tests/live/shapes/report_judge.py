"""What becomes of reports, seen beside the plain views: they follow exactly, or stop with a cause.

A report that stops has shown all of its table before, and shows that for good, whoever writes the
table later. A report above a view that has stopped stays as that view is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.live.shapes.case import Ending, Family, Moment, Subject
from tests.live.shapes.databases import Session
from tests.live.shapes.judge import Row, differences, shown_rows, stop_cause_complaint
from tests.live.shapes.lived import Lived
from tests.live.shapes.reports import Report
from viewkeeper.engine.project import Project


class ReportJudge:
    """Judges the reports over the tables of some subjects."""

    def __init__(
        self,
        project: Project,
        reports: Sequence[Report],
        lived: Lived,
        own: Session,
        side: Session,
    ) -> None:
        self._project = project
        self._reports = reports
        self._lived = lived
        self._own = own
        self._side = side
        self._before: dict[str, Counter[Row]] = {}

    def reports_of(self, subject: Subject) -> list[Report]:
        return [report for report in self._reports if report.subject.view == subject.view]

    def stopping(self, subject: Subject) -> list[Report]:
        """Reports that stop when their table changes, so that what they show last is remembered."""
        return [
            each
            for each in self.reports_of(subject)
            if self._ending_of(each) == "stops" and not self._stays(each)
        ]

    def has_caught_up(self, subject: Subject, at: int) -> bool:
        """Whether reports that are to stop show what their table has."""
        return not any(
            differences(self._last_rows(each), self._quiet_rows(each, self._expected(each, at)))
            for each in self.stopping(subject)
        )

    def remember(self, subject: Subject) -> None:
        """What reports show that are to stop; nobody writes the table just now."""
        for report in self.stopping(subject):
            self._before.setdefault(report.view, self._last_rows(report))

    def have_stopped(self, subject: Subject) -> bool:
        heads = self._project.newest_head().views
        return all(heads[each.view].stopped for each in self.stopping(subject))

    def following(self, subject: Subject) -> list[str]:
        """The reports of a subject that go on with it."""
        return [r.view for r in self.reports_of(subject) if self._ending_of(r) != "stops"]

    def left_behind(self) -> set[str]:
        """Reports that are to stop, or to stay with a view that does."""
        return {each.view for each in self._reports if self._ending_of(each) == "stops"}

    def complaint(self, subject: Subject, moment: Moment) -> str | None:
        """What is wrong with the reports of a subject after a moment, if anything."""
        wrongs = ((each.view, self._complaint(each, moment)) for each in self.reports_of(subject))
        return "; ".join(f"{view}: {wrong}" for view, wrong in wrongs if wrong) or None

    def _complaint(self, report: Report, moment: Moment) -> str | None:
        ending, subject = self._ending_of(report), report.subject
        if ending != "stops" or not subject.reached(moment):
            return self._exact_complaint(report, 0 if ending == "refused" else moment)
        if self._stays(report):
            return self._staying_complaint(report)
        head = self._project.newest_head().views[report.view]
        if wrong := stop_cause_complaint(
            head, subject.case.cause_of_reports or subject.case.causes
        ):
            return wrong
        return differences(self._last_rows(report), self._before[report.view]) or None

    def _stays(self, report: Report) -> bool:
        """Whether a report waits for good, as the view stops that it reads."""
        return report.kind == "above" and report.subject.case.ending(*self._way) == "stops"

    def _last_rows(self, report: Report) -> Counter[Row]:
        return self._quiet_rows(report, self._shown(report))

    def _quiet_rows(self, report: Report, rows: Counter[Row]) -> Counter[Row]:
        """What stays the same while nobody writes the table: names of groups go on, so of a report
        above a view what all groups have together."""
        return report.together(rows) if report.kind == "above" else rows

    def _staying_complaint(self, report: Report) -> str | None:
        """What is wrong with a report above a view that has stopped; it has not stopped itself."""
        if stopped := self._project.newest_head().views[report.view].stopped:
            return f"stopped: {stopped}"
        columns, rows = shown_rows(self._project, report.subject.view)
        records = [dict(zip(columns, row, strict=True)) for row in rows.elements()]
        return differences(self._shown(report), report.rows_of(records)) or None

    def _exact_complaint(self, report: Report, at: int) -> str | None:
        head = self._project.newest_head().views[report.view]
        if head.stopped:
            return f"stopped: {head.stopped}"
        return differences(self._shown(report), self._expected(report, at)) or None

    def _expected(self, report: Report, at: int) -> Counter[Row]:
        return report.expected_rows(self._own, self._side, at)

    def _shown(self, report: Report) -> Counter[Row]:
        return shown_rows(self._project, report.view)[1]

    def _ending_of(self, report: Report) -> Ending:
        return report.subject.case.report_ending(report.kind, *self._way)

    @property
    def _way(self) -> tuple[str, Family]:
        """The database, and its family."""
        return self._lived.database.name, self._lived.database.family
