"""The recipes of docs/reading.md, run as they are written, over the project that `init` makes.

What each gives is compared with the view as we read it ourselves.
"""

from __future__ import annotations

import ast
import os
import re
import sqlite3
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.cli.conftest import call

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reading.md"


def blocks_of(page: str) -> dict[str, str]:
    """The code of each section, by its heading."""
    found = dict[str, str]()
    for section in re.split(r"^## ", page, flags=re.M)[1:]:
        code = re.findall(r"```python\n(.*?)```", section, re.S)
        if code:
            found[section.partition("\n")[0]] = "\n".join(code)
    return found


BLOCKS = blocks_of(PAGE.read_text(encoding="utf-8"))


def test_the_readers_are_a_group_that_is_locked() -> None:
    """What the recipes import is ours, or in the group that the page names, and in the lock."""
    imported = {name for code in BLOCKS.values() for name in imports_of(code)}
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    groups = project["dependency-groups"]
    named = {re.split(r"[\[<>=]", each)[0] for each in groups["readers"]}
    needed = {re.split(r"[\[<>=]", each)[0] for each in project["project"]["dependencies"]}
    assert named == imported - needed - {"viewkeeper"} - sys.stdlib_module_names
    assert {"include-group": "readers"} in groups["dev"]
    locked = re.findall(r"^([\w-]+)==", (ROOT / "requirements.lock").read_text(), re.M)
    assert named <= {*locked}


def imports_of(code: str) -> Iterator[str]:
    """The packages that a program imports."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Import):
            yield from (each.name.split(".")[0] for each in node.names)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The sample project, loaded and then changed, as the current folder; with the one view that
    the recipes read, which needs no Spark."""
    folder = tmp_path_factory.mktemp("reading") / "shop"
    assert call("init", str(folder)).exit_code == 0
    for file in (folder / "views").glob("*.sql"):
        if file.stem != "order_lines":
            file.unlink()
    refresh(folder)
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.execute("UPDATE item SET quantity = quantity + 1 WHERE order_id = 1")
        database.commit()
    refresh(folder)
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


def refresh(folder: Path) -> None:
    with viewkeeper.open(folder) as project:
        assert project.refresh().waiting == {}


def run_section(name: str) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    exec(compile(BLOCKS[name], f"{PAGE}: {name}", "exec"), scope)
    return scope


def state(as_of: int | None = None) -> Counter[tuple[Any, ...]]:
    with viewkeeper.open(".") as project:
        rows = project.view("order_lines").arrow(as_of)
    return Counter(tuple(row.values()) for row in rows.to_pylist())


def counted(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter({tuple(row): count for *row, count in rows})


def test_every_section_with_code_is_run() -> None:
    tests = {"Polars", "pandas", "DuckDB", "As of a ts", "Spark"}
    assert set(BLOCKS) == tests


def test_polars(shop: Path) -> None:
    assert counted(run_section("Polars")["lines"].rows()) == state()
    assert counted(run_section("As of a ts")["then"].rows()) == state(1) != state()


def test_pandas(shop: Path) -> None:
    found = run_section("pandas")["newest"]
    assert counted([tuple(row) for row in found.itertuples(index=False)]) == state()


def test_duckdb(shop: Path) -> None:
    expected = Counter[str]()
    with viewkeeper.open(".") as project:
        for row in project.view("order_lines").arrow(columns=["customer", "cents"]).to_pylist():
            expected[row["customer"]] += row["cents"]
    assert dict(run_section("DuckDB")["totals"]) == dict(expected)


def test_spark(shop: Path, spark: SparkSession) -> None:
    found = run_section("Spark")
    assert Counter(map(tuple, found["newest_lines"].collect())) == state()
    assert Counter(map(tuple, found["first_lines"].collect())) == state(1)
    for before, rows in ((state(1), found["changes"].collect()), (Counter(), written(spark))):
        total = Counter(before)
        for *row, count, _ in map(tuple, rows):
            total[tuple(row)] += count
        assert +total == state()


def written(spark: SparkSession) -> list[Any]:
    return spark.read.parquet(f"{Path.cwd()}/out/order_lines").collect()
