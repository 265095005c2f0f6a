"""Whatever is wrong is said in words, with the way out, and ends with exit code 2.

Each case breaks a fresh sample project in one way and names the command that must notice.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import call
from viewkeeper.errors import ProjectError
from viewkeeper.storage.local_lock import Lock, LockHolder

VIEW = "CREATE MATERIALIZED VIEW {name} AS SELECT {columns} FROM {table} c"


def write(name: str, text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_text(text)

    return change


def project(old: str, new: str) -> Callable[[Path], None]:
    """Replace something in the project file."""

    def change(folder: Path) -> None:
        file = folder / "viewkeeper.yml"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    return change


def view(name: str = "v", columns: str = "c.id", table: str = "crm.customer") -> str:
    return VIEW.format(name=name, columns=columns, table=table)


def corrupt_head(folder: Path) -> None:
    (folder / "warehouse").mkdir()
    (folder / "warehouse/head.json").write_text('{"kind":"head","fo')


def unlink(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


CASES: dict[str, tuple[Callable[[Path], None], list[str], list[str]]] = {
    "malformed YAML": (write("viewkeeper.yml", "a: [1"), ["status"], ["not valid YAML"]),
    "YAML that is a list": (write("viewkeeper.yml", "- 1"), ["status"], ["must be a mapping"]),
    "unknown key": (
        project("warehouse: ./warehouse", "warehouse: w\nfreshnes: 1s"),
        ["status"],
        ['unknown key "freshnes"', 'did you mean "freshness"?'],
    ),
    "wrong type": (
        project("warehouse: ./warehouse", "warehouse: w\nbatch: {rows: many}"),
        ["run", "--once"],
        ['"batch.rows" must be a whole number', "'many'"],
    ),
    "wrong duration": (
        project("warehouse: ./warehouse", "warehouse: w\nfreshness: soon"),
        ["explain", "order_lines"],
        ['"freshness" must be a duration', "500ms"],
    ),
    "unknown kind": (
        project("kind: sqlite\n    path: crm.db", "kind: sqlit\n    path: crm.db"),
        ["status"],
        ['unknown kind "sqlit"', 'did you mean "sqlite"?'],
    ),
    "a kind that people expect": (
        project("kind: sqlite\n    path: crm.db", "kind: mysql\n    path: crm.db"),
        ["status"],
        ['unknown kind "mysql"', "MySQL is not supported, MariaDB 10.5 or newer is: kind: mariadb"],
    ),
    "settings for a view that is not there": (
        project("warehouse: ./warehouse", "warehouse: w\nviews: {ordr_lines: {refresh: full}}"),
        ["run", "--once"],
        ['"views" names "ordr_lines"', 'did you mean "order_lines"?'],
    ),
    "SELECT misspelled": (
        write("views/v.sql", "CREATE MATERIALIZED VIEW v AS SELCT id FROM crm.customer"),
        ["explain", "v"],
        ["v.sql:1:", 'did you mean SELECT instead of "SELCT"?'],
    ),
    "FROM misspelled": (
        write("views/v.sql", "CREATE MATERIALIZED VIEW v AS SELECT id FORM crm.customer"),
        ["explain", "v"],
        ["v.sql:1:", 'did you mean FROM instead of "FORM"?'],
    ),
    "GROUP misspelled": (
        write("views/v.sql", view(columns="c.city, count(*) AS n") + " GRUOP BY c.city"),
        ["explain", "v"],
        ['did you mean GROUP instead of "GRUOP"?'],
    ),
    "a keyword misspelled in a query": (
        lambda _: None,
        ["query", "SELECT * FORM order_lines"],
        ['did you mean FROM instead of "FORM"?'],
    ),
    "unknown function": (
        write("views/v.sql", view(columns="uper(c.name) AS name")),
        ["explain", "v"],
        ["the function uper()", 'no function of this name; did you mean "upper"?'],
    ),
    "unknown aggregate": (
        write("views/v.sql", view(columns="c.city, cuont(*) AS n") + " GROUP BY c.city"),
        ["explain", "v"],
        ["the function cuont()", 'did you mean "count"?'],
    ),
    "a JOIN without ON": (
        write("views/v.sql", view(columns="c.id") + " JOIN shop.orders o"),
        ["explain", "v"],
        ["v.sql:1:63:", "a JOIN without ON", "CROSS JOIN"],
    ),
    "a JOIN without ON before one that has it": (
        write(
            "views/v.sql",
            view(columns="c.id") + " JOIN shop.orders o JOIN shop.item i ON i.order_id = o.id",
        ),
        ["explain", "v"],
        ["v.sql:1:63:", "a JOIN without ON"],
    ),
    "malformed SQL": (
        write("views/v.sql", "CREATE MATERIALIZED VIEW v AS SELECT FROM crm.customer"),
        ["explain", "v"],
        ["v.sql:1:", "SELECT"],
    ),
    "not a view": (write("views/v.sql", "DROP TABLE x"), ["explain", "v"], ["expected CREATE"]),
    "two views of one name": (
        write("views/v.sql", view("order_lines")),
        ["explain", "order_lines"],
        ['two views are called "order_lines"', "rename one"],
    ),
    "unknown source": (
        write("views/v.sql", view(table="crn.customer")),
        ["explain", "v"],
        ['unknown source "crn"', 'did you mean "crm"?'],
    ),
    "missing table": (
        write("views/v.sql", view(table="crm.costumer")),
        ["explain", "v"],
        ["costumer", "customer"],
    ),
    "missing column": (write("views/v.sql", view(columns="c.nam")), ["explain", "v"], ["nam"]),
    "missing database": (
        unlink("crm.db"),
        ["explain", "order_lines"],
        ['source "crm": there is no database file', "hint:"],
    ),
    "no database": (
        write("crm.db", "this is a text, and a long one, not a database" * 40),
        ["explain", "order_lines"],
        ['source "crm"', "is not a SQLite database"],
    ),
    "unknown view": (
        lambda _: None,
        ["explain", "order_line"],
        ['there is no view "order_line"', 'did you mean "order_lines"?'],
    ),
    "unknown view to refresh": (
        lambda _: None,
        ["run", "--once", "--full-refresh", "x"],
        ['there is no view "x"'],
    ),
    "unknown source to detach": (
        lambda _: None,
        ["detach", "shopp", "--yes"],
        ['there is no source "shopp"', 'did you mean "shop"?'],
    ),
    "corrupt head": (corrupt_head, ["status"], ["head.json", "hint:"]),
    "corrupt head for run": (corrupt_head, ["run", "--once"], ["head.json", "hint:"]),
    "verify before a load": (lambda _: None, ["verify"], ["no view is loaded yet"]),
    "publish before a load": (lambda _: None, ["publish"], ["not loaded yet"]),
    "query before a load": (
        lambda _: None,
        ["query", "SELECT * FROM order_lines"],
        ["not loaded yet", "viewkeeper run --once"],
    ),
    "query of no view": (
        lambda _: None,
        ["query", "SELECT * FROM order_line"],
        ["order_line is not a view", 'did you mean "order_lines"?'],
    ),
    "query of a path": (
        lambda _: None,
        ["query", "SELECT * FROM parquet.`/x`"],
        ["is not a view of this project", "views: berlin_bulk, order_lines, customer_totals"],
    ),
    "query that writes": (
        lambda _: None,
        ["query", "DROP TABLE order_lines"],
        ["only SELECT"],
    ),
    "two queries": (lambda _: None, ["query", "SELECT 1; SELECT 2"], ["2 statements"]),
    "query of Java": (lambda _: None, ["query", "SELECT reflect('a', 'b')"], ["runs Java code"]),
    "query that is no SQL": (lambda _: None, ["query", "SELECT * FROM"], ["cannot be parsed"]),
    "since alone": (lambda _: None, ["verify", "--since", "3"], ["--since needs --every-state"]),
    "json without once": (lambda _: None, ["run", "--json"], ["--json needs --once"]),
    "unknown command": (
        lambda _: None,
        ["stats"],
        ['there is no command "stats"', 'did you mean "status"?'],
    ),
    "unknown option": (lambda _: None, ["status", "--jsn"], ["--jsn", "--json"]),
    "a project that is not there": (
        lambda _: None,
        ["--project", "nowhere", "status"],
        ["no project here", "viewkeeper init"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_said(case: str, shop: Path) -> None:
    break_it, words, expected = CASES[case]
    break_it(shop)
    result = call(*words)
    assert result.exit_code == 2, result.output
    for text in expected:
        assert text in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""


@contextmanager
def somebody(folder: Path) -> Iterator[None]:
    """Run as a user without privileges who may use the folder: root may read everything."""
    if os.geteuid() != 0:
        yield
        return
    folder.chmod(0o777)
    for parent in folder.parents[: len(folder.parents) - 2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_database_that_may_not_be_read(shop: Path) -> None:
    (shop / "crm.db").chmod(0)
    with somebody(shop):
        result = call("explain", "order_lines")
    assert result.exit_code == 2
    assert "permission" in result.stderr


@pytest.mark.parametrize("words", [["run", "--once"], ["compact"], ["detach", "--yes"]])
def test_a_warehouse_that_another_process_holds(shop: Path, words: list[str]) -> None:
    (shop / "warehouse").mkdir()
    holder = LockHolder.this_process("viewkeeper run", time.time())
    lock = Lock.take_lock(shop / "warehouse/lock", holder)
    try:
        result = call(*words)
        shown = json.loads(call("status", "--json").stdout)
    finally:
        lock.release_lock()
    assert result.exit_code == 2
    assert f"process {os.getpid()}" in result.stderr
    assert "(viewkeeper run)" in result.stderr
    assert shown["running"]["pid"] == os.getpid()


def test_a_broken_view_does_not_hide_the_status_of_the_others(shop: Path) -> None:
    (shop / "views/v.sql").write_text("CREATE VIEW")
    result = call("status")
    assert result.exit_code == 1
    assert 'view "v"' in result.stdout
    assert "order_lines" in result.stdout


def test_the_project_is_found_from_a_folder_inside_it(shop: Path) -> None:
    os.chdir(shop / "views")
    result = call("explain", "order_lines")
    os.chdir(shop)
    assert result.exit_code == 0


def test_an_unexpected_error_is_short_unless_asked(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("viewkeeper.engine.operations.project_status.gather_status", fail)
    short, long = call("status"), call("--debug", "status")
    assert short.exit_code == long.exit_code == 3
    assert short.stderr == (
        "error: unexpected ZeroDivisionError: oh\n  hint: --debug shows the traceback\n"
    )
    assert "Traceback" in long.stderr
    for words in (("-v", "status"), ("status", "-v"), ("status", "--verbose")):
        told = call(*words)
        assert told.exit_code == 3
        assert "Traceback" in told.stderr
        assert told.stderr.endswith("error: unexpected ZeroDivisionError: oh\n")


def test_verbose_shows_causes(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        try:
            raise OSError("the cable is cut")
        except OSError as cause:
            raise ProjectError("it does not work") from cause

    monkeypatch.setattr("viewkeeper.engine.operations.project_status.gather_status", fail)
    assert call("status").stderr == "error: it does not work\n"
    told = call("status", "-v")
    assert told.exit_code == 2
    assert told.stderr == "error: it does not work\n  caused by: OSError: the cable is cut\n"


def test_verbose_has_the_debug_lines_of_a_run_once(copy: Path) -> None:
    with closing(sqlite3.connect(copy / "shop.db")) as database, database:
        database.execute("DELETE FROM orders WHERE id = 1")
    told = call("-p", str(copy), "run", "--once", "-v")
    assert told.exit_code == 0, told.stderr
    lines = [line for line in told.stderr.splitlines() if " debug " in line]
    assert lines
    assert len(lines) == len({*lines})


def test_status_shows_kept_tracebacks_when_asked(copy: Path) -> None:
    folder = copy / "warehouse" / "tracebacks"
    folder.mkdir(parents=True)
    (folder / "view-order_lines.txt").write_text("Traceback of the view\n")
    assert "Traceback of the view" not in call("-p", str(copy), "status").output
    assert "Traceback of the view" in call("-p", str(copy), "status", "-v").output


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 141)])
def test_cancelling_and_a_closed_pipe(
    shop: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], code: int
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("viewkeeper.engine.operations.project_status.gather_status", fail)
    assert call("status").exit_code == code


def test_a_database_without_wal_is_explained(shop: Path) -> None:
    with closing(sqlite3.connect(shop / "crm.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    result = call("explain", "order_lines")
    assert result.exit_code == 0
    assert "PRAGMA journal_mode = WAL" in result.stdout
