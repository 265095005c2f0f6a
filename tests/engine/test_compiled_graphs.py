"""Graphs that were compiled before are those of the same query, or none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import Shop, rows_of
from viewkeeper.engine.compile import compiled_graphs
from viewkeeper.engine.compile.compiled_graphs import FOLDER, CompiledGraphs, query_digest
from viewkeeper.engine.compile.query_table import QueryTable
from viewkeeper.engine.compile.report_compiler import ReportCompiler
from viewkeeper.engine.project import Project
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.errors import DefinitionError, UnsupportedError
from viewkeeper.storage.user_cache import user_cache_folder
from viewkeeper.view.definition import Constant, Field, Graph, Relation

GRAPH = Graph((Constant(0, (Field("a", pa.int64()),), ((1,), (None,))),))
SUMS = "SELECT c.city, count(*) AS n FROM crm.customer c GROUP BY c.city"


def table(*, nullable: bool = True, kind: pa.DataType | None = None, key: str = "id") -> QueryTable:
    schema = pa.schema([pa.field("id", kind or pa.int64(), nullable=nullable)])
    return QueryTable(Relation("shop", "orders"), schema, frozenset({(key,)}))


def test_a_graph_is_found_again(tmp_path: Path) -> None:
    kept = CompiledGraphs(tmp_path / "new" / "folder")
    assert kept.find_graph("a" * 64) is None
    kept.keep_graph("a" * 64, GRAPH)
    assert kept.find_graph("a" * 64) == GRAPH


@pytest.mark.parametrize("kind", [DefinitionError, UnsupportedError])
def test_a_refusal_is_found_again(kind: type[DefinitionError], tmp_path: Path) -> None:
    kept, digest = CompiledGraphs(tmp_path), "a" * 64
    kept.keep_refusal(digest, kind("no: such thing", line=2, column=3, detail="why", hint="how"))
    found = kept.find_refusal(digest)
    assert type(found) is kind
    assert str(found) == str(kind("no: such thing", line=2, column=3, detail="why", hint="how"))
    assert kept.find_graph(digest) is None
    assert not kept.has_check(digest)
    kept.keep_graph(digest, GRAPH)
    assert kept.find_refusal(digest) is None


def test_whatever_decides_is_in_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        query_digest("SELECT 1", [table()], "incremental", {}),
        query_digest("SELECT 2", [table()], "incremental", {}),
        query_digest("SELECT 1", [table(nullable=False)], "incremental", {}),
        query_digest("SELECT 1", [table(kind=pa.int32())], "incremental", {}),
        query_digest("SELECT 1", [table(key="other")], "incremental", {}),
        query_digest("SELECT 1", [table(), table()], "incremental", {}),
        query_digest("SELECT 1", [table()], "auto", {}),
        query_digest("SELECT 1", [table()], "incremental", {"spark.sql.x": "1"}),
    ]
    monkeypatch.setattr(compiled_graphs, "version", lambda _: "another")
    found.append(query_digest("SELECT 1", [table()], "incremental", {}))
    monkeypatch.setattr(compiled_graphs, "compiler_marks", lambda: [("mended.py", 1, 1)])
    found.append(query_digest("SELECT 1", [table()], "incremental", {}))
    assert len({*found}) == len(found)


def test_what_is_damaged_is_none(tmp_path: Path) -> None:
    kept = CompiledGraphs(tmp_path)
    kept.keep_graph("a" * 64, GRAPH)
    (path,) = tmp_path.glob("*.json")
    whole = path.read_bytes()
    for damaged in (b"", whole[:40], whole.replace(b"constant", b"constanx"), b"{}", b"\xff" * 9):
        path.write_bytes(damaged)
        assert kept.find_graph("a" * 64) is None
    path.write_bytes(whole)
    path.rename(tmp_path / f"{'b' * 64}.json")
    assert kept.find_graph("b" * 64) is None


def test_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_graphs, "FILES_MAX", 3)
    kept = CompiledGraphs(tmp_path)
    for number in range(6):
        kept.keep_graph(f"{number:064x}", GRAPH)
    assert len([*tmp_path.glob("*.json")]) == 3
    assert kept.find_graph(f"{5:064x}") == GRAPH


def test_a_folder_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = CompiledGraphs(tmp_path / "file" / "folder")
    kept.keep_graph("a" * 64, GRAPH)
    assert kept.find_graph("a" * 64) is None


def test_the_same_report_of_another_project_needs_no_spark(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shops = {name: tmp_path / name for name in ("given", "one", "two")}
    asked: list[str] = []
    for name, folder in shops.items():
        folder.mkdir()
        shop = Shop(folder, {"sums": SUMS})
        shop.fill()
        with viewkeeper.open(folder, spark=spark if name == "given" else None) as project:
            assert project.refresh().waiting == {}
            assert rows_of(project.view("sums")) == shop.recomputed(SUMS)
            graph = project.catalogue.bindings["sums"].graph
        # A session that was given has settings of its own, and nothing is kept of it.
        assert len([*user_cache_folder(FOLDER).glob("*.json")]) == (name != "given")
        if name == "given":
            said = graph

            def say(_: Project, mode: str, text: str, tables: object) -> Graph:
                asked.append(text)
                assert said is not None  # noqa: B023 - it is that of the first round
                return said  # noqa: B023

            monkeypatch.setattr(ReportCompiler, "_ask_spark", say)
            monkeypatch.setattr(SparkHandle, "get_session", refuse_start)
    assert len(asked) == 1


def refuse_start(_: SparkHandle) -> SparkSession:
    raise AssertionError("Spark was started")
