"""Each command on a sample project: what it prints, what it changes, how it ends.

Views are loaded once for the whole package; a test that changes something works on a copy.
"""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.conftest import call
from viewkeeper.cli.commands.init_command import sample_files
from viewkeeper.engine.settings.evolution_settings import EvolutionSettings
from viewkeeper.engine.settings.project_file import (
    BatchSettings,
    Settings,
    SparkSettings,
    read_settings,
)
from viewkeeper.engine.settings.view_words import ViewWords


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


# -- init --------------------------------------------------------------------------------------


def test_init_makes_databases_in_wal_mode_and_says_what_to_do_next(tmp_path: Path) -> None:
    result = call("init", str(tmp_path / "new"))
    assert result.exit_code == 0
    assert "viewkeeper run --once" in result.stdout
    for name in ("crm", "shop", "stock"):
        with closing(sqlite3.connect(tmp_path / "new" / f"{name}.db")) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_init_overwrites_nothing(shop: Path) -> None:
    before = {file: file.read_bytes() for file in shop.rglob("*") if file.is_file()}
    result = call("init")
    assert result.exit_code == 2
    assert "is already there" in result.stderr
    assert {file: file.read_bytes() for file in shop.rglob("*") if file.is_file()} == before


def test_the_sample_shows_every_setting_with_its_default(tmp_path: Path) -> None:
    text = sample_files()["viewkeeper.yml"]
    head, _, optional = text.partition("# Everything below is optional")
    shown = "\n".join(line.removeprefix("# ") for line in optional.splitlines()[2:])
    (tmp_path / "viewkeeper.yml").write_text(head + "\n" + shown)
    settings = read_settings(tmp_path)
    for name in ("freshness", "history", "retention", "publish"):
        assert f"# {name}:" in text
        assert getattr(settings, name) == Settings.__dataclass_fields__[name].default
    of_no_line = {"folder", "file_name", "named_views", "sources", "warehouse", "storage", "local"}
    for name in Settings.__dataclass_fields__.keys() - of_no_line:
        assert f"# {name}:" in text
    assert "`storage:` and `local:`" in head
    assert (settings.refresh, settings.access, settings.lanes) == (
        ViewWords("incremental"),
        "owner",
        "auto",
    )
    assert settings.evolution == EvolutionSettings()
    assert settings.batch == BatchSettings()
    assert settings.spark == SparkSettings()
    for part in (BatchSettings, SparkSettings):
        assert all(f"#   {name}:" in text for name in part.__dataclass_fields__)


# -- run ---------------------------------------------------------------------------------------


def test_run_once_reports_what_it_did(copy: Path, spark: SparkSession) -> None:
    execute(copy / "crm.db", "UPDATE customer SET name = 'Ada L.' WHERE id = 1")
    result = call("-p", str(copy), "run", "--once", "--json", spark=spark)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["transactions"], report["changes"], report["waiting"]) == (1, 2, {})
    assert sum(report["lookups"].values()) <= 2 * (6 + 4)
    assert report["lookups"].keys() <= {"crm", "shop", "stock"}


def test_run_once_names_the_views_that_wait_and_why(copy: Path, spark: SparkSession) -> None:
    (copy / "stock.db").rename(copy / "elsewhere.db")
    execute(copy / "crm.db", "UPDATE customer SET name = 'Grace H.' WHERE id = 2")
    result = call("-p", str(copy), "run", "--once", spark=spark)
    assert result.exit_code == 1
    assert 'view "order_lines" is not up to date' in result.stderr
    assert 'source "stock": there is no database file' in result.stderr
    assert "berlin_bulk" not in result.stderr.partition("error:")[2]
    status = call("-p", str(copy), "status")
    assert status.exit_code == 1
    assert "away" in status.stdout
    assert "hint: check the path" in status.stdout


def test_changed_sql_needs_a_full_refresh(copy: Path, spark: SparkSession) -> None:
    file = copy / "views/berlin_bulk.sql"
    file.write_text(file.read_text().replace("Berlin'", "London'"))
    refused = call("-p", str(copy), "run", "--once", spark=spark)
    assert refused.exit_code == 1
    assert "viewkeeper refresh berlin_bulk" in refused.stderr
    assert "viewkeeper refresh berlin_bulk" in call("-p", str(copy), "status").stdout
    words = ["run", "--once", "--full-refresh", "berlin_bulk"]
    result = call("-p", str(copy), *words, spark=spark)
    assert result.exit_code == 0
    assert "loaded berlin_bulk (0 rows)" in result.stderr


