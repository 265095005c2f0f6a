"""What the page on operations quotes is what the program says, and its settings are the defaults.

The first column of its tables of symptoms has messages, with `...` for what differs. Each must be
in the source, in one text: a message that is worded anew is worded anew on the page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from viewkeeper.engine.settings.project_file import Settings, read_settings

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "operations.md").read_text()


def quoted_messages(page: str) -> Iterator[str]:
    """The ticked texts in the first column of tables whose head is `it says`."""
    for table in re.findall(r"^\| it says .*\n\|[- |]+\n((?:\|.*\n?)+)", page, re.M):
        for row in table.splitlines():
            yield from re.findall(r"`([^`]+)`", row.split("|")[1])


@cache
def source_texts() -> tuple[str, ...]:
    """All texts of the source; a place in one for something that differs is `...`."""
    files = sorted((ROOT / "src" / "viewkeeper").rglob("*.py"))
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    return tuple(text for tree in trees for node in ast.walk(tree) for text in texts_of(node))


def texts_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "..." for part in parts
            )


def has_message(message: str) -> bool:
    return any(message in text for text in source_texts())


def test_the_page_quotes_messages() -> None:
    assert len(list(quoted_messages(PAGE))) > 20


@pytest.mark.parametrize("message", list(quoted_messages(PAGE)))
def test_the_message_is_in_the_source(message: str) -> None:
    assert has_message(message.removesuffix("..."))


def test_other_messages_are_missed() -> None:
    page = "| it says | cause |\n| --- | --- |\n| `it has no mood today` | x |\n"
    assert list(quoted_messages(page)) == ["it has no mood today"]
    assert not has_message("it has no mood today")


@pytest.fixture
def defaults(tmp_path: Path) -> Settings:
    (tmp_path / "viewkeeper.yml").write_text("warehouse: w\nsources: {a: {kind: sqlite, path: a}}")
    return read_settings(tmp_path)


def test_settings_for_sizes_are_read(tmp_path: Path, defaults: Settings) -> None:
    """What the table of sizes sets is what there is without it, but for the cores."""
    rows = re.findall(r"^\| [^|]+ \| `((?:spark|batch|retention|history): [^`]+)` \|", PAGE, re.M)
    assert len(rows) >= 5
    for row in rows:
        given = {"warehouse": "w", "sources": {"a": {"kind": "sqlite", "path": "a"}}}
        (tmp_path / "viewkeeper.yml").write_text(yaml.safe_dump({**given, **yaml.safe_load(row)}))
        read = read_settings(tmp_path)
        assert "master" in row or read == defaults, row
