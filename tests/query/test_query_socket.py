"""`viewkeeper query` by the session of a running maintainer: the same answers, for its user."""

from __future__ import annotations

import errno
import json
import os
import socket
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result
from pyspark.sql import SparkSession

from tests.cli.conftest import call
from viewkeeper.engine.project import open_project
from viewkeeper.engine.query import query_socket
from viewkeeper.engine.query.bounded_query import BoundedAnswer, BoundedQueries, QueryBounds
from viewkeeper.engine.query.query_socket import NAME, ask_maintainer
from viewkeeper.engine.report import SilentObserver
from viewkeeper.engine.settings.project_file import SparkSettings
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.errors import ViewkeeperError

DEEP = "a-folder-with-a-name-of-some-length/" * 5
"""Longer than the path of a socket may be."""


class Loaded(SilentObserver):
    def __init__(self) -> None:
        self.loaded = threading.Event()

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        self.loaded.set()


@pytest.fixture(scope="module")
def running(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with a maintainer that runs, deep in the tree."""
    folder = tmp_path_factory.mktemp("running") / DEEP
    (folder / "views").mkdir(parents=True)
    with closing(sqlite3.connect(folder / "shop.db")) as database, database:
        database.execute(
            "CREATE TABLE item "
            "(id INTEGER PRIMARY KEY, name TEXT, price DECIMAL(8,2), at TIMESTAMP)"
        )
        database.execute(
            "INSERT INTO item VALUES "
            "(1, 'a,\"b', '1.50', '2024-01-02 03:04:05'), (2, NULL, NULL, NULL)"
        )
    (folder / "views" / "items.sql").write_text(
        "CREATE MATERIALIZED VIEW items AS SELECT id, name, price, at FROM shop.item"
    )
    (folder / "viewkeeper.yml").write_text(
        "warehouse: ./warehouse\nsources: {shop: {kind: sqlite, path: shop.db}}\n"
    )
    watching, stop = Loaded(), threading.Event()
    with open_project(folder, spark) as project:
        thread = threading.Thread(target=project.run, args=(watching, stop))
        thread.start()
        assert watching.loaded.wait(60)
        yield folder
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
    assert not (folder / "warehouse" / NAME).exists()


STARTS = "starting Spark: no maintainer runs here"


def ask(folder: Path, *words: str) -> Result:
    """Ask, as the program does; by the maintainer, or it says that it starts Spark."""
    found = call("-p", str(folder), "query", *words)
    assert STARTS not in found.stderr
    return found


QUERIES = [
    "SELECT initcap(name) AS name, price, at FROM items ORDER BY id",
    "SELECT id, array(id, id + 1) AS a, named_struct('x', price, 'y', at) AS s FROM items",
    "SELECT map('k', name) AS m, date(at) AS d, encode(name, 'UTF-8') AS b FROM items",
    "SELECT double('NaN') AS n, id / 3 AS t, current_date() IS NULL AS z FROM items",
    "SELECT timestamp_ntz'2024-01-02 03:04:05.5' AS t, timestamp'2024-01-02 03:04:05Z' AS z",
    "SELECT initcap(name) FROM items WHERE id > 9",
]


@pytest.mark.parametrize("form", ["table", "csv", "json"])
@pytest.mark.parametrize("sql", QUERIES)
def test_the_answer_is_the_one_that_spark_gives(
    running: Path, spark: SparkSession, sql: str, form: str
) -> None:
    wanted = call("-p", str(running), "query", sql, "--format", form, spark=spark)
    assert wanted.exit_code == 0, wanted.output
    found = ask(running, sql, "--format", form)
    assert (found.exit_code, found.stdout) == (0, wanted.stdout), found.output


def test_limits_and_states_are_kept(running: Path) -> None:
    found = ask(running, "SELECT initcap(name) AS n FROM items ORDER BY id", "--limit", "1")
    assert found.exit_code == 0
    assert "A," in found.stdout
    assert "NULL" not in found.stdout
    state = ask(running, "SELECT initcap(name) FROM items", "--as-of", "1", "--format", "csv")
    assert state.exit_code == 0, state.output


def test_what_is_wrong_is_said_without_starting_anything(running: Path) -> None:
    failed = ask(running, "SELECT raise_error(concat('x', name)) FROM items")
    assert failed.exit_code == 2
    wrong = ask(running, "SELECT initcap(nothing) FROM items")
    assert wrong.exit_code == 2
    assert "nothing" in wrong.stderr


def test_without_a_maintainer_it_says_that_it_starts_spark(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_socket, "NAME", "another.socket")
    alone = call("-p", str(running), "query", "SELECT initcap(name) FROM items")
    assert STARTS in alone.stderr


def test_more_than_fits_is_left_to_another_spark(
    running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_socket, "BOUNDS", QueryBounds(1, 60.0))
    folder = running / "warehouse"
    assert ask_maintainer(folder, "SELECT initcap(name) FROM items", None, None) is None
    assert ask_maintainer(folder, "SELECT initcap(name) FROM items", None, 2) is None
    one = ask_maintainer(folder, "SELECT initcap(name) FROM items WHERE id = 1", None, None)
    assert one is not None
    assert not one.has_more


def test_only_the_same_user_reaches_it(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = (running / "warehouse" / NAME).stat()
    assert stat.S_ISSOCK(found.st_mode)
    assert found.st_mode & 0o777 == 0o600
    assert found.st_uid == os.getuid()
    monkeypatch.setattr(query_socket, "owner_of_peer", lambda _: os.getuid() + 1)
    assert ask_maintainer(running / "warehouse", "SELECT 1", None, 5) is None


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\0" * 8,
        b"\xff" * 8,
        (5).to_bytes(8, "big") + b"{",
        (2).to_bytes(8, "big") + b"{}",
        (1).to_bytes(8, "big") + b"{",
        (9).to_bytes(8, "big") + b'{"sql":7}',
        (60_000).to_bytes(8, "big") + b"[" * 60_000,
    ],
)
def test_nonsense_harms_nobody(running: Path, sent: bytes) -> None:
    with (
        socket.socket(socket.AF_UNIX) as connection,
        query_socket.short_path(running / "warehouse") as path,
    ):
        connection.settimeout(30)
        connection.connect(path)
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(4096)
    assert answer == b"" or "error" in json.loads(answer[8:])
    assert ask_maintainer(running / "warehouse", "SELECT id FROM items", None, 5) is not None


def test_a_folder_without_sockets_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = SparkHandle(SparkSettings())
    with query_socket.serving_queries(tmp_path / "gone", BoundedQueries(tmp_path, settings), {}):
        pass
    assert "queries cannot use this session" in caplog.text


def test_a_mistake_of_ours_is_not_the_fault_of_who_asks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged without what it may quote; a query is answered another way."""

    class Broken(BoundedQueries):
        def answer_query(self, *_: object) -> BoundedAnswer:
            raise ValueError("a secret of some row")

    def fail(_: query_socket.Request) -> query_socket.Answer:
        raise KeyError("a secret of some row")

    queries = Broken(tmp_path, SparkHandle(SparkSettings()))
    with query_socket.serving_queries(tmp_path, queries, {"dance": fail}):
        assert ask_maintainer(tmp_path, "SELECT 1", None, 5) is None
        with pytest.raises(ViewkeeperError, match="unexpected KeyError") as met:
            query_socket.send_request(tmp_path, {"kind": "dance"})
    assert "in fail" in str(met.value.detail)
    assert "of the kind query met an unexpected ValueError" in caplog.text
    assert "secret" not in caplog.text + str(met.value)


def test_a_process_without_free_files_answers_again_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "too many open files")]
    before = set(threading.enumerate())

    def accept_later(listener: socket.socket) -> object:
        if failures and threading.current_thread() not in before:
            raise failures.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accept_later)
    queries = BoundedQueries(tmp_path, SparkHandle(SparkSettings()))
    handlers = {"sum": lambda asked: {"sum": sum(asked["numbers"])}}
    with query_socket.serving_queries(tmp_path, queries, handlers):
        request = {"kind": "sum", "numbers": [1, 2]}
        assert query_socket.send_request(tmp_path, request) == {"sum": 3}
        with pytest.raises(ViewkeeperError, match="unexpected KeyError"):
            query_socket.send_request(tmp_path, {"kind": "sum"})
    assert failures == []
    left = set(threading.enumerate()) - before
    assert "viewkeeper-query" not in {thread.name for thread in left}


