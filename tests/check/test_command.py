"""`viewkeeper check`: exit codes, words and JSON, on the example files and the one in the docs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import call
from viewkeeper.check.history.history_file import WORDS
from viewkeeper.cli.commands.check_command import EPILOG

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "histories"
DOCS = ROOT / "docs" / "levels.md"


def words(name: str, *options: str) -> list[str]:
    return ["check", str(EXAMPLES / f"{name}.json"), *options]


@pytest.mark.parametrize(
    ("name", "level", "code"),
    [
        ("deletion_anomaly", "convergence", 1),
        ("half_transaction", "convergence", 0),
        ("half_transaction", "weak", 1),
        ("global_halves", "weak", 0),
        ("global_halves", "strong", 1),
    ],
)
def test_the_exit_code_says_whether_the_level_is_reached(name: str, level: str, code: int) -> None:
    result = call(*words(name, "--level", level))
    assert result.exit_code == code
    assert (f"The history is below {level}." in result.stdout) == bool(code)
    facts = json.loads(call(*words(name, "--level", level, "--json")).stdout)
    assert facts["reached"] == ("no" if code else "yes")


def test_predicates_levels_and_reasons_are_shown() -> None:
    out = call(*words("deletion_anomaly")).stdout
    assert re.search(r"convergent +no ", out)
    assert re.search(r"ordered +yes ", out)
    assert re.search(r"Strobe paper: none\n +PVM paper: +consistency\n", out)
    assert "state 0 (initial) stands for x 0 of 1, y 0 of 1, z 0 of 0" in out
    assert "it has (1, 2, 3, 4) too much" in out
    out = call(*words("global_halves")).stdout
    assert re.search(r"Strobe paper: weak\n +PVM paper: +convergence and weak\n", out)
    assert "shows the global transaction T2 in halves" in out


def test_json_has_the_same() -> None:
    facts = json.loads(call(*words("deletion_anomaly", "--json")).stdout)
    assert facts["level"] == facts["possible"] == "none"
    assert facts["predicates"] == {
        "convergent": "no",
        "legal": "yes",
        "ordered": "yes",
        "complete": "no",
    }
    assert facts["pvm"]["consistency"] == "yes"
    assert facts["stands_for"] == [{"x": 0, "y": 0, "z": 0}, {"x": 0, "y": 1, "z": 0}]
    assert [each["about"] for each in facts["explanations"]] == ["convergent"]


def test_unknown_is_said_and_is_no_yes() -> None:
    result = call(*words("global_halves", "--level", "weak", "--limit", "1"))
    assert result.exit_code == 1
    assert "unknown: weak, strong\n" in result.stdout
    assert "The history is not known to be at least weak." in result.stdout
    assert "A larger --limit may decide it." in result.stdout


def test_bad_input_ends_with_2(tmp_path: Path) -> None:
    assert call("check", str(tmp_path / "missing.json")).exit_code == 2
    (tmp_path / "h.json").write_text("{}")
    result = call("check", str(tmp_path / "h.json"))
    assert result.exit_code == 2
    assert 'h.json: "view" is missing' in result.stderr
    (tmp_path / "h.json").write_bytes(b"\xff\xfe\x00")
    result = call("check", str(tmp_path / "h.json"))
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr
    text = (EXAMPLES / "deletion_anomaly.json").read_text().replace('"delete"', '"insert"')
    (tmp_path / "h.json").write_text(text.replace('"insert": [2, 3]', '"delete": [2, 3]'))
    result = call("check", str(tmp_path / "h.json"))
    assert result.exit_code == 2
    assert 'transaction "U1": deletes (2, 3) from y.r2' in result.stderr


def test_the_history_in_the_docs_is_what_the_docs_say(tmp_path: Path) -> None:
    page = DOCS.read_text(encoding="utf-8")
    (block,) = re.findall(r"^```json\n(.*?)^```$", page, re.S | re.M)
    (said,) = re.findall(r"The level of this one is (\w+)\.", page)
    (tmp_path / "h.json").write_text(block)
    facts = json.loads(call("check", str(tmp_path / "h.json"), "--json").stdout)
    assert facts["level"] == said
    assert all(word in page for word in WORDS)


def test_the_examples_of_the_help_are_there() -> None:
    named = re.findall(r"examples/\S+\.json", EPILOG)
    assert named
    assert all((ROOT / name).is_file() for name in named)


def test_it_loads_little() -> None:
    program = "import sys; from viewkeeper.cli.main import cli\ntry: cli.main(sys.argv[1:])\n"
    program += "except SystemExit: print(sorted(sys.modules), file=sys.stderr)"
    command = [sys.executable, "-c", program, *words("half_transaction")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in re.findall(r"'([^']+)'", done.stderr)}
    assert "viewkeeper" in loaded
    assert not loaded & {"pyspark", "pandas", "rich"}
