"""Every command is documented, answers for help with an example, and is quick to start.

Speed is asserted as what is imported, not as time: whatever starts no JVM must not even load the
libraries that it does not need.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands_page import commands_page
from tests.cli.conftest import call
from viewkeeper.cli.main import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
# Written by others, and present in a complete checkout only.
OURS = [name for name in COMMANDS if name != "demo"]

LOADED = """
import json, sys
from viewkeeper.cli.main import cli
try:
    cli.main(sys.argv[1:])
except SystemExit as end:
    print(json.dumps([end.code, sorted(sys.modules)]))
"""


def test_the_reference_is_current() -> None:
    message = "run: python -m tests.cli.commands_page > docs/commands.md"
    assert PAGE.read_text(encoding="utf-8") == commands_page(), message


@pytest.mark.parametrize("name", OURS)
def test_every_command_has_help_with_examples_and_exit_codes(name: str) -> None:
    result = call(name, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert name == "init" or "Exit codes:" in result.stdout
    assert COMMANDS[name][1] in result.stdout


def test_the_list_of_commands_and_the_version() -> None:
    listed = call("--help")
    assert listed.exit_code == 0
    assert all(line in listed.stdout for _, line in COMMANDS.values())
    shown = call("--version")
    assert shown.exit_code == 0
    assert shown.stdout.startswith("viewkeeper ")


HEAVY = {
    *("numpy", "pandas", "pyarrow", "deltalake", "sqlglot", "rich", "yaml", "pyspark", "py4j"),
    *("viewkeeper.maintain.algorithm_makers", "viewkeeper.order.service"),
}
"""What takes more than a few hundredths of a second to import."""
ARROW = {"numpy", "pyarrow", "yaml"}
QUERY = {*ARROW, "sqlglot", "rich"}
PROJECT = {*ARROW, "sqlglot", "deltalake", "viewkeeper.order.service"}
"""What opens a project as a maintainer does."""


@pytest.mark.parametrize(
    ("words", "code", "wanted"),
    [
        (["--help"], 0, set[str]()),
        (["init", "new"], 0, set[str]()),
        (["status"], 0, {*ARROW, "rich"}),
        (["explain", "order_lines"], 0, {*ARROW, "sqlglot"}),
        (["explain", "customer_totals"], 0, {*ARROW, "sqlglot"}),
        (["query", "SELECT customer, sum(cents) FROM order_lines GROUP BY 1"], 0, QUERY),
        (["doctor"], 0, {*ARROW, "sqlglot"}),
        (["detach", "--yes"], 0, ARROW),
        (["plan"], 0, PROJECT),
        (["changes-feed", "order_lines"], 0, QUERY - {"rich"}),
        (["history", "order_lines"], 0, PROJECT),
        (["changes"], 0, PROJECT),
        # Nothing maintains it, and its files are as they were.
        (["reload"], 2, QUERY - {"rich"}),
        (["drop", "berlin_bulk", "--file", "--yes"], 0, {*ARROW, "sqlglot", "deltalake"}),
    ],
)
def test_a_command_imports_what_it_uses(
    copy: Path, words: list[str], code: int, wanted: set[str]
) -> None:
    command = [sys.executable, "-c", LOADED, *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=copy, check=True)
    ended, modules = json.loads(done.stdout.splitlines()[-1])
    assert ended == code
    assert HEAVY & set(modules) == wanted
