"""Random damage of a finished project's warehouse, and then everything that a user would do.

A project over SQLite and files, with several views, merged, folded and with kept changes, is
copied; one file of its warehouse, of any kind, is damaged. Two of the views are reports: groups of
another view, whose fold has a table inside the graph and an index, and a left join of these groups.
Then come `status`, a scrub, both readers, `verify`, a new batch and the readers again. Each of them
ends right or with an error of ours: *silently wrong* is 0, and so are other exceptions.

What Spark does costs most. It reads the damaged view, or one by chance; and it recomputes that view
(`verify`) wherever nothing else has found anything, which is where something could be hidden.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import LINES, Shop, rows_of
from tests.faults.damage import Outcome, damage_one, relative_files
from tests.faults.tally import Faults
from viewkeeper.engine.batch.state_indexes import FOLDER
from viewkeeper.engine.operations.project_status import gather_status
from viewkeeper.engine.project import Project
from viewkeeper.engine.settings.project_file import read_settings
from viewkeeper.engine.spark.task_errors import Courier
from viewkeeper.errors import ViewkeeperError
from viewkeeper.warehouse.rows import spark_frames
from viewkeeper.warehouse.scrub import scrub_warehouse

DAMAGES = int(os.environ.get("VIEWKEEPER_DAMAGES", "1000"))
SEED = int(os.environ.get("VIEWKEEPER_FAULT_SEED", "1"))

VIEWS = {
    "lines": LINES,
    "customers": "SELECT id, name, city FROM crm.customer",
    "ratings": "SELECT product, stars FROM stock.rating",
    "sales": """SELECT name, count(*) AS n, count(DISTINCT title) AS titles, max(cents) AS top
FROM lines GROUP BY name HAVING count(*) > 2""",
    "cities": """SELECT c.city, c.name, s.n, s.top
FROM crm.customer c LEFT JOIN sales s ON s.name = c.name""",
}
PARENTS = {"sales": "lines", "cities": "sales"}
SETTINGS = """  stock: {kind: files, path: stock, format: csv, settle_seconds: 0,
    tables: {rating: {columns: {product: bigint, stars: bigint}}}}
