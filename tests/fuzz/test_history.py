"""Damaged histories and scripts: read, or refused with the place."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.mutation import fuzz_text
from viewkeeper.check.history.history_file import read_history
from viewkeeper.simulate.scripts.script_reader import read_script

ROOT = Path(__file__).parent.parent.parent
TYPES = """\
{"view": ["CREATE MATERIALIZED VIEW v AS",
          "SELECT a.id, b.name, a.p FROM x.a JOIN y.b ON a.id = b.id"],
 "tables": {"x.a": {"columns": {"id": "int", "p": "decimal(9,2)", "t": "timestamp", "f": "float"},
                    "rows": [[1, "1.50", "2024-02-29 12:00:00", 0.5],
                             {"row": [2, null, null, null], "count": 2}]},
            "y.b": {"columns": {"id": "int", "name": "text", "d": "date", "z": "timestamptz",
                                "x": "binary"}}},
 "transactions": [{"name": "T1", "parts": {"y": {"b": [{"insert": [1, "one", "2024-02-29",
                   "0001-01-01 00:00:00+00:00", "00ff"]}]}}}],
 "states": [{"rows": []},
            {"rows": [[1, "one", "1.50"]], "claim": {"x": 0, "y": 1}, "quiet": true,
             "label": "end"}]}
"""


def good(pattern: str) -> list[str]:
    files = sorted(ROOT.glob(pattern))
    return [file.read_text("utf-8") for file in files if file.stat().st_size < 20_000]


def test_damaged_history() -> None:
    texts = [TYPES, *good("tests/**/*history*.json"), *good("docs/**/*.json")]
    read_history(TYPES)
    fuzz_text(read_history, texts, inputs=2000)


def test_damaged_script() -> None:
    texts = good("tests/specs/*.txt")
    assert texts
    fuzz_text(read_script, texts, inputs=2000)
