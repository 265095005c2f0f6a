"""The documents name what is there: files, classes and functions.

The glossary has a home for each word, ARCHITECTURE.md the road of a change with the function of
each step. A home is a path below the package; a class or function behind it is defined there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "viewkeeper"
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PATH = re.compile(r"`((?:[a-z_]+/)*[a-z_0-9]+\.py)`")


def rows_of(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if not row[0].startswith(("---", "word", "step", "package"))]


def wrong_homes(cell: str) -> Iterator[str]:
    """What a cell like "`a/b.py` `Name`" names that is not there."""
    path: Path | None = None
    for name in re.findall(r"`([^`]+)`", cell):
        if "/" in name or name.endswith(".py"):
            path = PACKAGE / name
            if not path.exists():
                yield f"{name} does not exist"
        elif path is None or not path.is_file() or name not in defined_in(path):
            yield f"{name} is not in {path}"


def defined_in(path: Path) -> set[str]:
    """Classes, functions and methods, the latter also as `Class.method`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            inner = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
            names |= {node.name, *(f"{node.name}.{each.name}" for each in inner)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return names


@pytest.mark.parametrize("row", rows_of(GLOSSARY), ids=lambda row: row[0])
def test_the_home_of_each_word_is_there(row: list[str]) -> None:
    assert "`" in row[2], "no home"
    assert not list(wrong_homes(row[2]))


def test_every_word_is_there_once() -> None:
    words = [row[0] for row in rows_of(GLOSSARY)]
    assert len(words) == len(set(words)) > 50


ROAD = ARCHITECTURE.partition("| step |")[2].partition("\n\n")[0]


@pytest.mark.parametrize("row", rows_of(ROAD), ids=lambda row: row[0])
def test_each_step_of_the_road_is_there(row: list[str]) -> None:
    assert "`" in row[1], "no place"
    assert not list(wrong_homes(row[1]))


def test_the_road_is_whole() -> None:
    assert len(rows_of(ROAD)) > 12


DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.md")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_files_that_documents_name_are_there(path: Path) -> None:
    if path.name == "CHANGELOG.md":
        return  # It tells of files of its time.
    text = path.read_text(encoding="utf-8")
    bases = (ROOT, PACKAGE, path.parent)
    gone = {
        name
        for name in PATH.findall(text)
        if "/" in name and not any((base / name).exists() for base in bases)
    }
    assert not gone


def test_wrong_homes_are_seen() -> None:
    assert list(wrong_homes("`nowhere.py`"))
    assert list(wrong_homes("`errors.py` `Nobody`"))
    assert not list(wrong_homes("`errors.py` `ViewkeeperError`, `reload_hint`"))
