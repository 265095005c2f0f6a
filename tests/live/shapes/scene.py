"""The hands that change tables under the writers, and the eyes that judge what views make of it.

A view that is to stop has caught up before, and nobody writes its table any more, so that its last
state is known; all others are changed in the midst of the writing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tests.live.shapes.case import RUNNING, Ending, Moment, Subject
from tests.live.shapes.databases import ERRORS, Session
from tests.live.shapes.judge import Row, complaint, shown, stop_complaint
from tests.live.shapes.lived import Lived
from tests.live.shapes.report_judge import ReportJudge
from tests.live.shapes.reports import Report
from tests.live.shapes.writers import Writers
from viewkeeper.engine.project import Project
from viewkeeper.errors import ProjectError
from viewkeeper.warehouse.metadata.head import ViewHead

SETTLE_SECONDS = 240.0
BETWEEN_SECONDS = 0.05
POLL_SECONDS = 0.25


class Scene:
    """The hands that change tables, and the eyes that judge."""

    def __init__(
        self,
        project: Project,
        subjects: Sequence[Subject],
        reports: Sequence[Report],
        lived: Lived,
        writers: Writers,
        own: Session,
        side: Session,
    ) -> None:
        self._project = project
        self._subjects = subjects
        self._lived = lived
        self._writers = writers
        self._own = own
        self._side = side
        self._reports = ReportJudge(project, reports, lived, own, side)
        self._before: dict[str, Counter[Row]] = {}
        self._moment = RUNNING

    def _of(self, moment: Moment, ending: Ending) -> list[Subject]:
        return [s for s in self._subjects if moment in s.moments and self._ends(s) == ending]

    def change_all(self, moment: Moment) -> None:
        """Every change of a moment, one after the other, under the writers' eyes."""
        self._moment = moment
        for subject in self._subjects:
            if subject.leads and moment in subject.moments:
                if self._ends(subject) == "stops":
                    self._quiet(subject, moment)
                    self._change(subject, moment)
                elif moment == RUNNING and self._reports.stopping(subject):
                    self._change_below_reports(subject, moment)
                else:
                    self._change(subject, moment)
                time.sleep(BETWEEN_SECONDS)

    def _quiet(self, subject: Subject, moment: Moment) -> None:
        """Before a view is to stop it has caught up, so that its last state is known."""
        if moment == RUNNING:
            self._writers.hold(subject)
            self._wait(lambda: self._caught_up(subject))
            _, self._before[subject.view] = shown(self._project, subject)
            self._reports.remember(subject)
        self._writers.gone.add(subject.view)

    def _change_below_reports(self, subject: Subject, moment: Moment) -> None:
        """A change that stops the reports of a table, but not its plain view."""
        self._writers.hold(subject)
        self._wait(lambda: self._reports.has_caught_up(subject, moment - 1))
        self._reports.remember(subject)
        self._change(subject, moment)
        self._wait(lambda: self._reports.have_stopped(subject))
        self._writers.release(subject)

    def _caught_up(self, subject: Subject) -> bool:
        columns, rows = shown(self._project, subject)
        (count,) = self._own.run(f"SELECT count(*), sum(v) FROM {subject.table(0)}")
        at = columns.index("v")
        if count != (rows.total(), sum(row[at] * n for row, n in rows.items())):
            return False
        return self._reports.has_caught_up(subject, 0)

    def _change(self, subject: Subject, moment: Moment) -> None:
        case = subject.case
        statements = subject.statements(self._lived.database.family, moment)
        try:
            self._own.run(*statements)
        except ERRORS as error:
            self._lived.endings[case.name, moment] = "refused"
            self._lived.told.append(f"{case.name}: {error}")
            if statements[0] == "BEGIN":
                with suppress(*ERRORS):
                    self._own.run("ROLLBACK")

    def see_others_advance(self) -> None:
        """After views have stopped, the others of the same source go on under the writers."""
        stops = {s.view for s in self._of(RUNNING, "stops")}
        self._wait(lambda: all(self._heads()[view].stopped for view in stops))
        views = {s.view for s in self._subjects} - stops
        before = {view: self._heads()[view].ts for view in views}

        def stayed() -> list[str]:
            self._approve()
            heads = self._heads()
            return sorted(view for view in views if heads[view].ts <= before[view])

        self._wait(lambda: not stayed())
        self._lived.stayed = stayed()

    def remember(self, moment: Moment) -> None:
        """What the views show that are going to stop; nobody writes their tables any more."""
        for subject in self._of(moment, "stops"):
            self._writers.hold(subject)
            _, self._before[subject.view] = shown(self._project, subject)
            self._reports.remember(subject)

    def settle(self, moment: Moment) -> None:
        """Wait until every view has ended as it should, and write down what has not."""
        complaints: dict[str, str | None] = {s.view: "not seen yet" for s in self._subjects}

        def settled() -> bool:
            self._approve()
            for subject in self._subjects:
                if complaints[subject.view] is not None:
                    wrong = self._complaint(subject, moment)
                    complaints[subject.view] = wrong or self._reports.complaint(subject, moment)
            return not any(complaints.values())

        self._wait(settled)
        for subject in self._subjects:
            self._write_down(subject, moment, complaints[subject.view])

    def _write_down(self, subject: Subject, moment: Moment, wrong: str | None) -> None:
        case = subject.case
        if wrong is not None:
            self._lived.complain(case, moment, f"{subject.view}: {wrong}")
        if moment in subject.moments and wrong is None:
            self._lived.endings.setdefault((case.name, moment), self._ends(subject))

    def _complaint(self, subject: Subject, moment: Moment) -> str | None:
        ending = self._ends(subject)
        if ending == "stops" and subject.reached(moment):
            _, now = shown(self._project, subject)
            names = self._writers.names if subject.moments == (RUNNING,) else None
            head, before = self._heads()[subject.view], self._before[subject.view]
            return stop_complaint(head, subject.case.causes, now, before, names)
        at = 0 if ending == "refused" else moment
        return complaint(self._project, self._own, self._side, subject, at)

    def _approve(self) -> None:
        """A held view serves its last state until somebody approves."""
        for subject in self._subjects:
            if subject.case.approved and self._project.proposals().read_proposal(subject.view):
                self._lived.held.add((subject.case.name, self._moment))
                # The maintainer may have taken the proposal back just now.
                with suppress(ProjectError):
                    self._project.proposals().answer_proposal(subject.view, "approve")

    def end(self, verified: Sequence[str]) -> None:
        """Nothing waits that should not, and recomputation from the sources agrees."""
        report = self._project.refresh(strict=False)
        stops = {s.view for s in self._subjects if self._ends(s) == "stops"}
        for view in report.waiting.keys() - stops - self._reports.left_behind():
            self._lived.failures.append(f"{view} waits: {report.waiting[view]}")
        self._lived.failures += self._writers.failures
        heads = self._heads()
        self._lived.versions = {view: len(head.versions) for view, head in heads.items()}
        chosen = dict.fromkeys(
            view
            for subject in self._subjects
            if subject.case.name in verified
            for view in (subject.view, *self._reports.following(subject))
        )
        going = [view for view in chosen if not heads[view].stopped]
        for each in self._project.verify(going) if going else ():
            self._lived.verified[each.view] = each.differences.to_pylist()

    def _ends(self, subject: Subject) -> Ending:
        database = self._lived.database
        return subject.case.ending(database.name, database.family)

    def _heads(self) -> Mapping[str, ViewHead]:
        return self._project.newest_head().views

    def _wait(self, reached: Callable[[], bool]) -> None:
        """Wait, not forever: what was not reached is found wrong later."""
        end = time.monotonic() + SETTLE_SECONDS
        while not reached() and time.monotonic() < end and not self._lived.died:
            time.sleep(POLL_SECONDS)
