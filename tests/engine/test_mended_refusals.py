"""A view that was refused for what a source has is bound again by a run, when that has changed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.cli.conftest import call
from tests.engine.running_project import running, wait_until
from tests.engine.shop import LINES, Shop, rows_of
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import SilentObserver, StateChange
from viewkeeper.engine.views.mended_refusals import MendedRefusals
from viewkeeper.engine.views.trouble_retries import RETRY_SECONDS_MAX, TroubleRetries
from viewkeeper.errors import DefinitionError, SchemaError
from viewkeeper.view.definition import Graph
from viewkeeper.warehouse.metadata.definition_version import DefinitionTable

NOTES = "SELECT n.id, n.text FROM crm.note n"
COUNTS = "SELECT n.text, count(*) AS many FROM crm.note n GROUP BY n.text"
TABLE = "CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)"


class Heard(SilentObserver):
    def __init__(self) -> None:
        self.kinds: list[tuple[str, str | None]] = []

    def on_state_change(self, change: StateChange) -> None:
        self.kinds.append((change.kind, change.view))


def is_exact(project: Project, name: str, expected: object) -> bool:
    return name in project.newest_head().views and rows_of(project.view(name)) == expected


def test_a_table_that_comes_later(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, {"lines": LINES, "notes": NOTES, "counts": COUNTS})
    shop.fill()
    with running(shop.folder, spark) as project:
        wait_until(lambda: is_exact(project, "lines", shop.recomputed(LINES)))
        problem = call("-p", str(shop.folder), "status").output
        assert "note" in problem
        shop.execute("crm", TABLE)
        shop.execute("crm", "INSERT INTO note VALUES (1, 'a'), (2, 'a')")
        wait_until(lambda: is_exact(project, "notes", shop.recomputed(NOTES)))
        wait_until(lambda: is_exact(project, "counts", shop.recomputed(COUNTS)))
        shop.execute("crm", "UPDATE note SET text = 'b' WHERE id = 2")
        wait_until(lambda: is_exact(project, "notes", shop.recomputed(NOTES)))
        wait_until(lambda: is_exact(project, "counts", shop.recomputed(COUNTS)))
        assert is_exact(project, "lines", shop.recomputed(LINES))


def test_a_column_that_comes_later(tmp_path: Path, spark: SparkSession) -> None:
    colour = "SELECT c.id, c.colour FROM crm.customer c"
    shop = Shop(tmp_path, {"lines": LINES, "colours": colour})
    shop.fill()
    with running(shop.folder, spark) as project:
        wait_until(lambda: is_exact(project, "lines", shop.recomputed(LINES)))
        shop.execute("crm", "ALTER TABLE customer ADD COLUMN colour TEXT")
        shop.execute("crm", "UPDATE customer SET colour = 'red' WHERE id < 3")
        wait_until(lambda: is_exact(project, "colours", shop.recomputed(colour)))


def test_a_run_waits_for_the_table_of_its_only_view(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, {"notes": NOTES})
    with running(shop.folder, spark) as project:
        wait_until(lambda: "note" in call("-p", str(shop.folder), "status").output)
        shop.execute("crm", TABLE)
        shop.execute("crm", "INSERT INTO note VALUES (1, 'a')")
        wait_until(lambda: is_exact(project, "notes", shop.recomputed(NOTES)))


def test_one_round_does_not_wait(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, {"notes": NOTES})
    once = call("-p", str(shop.folder), "run", "--once", spark=spark)
    assert once.exit_code == 2
    assert "note" in once.stderr


def test_a_run_does_not_wait_for_texts(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, {"names": "SELECT c.nme FROM crm.customer c"})
    with (
        viewkeeper.open(shop.folder, spark=spark) as project,
        pytest.raises(DefinitionError, match="nme"),
    ):
        project.run(stop=threading.Event())


def test_spark_is_asked_again_only_about_other_tables(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, {"lines": LINES, "counts": COUNTS, "notes": NOTES})
    asked, time, heard = [], [0.0], Heard()

    def refuse_text(name: str, text: str, tables: Sequence[DefinitionTable]) -> Graph:
        asked.append(name)
        raise DefinitionError("it is wrong")

    shop.execute("crm", TABLE)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.catalogue.use_compiler(refuse_text)
        with project.open_maintainer("test", heard) as maintainer:
            maintainer.start_run()
            choices = maintainer.choices
            assert (asked, {*choices.refused}) == (["counts"], {"counts"})
            refusals = MendedRefusals(maintainer.workspace, choices, lambda: time[0])

            def pass_minutes(count: int) -> None:
                for _ in range(2 * count):
                    refusals.retry_refused()
                    time[0] += RETRY_SECONDS_MAX / 2

            pass_minutes(10)
            assert asked == ["counts"]
            shop.execute("crm", "ALTER TABLE note ADD COLUMN more TEXT")
            pass_minutes(10)
            assert asked == ["counts"] * 2
            shop.execute("crm", "DROP TABLE note")
            pass_minutes(2)
            assert isinstance(choices.refused["counts"], SchemaError)
            project.catalogue.use_compiler(lambda *_: pytest.fail("there is no table to ask about"))
            pass_minutes(2)
            project.catalogue.use_compiler(refuse_text)
            shop.execute("crm", TABLE)
            pass_minutes(2)
            assert asked == ["counts"] * 3
            assert "it is wrong" in str(choices.refused["counts"])
            assert ("view_resumed", "counts") not in heard.kinds


def test_an_observer_hears_of_both(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, {"lines": LINES, "notes": NOTES})
    time, heard = [0.0], Heard()
    with (
        viewkeeper.open(shop.folder, spark=spark) as project,
        project.open_maintainer("test", heard) as maintainer,
    ):
        maintainer.start_run()
        refusals = MendedRefusals(maintainer.workspace, maintainer.choices, lambda: time[0])
        for statement in ((), (TABLE,)):
            shop.execute("crm", *statement)
            for _ in range(3):
                refusals.retry_refused()
                time[0] += RETRY_SECONDS_MAX
            maintainer.states.compare_states(now=True)
        assert heard.kinds == [("view_refused", "notes"), ("view_resumed", "notes")]
        assert "notes" in maintainer.choices


def test_a_view_that_fails_for_weeks_is_tried_once_a_minute() -> None:
    time = [0.0]
    retries = TroubleRetries(lambda: time[0])
    pauses = []
    for _ in range(2000):
        retries.note_failure("v")
        began = time[0]
        while not retries.take_due():
            time[0] += 1
        pauses.append(time[0] - began)
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert {*pauses[7:]} == {RETRY_SECONDS_MAX}