def test_a_socket_that_was_left_behind_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY)")
    (tmp_path / "views" / "items.sql").write_text(
        "CREATE MATERIALIZED VIEW items AS SELECT id FROM shop.item"
    )
    (tmp_path / "viewkeeper.yml").write_text(
        "warehouse: ./warehouse\nsources: {shop: {kind: sqlite, path: shop.db}}\n"
    )
    (tmp_path / "warehouse").mkdir()
    with (
        socket.socket(socket.AF_UNIX) as dead,
        query_socket.short_path(tmp_path / "warehouse") as path,
    ):
        dead.bind(path)
    assert ask_maintainer(tmp_path / "warehouse", "SELECT id FROM items", None, 5) is None
    watching, stop = Loaded(), threading.Event()
    with open_project(tmp_path, spark) as project:
        thread = threading.Thread(target=project.run, args=(watching, stop))
        thread.start()
        assert watching.loaded.wait(60)
        found = ask_maintainer(tmp_path / "warehouse", "SELECT initcap('a') FROM items", None, 5)
        assert found is not None
        assert found.rows == []
        with pytest.raises(ViewkeeperError, match="not a view"):
            ask_maintainer(tmp_path / "warehouse", "SELECT id FROM nothing", None, 5)
        stop.set()
        thread.join(60)
