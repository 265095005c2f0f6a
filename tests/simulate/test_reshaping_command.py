"""`viewkeeper simulate --schema-changes`: many seeds and their table, one seed again.

A seed that is not consistent enough must be printed with the one command that replays it; what does
not go together with schema changes is refused before anything is run. The table that is committed
was written by what `make simulate` runs; it must have every cell, over 2,000 seeds, and nothing
below strong.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import call
from viewkeeper.simulate.schema_changes.reshaped_campaign import ALGORITHMS, SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "dyno.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (\w+) \| ([\d,]+) of ([\d,]+) \|", re.M)


def test_seeds_go_into_a_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- dyno:begin -->old<!-- dyno:end -->\nafter\n")
    words = ["--schema-changes", "handles", "--algorithm", "sweep", "--seeds", "3", "--jobs", "1"]
    result = call("simulate", *words, "--into", str(page))
    assert result.exit_code == 0
    written = page.read_text()
    assert written.startswith("before\n")
    assert written.endswith("\nafter\n")
    assert "old" not in written
    assert [row[:2] for row in ROW.findall(written)] == [("sweep", "handles")]


def test_a_seed_replays_with_its_states() -> None:
    words = ["--schema-changes", "optimistic", "--algorithm", "batch_sweep", "--seed", "3"]
    result = call("simulate", *words)
    assert result.exit_code == 0
    assert "CREATE MATERIALIZED VIEW" in result.stdout
    assert "batch_sweep, optimistic, seed 3: " in result.stdout


def test_a_seed_that_fails_is_printed_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "viewkeeper.simulate.schema_changes.reshaped_campaign.find_shortfall",
        lambda world, found: "broken on purpose",
    )
    words = ["--schema-changes", "handles", "--algorithm", "pvm"]
    result = call("simulate", *words, "--seeds", "1", "--jobs", "1")
    assert result.exit_code == 1
    assert "broken on purpose" in result.stdout
    assert "viewkeeper simulate --schema-changes handles --algorithm pvm --seed 0" in result.stdout
    assert call("simulate", *words, "--seed", "0").exit_code == 1


@pytest.mark.parametrize(
    "words", [["--algorithm", "strobe"], ["--table"], [str(PAGE)]], ids=["strobe", "table", "file"]
)
def test_what_does_not_go_together_is_refused(words: list[str]) -> None:
    assert call("simulate", "--schema-changes", "all", *words).exit_code == 2


def test_the_page_has_every_cell_over_all_seeds() -> None:
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert [row[:2] for row in rows] == [(name, s) for name in ALGORITHMS for s in SETTINGS]
    for _, _, lowest, _, seeds in rows:
        assert lowest in ("strong", "complete"), "run: make simulate"
        assert seeds == "2,000", "run: make simulate"
