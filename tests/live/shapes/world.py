"""One database with all its cases: written to, changed, maintained, and what came of every view.

Everything of a database lives in one project: each case has its table, a view of it and reports
beside that, and is a witness that the others leave it alone. First a maintainer runs while tables
change their shape (moment 1), then tables change while none does (moment 2) and another one takes
over; writers go on throughout, but for the two times when the judge looks. What goes wrong with a
case is written down as its ending, so that one case does not hide another.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import viewkeeper
from tests.live.shapes.case import DOWN, RUNNING, Case, Subject, subjects_of
from tests.live.shapes.databases import Database, Session, Sqlite, session
from tests.live.shapes.lived import Lived, Troubles
from tests.live.shapes.reports import Kinds, Report, every_kind
from tests.live.shapes.scene import Scene
from tests.live.shapes.writers import GROUPS, SEEDS, Writers
from viewkeeper.engine.project import Project


class World:
    """A project over one database and a small SQLite database beside it."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        cases: Sequence[Case],
        kinds: Kinds = every_kind,
    ) -> None:
        self.folder = folder
        self.database = database
        self.side = Sqlite(folder / "side.db")
        self.subjects = [
            subject
            for case in cases
            for subject in subjects_of(case, case.ending(database.name, database.family))
        ]
        self.tables = list({subject.view: subject for subject in self.subjects}.values())
        self.reports = [
            Report(kind, subject)
            for number, subject in enumerate(self.tables)
            for kind in kinds(number)
        ]
        self.lived = Lived(database, cases)
        self._create()

    def _create(self) -> None:
        self.side.create()
        self.database.create()
        with session(self.side) as side:
            side.run("CREATE TABLE grp (id INTEGER PRIMARY KEY, name TEXT)")
            for group in range(GROUPS):
                side.run(f"INSERT INTO grp VALUES ({group}, 'group {group}')")
        with session(self.database) as own:
            for subject in self.tables:
                self._create_table(own, subject)
        (self.folder / "views").mkdir()
        for subject in self.tables:
            sql = f"{subject.case.view} FROM db.{subject.table(0)} t JOIN side.grp g ON g.id = t.k"
            text = f"CREATE MATERIALIZED VIEW {subject.view} AS\n{sql};\n"
            (self.folder / "views" / f"{subject.view}.sql").write_text(text)
        for report in self.reports:
            text = f"CREATE MATERIALIZED VIEW {report.view} AS\n{report.sql};\n"
            (self.folder / "views" / f"{report.view}.sql").write_text(text)
        (self.folder / "viewkeeper.yml").write_text(self._settings())

    def _create_table(self, own: Session, subject: Subject) -> None:
        case, table = subject.case, subject.table(0)
        columns = case.created.get(self.database.family, case.columns)
        own.run(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, k INTEGER, v INTEGER, {columns})")
        if self.database.family == "postgres":
            own.run(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
        names = ", ".join(("id", "k", "v", *case.fill))
        for n in range(1, SEEDS + 1):
            values = ", ".join(map(str, (n, n % GROUPS, n, *[n * 3] * len(case.fill))))
            own.run(f"INSERT INTO {table} ({names}) VALUES ({values})")

    def _settings(self) -> str:
        lines = [
            "warehouse: ./warehouse",
            "freshness: 500ms",
            "batch: {inline_rows: 1000000}",
            "sources:",
            f"  db: {self.database.source()}",
            f"  side: {self.side.source()}",
        ]
        substitutes = [
            f"  - {line.format(t=s.table(0))}" for s in self.tables for line in s.case.substitutes
        ]
        views = [
            f"  {s.view}: {{evolution: {{{s.case.evolution}}}}}"
            for s in self.tables
            if s.case.evolution
        ]
        lines += ["substitutes:", *substitutes] if substitutes else []
        lines += ["views:", *views] if views else []
        return "\n".join(lines) + "\n"

    # -- the story -----------------------------------------------------------------------------

    def live(self, spark: SparkSession, verified: Sequence[str]) -> Lived:
        """The whole story, and the verification of some cases; what went wrong is written down."""
        writers = Writers(self.database, self.side, self.tables)
        with (
            viewkeeper.open(self.folder, spark=spark) as project,
            session(self.database) as own,
            session(self.side) as side,
        ):
            loaded = project.refresh(strict=False)
            assert loaded.waiting == {}, loaded.waiting
            watched = (self.subjects, self.reports)
            scene = Scene(project, *watched, self.lived, writers, own, side)
            with writers:
                # What views show that stop next is remembered after the maintainer's last batch:
                # writers go on when it has ended.
                with ExitStack() as held:
                    with self._running(project):
                        writers.wait_for(30)
                        scene.change_all(RUNNING)
                        scene.see_others_advance()
                        held.enter_context(writers.all_held())
                        scene.settle(RUNNING)
                    scene.remember(DOWN)
                writers.wait_for(20)
                scene.change_all(DOWN)
                with self._running(project):
                    writers.wait_for(30)
                    with writers.all_held():
                        scene.settle(DOWN)
            scene.end(verified)
        return self.lived

    @contextmanager
    def _running(self, project: Project) -> Iterator[None]:
        """A maintainer in a thread, as `viewkeeper run` is."""
        stop, troubles = threading.Event(), Troubles()

        def run() -> None:
            try:
                project.run(troubles, stop)
            except Exception as error:  # noqa: BLE001 - a test asserts that there was none
                self.lived.died.append(f"{type(error).__name__}: {error}")

        thread = threading.Thread(target=run, name="maintainer")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.lived.told += troubles.told
