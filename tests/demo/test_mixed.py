"""One view over PostgreSQL, MariaDB, SQLite, files and Delta Lake is right in every state.

A short run with writers on all five, judged as the demo judges itself; and the judge, who sees the
five through SQLite mirrors, finds whatever is made wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from tests.demo.conftest import Run, run_in
from tests.demo.test_judge import (
    Rows,
    alter_a_line,
    changed,
    drop_a_row,
)
from viewkeeper.cli.commands.demo_command import report_data, result_sentences
from viewkeeper.cli.main import cli
from viewkeeper.demo.demo_world import DemoSizes
from viewkeeper.demo.judge.evidence import JudgedDatabase, read_journals
from viewkeeper.demo.judge.independent_judge import (
    expected_feed,
    judge_evidence,
    judge_final,
    judge_ledgers,
    judge_states,
)
from viewkeeper.demo.mixed_world import QUESTION, MixedWorld
from viewkeeper.demo.writers import folder_writer, lake_writer, server_writer
from viewkeeper.demo.writers.server_writer import PASSWORD

SMALL = DemoSizes(customers=60, orders=150, items=450, products=40, imported=260)
ALL = ["shop", "crm", "catalogue", "prices", "ratings"]


@pytest.fixture(scope="module")
def mixed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        # The session's Java is older than the password in our environment.
        patch.setitem(spark.sparkContext.environment, PASSWORD, "secret")
        yield from run_in(MixedWorld(tmp_path_factory.mktemp("mixed"), SMALL), spark, 2.0)


def test_every_state_is_right(mixed: Run) -> None:
    verdict = mixed.result.verdict
    assert verdict.ok, "\n".join(map(str, verdict.findings))
    assert not mixed.result.meter.troubles
    assert verdict.transactions == mixed.result.written.total.transactions
    assert verdict.changes == mixed.result.written.total.changes


def test_all_five_change_and_are_asked(mixed: Run) -> None:
    result = mixed.result
    assert list(result.captured) == ALL
    for name in ALL:
        assert result.written.counts[name].transactions > 3, name
        assert result.written.counts[name].changes > 3, name
        assert result.meter.lookups_of(name) > 0, name
    assert result.written.writers == {
        "shop": 3,
        "crm": 2,
        "catalogue": 1,
        "prices": 1,
        "ratings": 1,
    }


def test_batches_run_inline_and_on_spark(mixed: Run) -> None:
    meter, written = mixed.result.meter, mixed.result.written.total
    assert meter.inline_batches > 0
    assert meter.spark_batches > 0
    assert 0 < meter.changes <= written.changes + written.transactions


def test_databases_with_a_log_of_commits_report_each_one(mixed: Run) -> None:
    for name in ("shop", "crm", "ratings"):
        columns = (mixed.claim.ledgers[name][column].to_pylist() for column in ("n", "_ts"))
        stamps = [ts for _, ts in sorted(zip(*columns, strict=True)) if ts > mixed.claim.since]
        assert len(stamps) == len(set(stamps)) > 0, name


def test_the_report_says_what_became_of_each_source(mixed: Run) -> None:
    body = json.loads(json.dumps(report_data(mixed.result, 3.0, 7)))
    assert set(body["sources"]) == set(ALL)
    assert body["written"]["writers"] == 8
    text = "\n".join(result_sentences(mixed.result))
    for words in ("PostgreSQL by logical decoding", "MariaDB by its row binlog", "5 databases"):
        assert words in text


@pytest.fixture(scope="module")
def expected(spark: SparkSession, mixed: Run) -> Iterator[DataFrame]:
    journals = read_journals(mixed.evidence)
    feed = expected_feed(spark, mixed.evidence, journals, QUESTION, mixed.claim).persist()
    yield feed
    feed.unpersist()


def move_a_moment(rows: Rows) -> None:
    """By a microsecond."""
    rows[-1]["rated_at"] = rows[-1]["rated_at"].replace(
        microsecond=(rows[-1]["rated_at"].microsecond + 1) % 1_000_000
    )


def add_a_cent(rows: Rows) -> None:
    rows[-1]["amount"] += type(rows[-1]["amount"])("0.01")


@pytest.mark.parametrize("change", [drop_a_row, move_a_moment])
def test_a_wrong_feed_is_found(
    spark: SparkSession, expected: DataFrame, mixed: Run, change: Callable[[Rows], object]
) -> None:
    feed = changed(mixed.feed, change)
    finding = judge_states(expected, replace(mixed.claim, feed=spark.createDataFrame(feed)))
    assert 1 <= finding.differing <= 2


@pytest.mark.parametrize("change", [drop_a_row, move_a_moment, add_a_cent])
def test_a_wrong_final_state_is_found(mixed: Run, change: Callable[[Rows], object]) -> None:
    wrong = replace(mixed.claim, state=changed(mixed.claim.state, change))
    assert not judge_final(mixed.evidence, QUESTION, wrong).ok


def move_the_first_behind(rows: Rows) -> None:
    """The first transaction comes after all others, also where a busy run read all at one ts."""
    min(rows, key=lambda row: row["n"])["_ts"] = max(row["_ts"] for row in rows) + 1


@pytest.mark.parametrize("database", ALL)
def test_a_wrong_ledger_or_journal_is_found(mixed: Run, tmp_path: Path, database: str) -> None:
    journals = read_journals(mixed.evidence)
    ledger = changed(mixed.claim.ledgers[database], move_the_first_behind)
    claim = replace(mixed.claim, ledgers={**mixed.claim.ledgers, database: ledger})
    assert database in str(judge_ledgers(journals, claim))
    real = mixed.evidence[database]
    first, *others = real.journals
    lines = first.read_text().splitlines()
    alter_a_line(lines)
    spoiled = tmp_path / "spoiled.jsonl"
    spoiled.write_text("\n".join(lines))
    evidence = {
        **mixed.evidence,
        database: JudgedDatabase(real.copy, real.final, (spoiled, *others)),
    }
    assert not judge_evidence(evidence, read_journals(evidence), QUESTION).ok


def test_the_password_is_in_no_file_of_the_project(mixed: Run) -> None:
    folder = mixed.evidence["shop"].copy.parents[1]
    files = [folder / "viewkeeper.yml", *(folder / "warehouse").rglob("*")]
    found = [file for file in files if file.is_file() and b":secret@" in file.read_bytes()]
    assert found == []
    assert PASSWORD in files[0].read_text()


def test_writers_import_nothing_but_writers() -> None:
    modules = [server_writer, folder_writer, lake_writer]
    names = ", ".join(module.__name__ for module in modules)
    show = "print(*(name for name in sys.modules if name.startswith('viewkeeper')))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {names}; {show}"], capture_output=True, check=True
    )
    loaded = set(done.stdout.decode().split()) - {"viewkeeper", "viewkeeper.demo"}
    assert all(name.startswith("viewkeeper.demo.writers") for name in loaded), loaded


def test_a_missing_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    result = CliRunner().invoke(cli, ["demo", "--sources", "mixed"])
    assert result.exit_code == 2
    assert "apt-get install -y mariadb-server" in result.output