retention: 1s
history: 1h
"""

Rows = Counter[tuple[Any, ...]]


class World(Shop):
    """The shop, with a folder of files beside its databases."""

    def change(self, number: int) -> None:
        """One transaction in every source."""
        self.execute("crm", f"UPDATE customer SET name = name || {number} WHERE id = {number % 8}")
        self.execute(
            "shop",
            f"INSERT INTO orders VALUES ({1000 + number}, {number % 8}, '2024-01-31')",
            f"INSERT INTO item VALUES ({1000 + number}, {number % 5}, 2)",
            f"DELETE FROM item WHERE order_id = {number}",
        )
        self.write_ratings(number)

    def write_ratings(self, number: int) -> None:
        rows = [f"{product},{(product * number) % 7}" for product in range(number % 5 + 20)]
        fresh = self.folder / "stock" / ".rating"
        fresh.write_text("\n".join(["product,stars", *rows]) + "\n")
        fresh.rename(self.folder / "stock" / "rating.csv")

    def right_rows(self) -> dict[str, Rows]:
        lines = (self.folder / "stock" / "rating.csv").read_text().splitlines()[1:]
        ratings = Counter(tuple(map(int, line.split(","))) for line in lines)
        return {
            "ratings": ratings,
            **{view: self.recomputed(text_of(view)) for view in VIEWS if view != "ratings"},
        }


def text_of(view: str) -> str:
    """The SQL of a view over base tables alone: the view that it reads is a derived table."""
    sql, parent = VIEWS[view], PARENTS.get(view)
    return sql if parent is None else f"WITH {parent} AS ({text_of(parent)})\n{sql}"


def world_in(folder: Path) -> World:
    """The world of a copied folder."""
    world = World.__new__(World)
    world.folder, world.views = folder, VIEWS
    return world


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "project"
    (folder / "stock").mkdir(parents=True)
    world = World(folder, VIEWS, SETTINGS)
    world.fill()
    world.write_ratings(0)
    with viewkeeper.open(folder, spark=spark) as project:
        for number in range(1, 13):
            assert project.refresh().waiting == {}
            world.change(number)
            if number == 6:
                time.sleep(1.1)
                project.compact()
        assert project.refresh().waiting == {}
        assert {v: rows_of(project.view(v)) for v in VIEWS} == world.right_rows()
        assert any(view.is_inner for view in project.newest_head().views.values())
    assert any((folder / "warehouse" / FOLDER).rglob("*.arrow")), "no index of a fold to damage"
    return folder


@dataclass
class Ordeal:
    """One damaged copy, and what may be seen of it."""

    folder: Path
    spark: SparkSession
    suspect: str
    refused: list[str] = field(default_factory=list)

    def run(self) -> bool:
        """Whether anything was refused; an AssertionError if something was wrong silently."""
        world = world_in(self.folder)
        old = world.right_rows()
        self._try("status", self._see_status)
        self._try("scrub", self._see_scrub)
        self._read_arrow({view: [rows] for view, rows in old.items()})
        self._try("spark", lambda: self._read_spark(old[self.suspect]))
        if not self.refused:
            self._try("verify", self._verify)
        world.change(40)
        late = set(VIEWS)
        with suppress(ViewkeeperError):
            late = self._refresh()
        self.refused += [f"batch {view}" for view in late]
        new = world.right_rows()
        self._read_arrow(
            {view: [new[view], *([old[view]] if view in late else [])] for view in VIEWS}
        )
        return bool(self.refused)

    def _try(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except ViewkeeperError:
            self.refused.append(what)

    def _see_status(self) -> None:
        if not gather_status(read_settings(self.folder), time.time()).ok:
            self.refused.append("status")

    def _see_scrub(self) -> None:
        if not scrub_warehouse(self.folder / "warehouse", (), lambda _: None).is_whole:
            self.refused.append("scrub")

    def _read_arrow(self, right: dict[str, list[Rows]]) -> None:
        """Read every view; each has one of the rows that are right for it."""

        def read_one(project: Project, view: str) -> None:
            assert rows_of(project.view(view)) in right[view], f"{view}: silently wrong by Arrow"

        def read_all() -> None:
            with viewkeeper.open(self.folder, spark=self.spark) as project:
                for view in VIEWS:
                    self._try(f"arrow {view}", partial(read_one, project, view))

        self._try("open", read_all)

    def _read_spark(self, right: Rows) -> None:
        with viewkeeper.open(self.folder, spark=self.spark) as project:
            frame = project.view(self.suspect).df()
            rows = Courier().run_job(lambda: Counter(map(tuple, frame.collect())))
        assert rows == right, f"{self.suspect}: silently wrong by Spark"

    def _verify(self) -> None:
        with viewkeeper.open(self.folder, spark=self.spark) as project:
            (found,) = project.verify([self.suspect])
        assert found.ok, f"{found.view}: right, and yet verify says that it is not"

    def _refresh(self) -> set[str]:
        """A new batch; the views that it left behind."""
        with viewkeeper.open(self.folder, spark=self.spark) as project:
            report = project.refresh(strict=False)
            views = project.newest_head().views
        return {v for v in VIEWS if v in report.waiting or v not in views or views[v].stopped}


def view_of(path: Path) -> str:
    """The view whose rows a file of a warehouse holds, shown, inside its graph or in an index."""
    if path.parts[0] not in ("views", FOLDER):
        return ""
    return path.parts[1].partition("-")[0]


@pytest.mark.campaign
def test_many_damages_of_a_project(
    finished: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, outcome = random.Random(SEED), Outcome()
    faults = Faults("damage of a file of a project's warehouse")
    paths = relative_files(finished / "warehouse")
    for number in range(DAMAGES):
        folder = tmp_path / f"copy-{number}"
        shutil.copytree(finished, folder)
        # Files that are small are otherwise read by Arrow, whoever asks.
        monkeypatch.setattr(spark_frames, "SMALL_ROWS", chance.choice((0, 100_000)))
        kind, path = damage_one(folder / "warehouse", paths, chance)
        view = view_of(path)
        ordeal = Ordeal(folder, spark, view if view in VIEWS else chance.choice([*VIEWS]))
        what = f"damage {number} of seed {SEED}: {kind} of {path}"
        with faults.attempt(what):
            try:
                refused = ordeal.run()
            except Exception as error:
                outcome.failed[kind] += 1
                print(what, repr(error)[:2000], flush=True)
                raise AssertionError(repr(error)) from error
            (outcome.refused if refused else outcome.harmless)[kind] += 1
        shutil.rmtree(folder)
        if number % 20 == 19:
            print(outcome, flush=True)
    print(outcome)
    faults.check(f"VIEWKEEPER_FAULT_SEED={SEED} make faults ARGS='tests/faults -k damages_of_a'")