def test_the_first_signal_finishes_and_leaves_with_0(copy: Path, spark: SparkSession) -> None:
    code = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "try:\n"
        "    from viewkeeper.storage.local_lock import running_holder\n"
        "    end = time.monotonic() + 60\n"
        "    while running_holder(Path(sys.argv[1])) is None and time.monotonic() < end:\n"
        "        time.sleep(0.02)\n"
        "    time.sleep(0.3)\n"
        "finally:\n"
        "    os.kill(int(sys.argv[2]), signal.SIGINT)\n"
    )
    words = [sys.executable, "-c", code, str(copy / "warehouse" / "lock"), str(os.getpid())]
    with subprocess.Popen(words) as process:
        result = call("-p", str(copy), "run", spark=spark)
    assert process.returncode == 0
    assert result.exit_code == 0, result.output
    assert "finishing the commit under way; press again to cancel" in result.stderr


def test_the_second_signal_leaves_at_once() -> None:
    code = (
        "import os, signal\nfrom viewkeeper.cli.signals import stop_on_signals\n"
        "with stop_on_signals('it'):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    os.kill(os.getpid(), signal.SIGINT)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr == "finishing it; press again to cancel\n"


# -- query -------------------------------------------------------------------------------------

EXACT = """SELECT CAST(12.50 AS DECIMAL(6,2)) AS d, CAST(NULL AS STRING) AS n, '' AS e, 'a,"b' AS q,
 DATE'2024-01-02' AS day, TIMESTAMP_NTZ'2024-01-02 03:04:05.000006' AS t,
 TIMESTAMP'2024-01-02 03:04:05Z' AS z, X'00FF' AS b, 9007199254740993L AS i, double('NaN') AS x
 FROM order_lines LIMIT 1"""


def test_query_in_every_format(loaded: Path, spark: SparkSession) -> None:
    sql = "SELECT customer, sum(cents) AS cents FROM order_lines GROUP BY 1 ORDER BY 1"
    words = ["-p", str(loaded), "query", sql]
    expected = [("Ada", "1020"), ("Edsger", "1830"), ("Grace", "560")]
    found = call(*words, "--format", "csv", spark=spark)
    assert found.exit_code == 0
    assert [tuple(row) for row in csv.reader(found.stdout.splitlines())][1:] == expected
    rows = json.loads(call(*words, "--format", "json", spark=spark).stdout)
    assert [(row["customer"], str(row["cents"])) for row in rows] == expected
    table = call(*words, "--limit", "1", spark=spark)
    assert "Ada" in table.stdout
    assert "Grace" not in table.stdout


def test_query_with_in_two_parts_of_from(loaded: Path, spark: SparkSession) -> None:
    """Spark alone fails with "No CTERelationDef found"."""
    sql = (
        "SELECT count(*) AS n FROM (WITH u AS (SELECT customer FROM order_lines), z AS (SELECT 0 "
        "AS c FROM u) SELECT customer FROM order_lines) x LEFT JOIN (WITH u AS (SELECT DISTINCT "
        "customer FROM order_lines), z AS (SELECT p.customer FROM u p LEFT JOIN u q ON p.customer "
        "= q.customer) SELECT customer FROM z) y ON x.customer = y.customer"
    )
    found = call("-p", str(loaded), "query", sql, "--format", "json", spark=spark)
    assert found.exit_code == 0, found.output
    everything = ["query", "SELECT count(*) AS n FROM order_lines", "--format", "json"]
    assert found.stdout == call("-p", str(loaded), *everything, spark=spark).stdout


def test_query_with_quantified_comparisons(loaded: Path, spark: SparkSession) -> None:
    sql = (
        "SELECT DISTINCT customer, cents >= ALL (SELECT x.cents FROM order_lines x) AS most "
        "FROM order_lines o WHERE cents <= ALL (SELECT x.cents FROM order_lines x "
        "WHERE x.customer = o.customer) OR cents >= ALL (SELECT cents FROM order_lines)"
    )
    plain = (
        "SELECT DISTINCT customer, cents = (SELECT max(cents) FROM order_lines) AS most "
        "FROM order_lines o WHERE cents = (SELECT min(x.cents) FROM order_lines x "
        "WHERE x.customer = o.customer) OR cents = (SELECT max(cents) FROM order_lines)"
    )
    words = ["--format", "csv"]
    found = call("-p", str(loaded), "query", f"{sql} ORDER BY 1, 2", *words, spark=spark)
    assert found.exit_code == 0, found.output
    wanted = call("-p", str(loaded), "query", f"{plain} ORDER BY 1, 2", *words, spark=spark)
    assert found.stdout == wanted.stdout
    assert len(found.stdout.splitlines()) > 3


def test_query_gives_exact_values(loaded: Path, spark: SparkSession) -> None:
    words = ["-p", str(loaded), "query", EXACT]
    (row,) = json.loads(call(*words, "--format", "json", spark=spark).stdout)
    assert row == {
        "d": "12.50",
        "n": None,
        "e": "",
        "q": 'a,"b',
        "day": "2024-01-02",
        "t": "2024-01-02T03:04:05.000006",
        "z": "2024-01-02 03:04:05",
        "b": "00ff",
        "i": 9007199254740993,
        "x": "NaN",
    }
    line = call(*words, "--format", "csv", spark=spark).stdout.splitlines()[1]
    assert line.startswith('12.50,,"","a,""b",2024-01-02,2024-01-02 03:04:05.000006,')
    assert "NULL" in call(*words, spark=spark).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["SELECT nope FROM order_lines"], "nope"),
        (
            ["SELECT cents > ALL (SELECT customer FROM order_lines) AS x FROM order_lines"],
            "types that have no order in common",
        ),
        (["SELECT 1 / (cents - cents) AS x FROM order_lines"], "DIVIDE_BY_ZERO"),
        (["SELECT * FROM order_lines", "--as-of", "77"], "no state as of 77"),
        (["SELECT 1 AS a, 2 AS a FROM order_lines", "--format", "json"], "give them aliases"),
    ],
)
def test_a_query_that_fails(
    loaded: Path, spark: SparkSession, words: list[str], expected: str
) -> None:
    result = call("-p", str(loaded), "query", *words, spark=spark)
    assert result.exit_code == 2
    assert expected in result.stderr
    assert "at org.apache" not in result.stderr


