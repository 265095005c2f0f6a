"""Whatever fails in one source, or for one view, is its own trouble: the others go on.

The failures are put into the code of one real source, at every step at which the engine calls it:
what a bad page, a panic of a library or a mistake of ours would raise there. Each is undone at the
end, and then every view must catch up and be right.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import viewkeeper
from tests.engine.by_hand import load_by_hand
from tests.engine.shop import LINES, Shop, rows_of
from viewkeeper.delta.kernel import Kernel
from viewkeeper.engine.batch.staged_run import StagedRun
from viewkeeper.engine.report import Report, SilentObserver
from viewkeeper.errors import SourceAwayError, ViewkeeperError
from viewkeeper.sources.sqlite.snapshot import SqliteSnapshot
from viewkeeper.sources.sqlite.source import SqliteSource

VIEWS = {
    "lines": LINES,
    "customers": "SELECT id, name, city FROM crm.customer",
    "products": "SELECT id, title, cents FROM catalogue.product",
}


class PanicException(BaseException):
    """Like pyo3's: a library in Rust raises what is no Exception."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contained") / "shop"
    folder.mkdir()
    shop = Shop(folder, VIEWS)
    shop.fill()
    load_by_hand(shop)
    return folder


class Case:
    """A loaded shop in which every database has just changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.troubles: list[ViewkeeperError] = []
        self.change(1)

    def change(self, number: int) -> None:
        shop = Shop.__new__(Shop)
        shop.folder = self.folder
        shop.execute("crm", f"UPDATE customer SET name = name || {number} WHERE id = {number}")
        shop.execute("shop", f"UPDATE item SET quantity = 9 WHERE order_id = {number}")
        shop.execute("catalogue", f"UPDATE product SET cents = cents + 1 WHERE id = {number}")
        self.recomputed = shop.recomputed

    def refresh(self) -> Report:
        told = SilentObserver()
        setattr(told, "on_trouble", self.troubles.append)  # noqa: B010 - the others stay silent
        with viewkeeper.open(self.folder) as project:
            report = project.refresh(told, strict=False)
            assert not project.spark.is_started
        return report

    def right(self, *views: str) -> None:
        with viewkeeper.open(self.folder) as project:
            for name in views:
                assert rows_of(project.view(name)) == self.recomputed(VIEWS[name]), name


@pytest.fixture
def case(loaded: Path, tmp_path: Path) -> Case:
    shutil.copytree(loaded, tmp_path / "shop")
    return Case(tmp_path / "shop")


def failing(of: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """A method that fails for the customers' database."""

    @wraps(of)
    def fails(self: Any, *arguments: Any) -> Any:
        if getattr(self, "name", "crm") == "crm":
            raise error
        return of(self, *arguments)

    return fails


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("look_for_transactions", ValueError("bad page")),
        ("look_for_transactions", PanicException("index out of bounds")),
        ("follow_tables", AssertionError()),
        ("read_changes", PanicException("index out of bounds")),
        ("read_changes", ValueError("bad page")),
        ("prepare_snapshots", RecursionError("too deep")),
    ],
)
def test_what_a_source_raises_is_its_own_error(
    case: Case, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(SqliteSource, step, failing(getattr(SqliteSource, step), error))
        waiting = case.refresh().waiting
    assert waiting.keys() >= {"lines"}
    assert "products" not in waiting
    case.right("products")
    for reason in waiting.values():
        assert f'source "crm": unexpected {type(error).__name__}' in reason
    trace = (case.folder / "warehouse" / "tracebacks" / "source-crm.txt").read_text()
    assert "in fails" in trace
    assert type(error).__name__ in trace
    case.change(2)
    assert case.refresh().waiting == {}
    case.right(*VIEWS)


def test_a_source_that_fails_before_a_new_view_is_bound(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not known yet, its columns, is asked for at the start."""
    new = "CREATE MATERIALIZED VIEW cities AS SELECT city FROM crm.customer"
    (case.folder / "views" / "cities.sql").write_text(new)
    error = ValueError("bad page")
    monkeypatch.setattr(SqliteSource, "describe_table", failing(SqliteSource.describe_table, error))
    waiting = case.refresh().waiting
    assert waiting.keys() == {"cities", "customers", "lines"}
    assert 'source "crm": unexpected ValueError: bad page' in waiting["cities"]
    case.right("products")


@pytest.mark.parametrize("error", [AssertionError("no fit"), PanicException("no fit")])
@pytest.mark.parametrize("step", ["join", "write"])
def test_a_view_that_fails_stops_alone(
    case: Case, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    """Not for a source: in the join itself, which only one of the views has, or in what is made of
    its rows."""
    write = StagedRun._write_rows

    def fails(self: Any, table: Any, *rest: Any) -> Any:
        if step == "join" or table.head.view == "lines":
            raise error
        return write(self, table, *rest)

    with monkeypatch.context() as patch:
        target, name = (Kernel, "join") if step == "join" else (StagedRun, "_write_rows")
        patch.setattr(target, name, fails)
        waiting = case.refresh().waiting
    assert list(waiting) == ["lines"]
    assert f'view "lines": unexpected {type(error).__name__}: no fit' in waiting["lines"]
    assert (case.folder / "warehouse" / "tracebacks" / "view-lines.txt").exists()
    case.right("customers", "products")
    assert case.refresh().waiting == {}
    case.right(*VIEWS)


def test_a_snapshot_that_cannot_be_closed_loses_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read in it is right, and is committed; the next look finds what became of it."""
    prepared, closed = SqliteSource.prepare_snapshots, SqliteSnapshot.close

    @contextmanager
    def snapshots(self: SqliteSource, after: int, tables: Any) -> Iterator[Any]:
        with prepared(self, after, tables) as opener:
            yield opener
        raise SourceAwayError(self.name, "it stopped just now")

    def close(self: SqliteSnapshot) -> None:
        closed(self)
        raise ValueError("the connection is in a strange state")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteSource, "prepare_snapshots", snapshots)
        patch.setattr(SqliteSnapshot, "close", close)
        case.refresh()
    case.right(*VIEWS)
    assert any("it stopped just now" in error.message for error in case.troubles)


@pytest.mark.parametrize("step", ["acknowledge_position", "close"])
def test_what_only_ends_something_is_told(
    case: Case, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with monkeypatch.context() as patch:
        error = ValueError("no")
        patch.setattr(SqliteSource, step, failing(getattr(SqliteSource, step), error))
        assert case.refresh().waiting == {}
    case.right(*VIEWS)
    assert any('source "crm": unexpected ValueError: no' in e.message for e in case.troubles)


def test_what_another_thread_meets_is_noted_by_the_one_that_maintains(
    loaded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one goes through the sources that are away, while loads and lanes use them."""
    error = SourceAwayError("crm", "it stopped just now")
    monkeypatch.setattr(SqliteSource, "close", failing(SqliteSource.close, error))
    told = list[ViewkeeperError]()
    with viewkeeper.open(loaded) as project, closing(project.open_connections()) as connections:
        connections.report_to(told.append)
        other = threading.Thread(target=connections.get_source("crm").close)
        other.start()
        other.join()
        assert (connections.away, told) == ({}, [])
        connections.send_errands({}, 0.0)
        assert ([*connections.away], told) == (["crm"], [error])
