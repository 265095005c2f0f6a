"""The README's program runs and prints what the README says; its project file is a project."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from pyspark.sql import SparkSession

from viewkeeper.cli.main import cli
from viewkeeper.engine.settings.project_file import read_settings
from viewkeeper.sources.kinds import is_clock

README = Path(__file__).parents[1] / "README.md"


def block(language: str, number: int = 0) -> str:
    """A fenced block of the README."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.S | re.M)
    return str(found[number])


def test_the_program_prints_what_the_readme_says(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with capsys.disabled():
        assert CliRunner().invoke(cli, ["init", "sample"]).exit_code == 0
    program = block("python")
    given = program.replace('open("sample")', 'open("sample", spark=spark)')
    assert given != program
    scope: dict[str, object] = {"spark": spark}
    exec(compile(given, str(README), "exec"), scope)
    for name in ("shop", "crm"):
        connection = scope[name]
        assert isinstance(connection, sqlite3.Connection)
        connection.close()
    assert capsys.readouterr().out.strip() == block("text").strip()


def test_the_minimal_project_is_one(tmp_path: Path) -> None:
    (tmp_path / "viewkeeper.yml").write_text(block("yaml"))
    settings = read_settings(tmp_path)
    named = {name for name, source in settings.sources.items() if not is_clock(source)}
    assert named == {*yaml.safe_load(block("yaml"))["sources"]}