# -- verify, upkeep, detach --------------------------------------------------------------------


def test_verify_finds_equality_and_differences(copy: Path, spark: SparkSession) -> None:
    words = ["-p", str(copy), "verify", "berlin_bulk"]
    equal = call(*words, spark=spark)
    assert equal.exit_code == 0, equal.output
    assert "berlin_bulk: equal to recomputation; 1 state compared (ts " in equal.stdout
    # A change behind the back of the triggers, as no application can make it.
    made = triggers(copy / "crm.db")
    execute(
        copy / "crm.db",
        *(f'DROP TRIGGER "{name}"' for name in made),
        "UPDATE customer SET name = 'Nobody' WHERE id = 2",
        *made.values(),
    )
    different = call(*words, spark=spark)
    assert different.exit_code == 1, different.output
    assert "DIFFERS" in different.stdout
    assert "missing" in different.stdout
    assert "too much" in different.stdout
    assert "Nobody" in different.stdout


def test_verify_does_not_reach_beyond_the_history(copy: Path, spark: SparkSession) -> None:
    file = copy / "viewkeeper.yml"
    file.write_text(file.read_text() + "\nhistory: 0\n")
    execute(copy / "crm.db", "UPDATE customer SET name = 'Ada L.' WHERE id = 1")
    assert call("-p", str(copy), "run", "--once", "--quiet", spark=spark).stderr == ""
    words = ["verify", "berlin_bulk", "--every-state", "--since", "0"]
    result = call("-p", str(copy), *words, spark=spark)
    assert result.exit_code == 2
    assert "cannot be verified any more" in result.stderr
    assert "a longer `history:`" in result.stderr


def triggers(path: Path) -> dict[str, str]:
    """The triggers of a database, with the statements that make them."""
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        return dict(connection.execute(query).fetchall())


def test_publish_and_compact(copy: Path, spark: SparkSession) -> None:
    published = call("-p", str(copy), "publish", "order_lines", spark=spark)
    assert published.exit_code == 0, published.output
    assert (copy / "warehouse/published/order_lines/_delta_log").is_dir()
    assert call("-p", str(copy), "compact", spark=spark).exit_code == 0


def test_detach_asks_and_then_removes_everything(copy: Path) -> None:
    words = ["-p", str(copy), "detach", "crm"]
    refused = call(*words, typed="n\n")
    assert refused.exit_code == 130
    assert "cannot be continued" in refused.stderr
    assert triggers(copy / "crm.db")
    done = call(*words, "--yes")
    assert done.exit_code == 0
    assert "detached" in done.stdout
    assert triggers(copy / "crm.db") == {}
    assert triggers(copy / "shop.db")
    assert "was not followed" in call(*words, "--yes").stdout
    status = call("-p", str(copy), "status")
    assert status.exit_code == 1
    assert 'source "crm" is detached' in status.stdout


def test_detach_goes_on_when_a_source_is_away(copy: Path) -> None:
    (copy / "stock.db").unlink()
    result = call("-p", str(copy), "detach", "--yes")
    assert result.exit_code == 1
    assert 'source "stock"' in result.stderr
    assert triggers(copy / "shop.db") == {}
