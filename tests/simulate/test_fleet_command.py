"""`viewkeeper simulate --fleet`: many seeds and their sums, one seed again.

A seed that fails must be printed with the one command that replays it; what does not go together
with fleets is refused before anything is run.
"""

from __future__ import annotations

import pytest

from tests.cli.conftest import call


def test_many_seeds_with_an_order() -> None:
    result = call("simulate", "--fleet", "--seeds", "5", "--jobs", "1")
    assert result.exit_code == 0
    assert "5 seeds: " in result.stdout
    assert "not view consistent: 0 seeds" in result.stdout


def test_without_an_order_inconsistencies_are_counted() -> None:
    result = call("simulate", "--fleet", "--without-order", "--seeds", "20", "--jobs", "1")
    assert result.exit_code == 0
    assert "not view consistent: 0 seeds" not in result.stdout


def test_a_seed_replays_with_its_orders_and_states() -> None:
    result = call("simulate", "--fleet", "--seed", "3")
    assert result.exit_code == 0
    assert "m1 reads b" in result.stdout
    assert "m1 ts 1 after " in result.stdout
    assert result.stdout.endswith("seed 3: consistent\n")


def test_a_seed_that_fails_is_printed_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = ("broken on purpose", dict[str, int]())
    for module in ("simulate.fleet.fleet_campaign", "cli.commands.simulate.fleet_runs"):
        monkeypatch.setattr(f"viewkeeper.{module}.judge_fleet", lambda world: wrong)
    result = call("simulate", "--fleet", "--seeds", "1", "--jobs", "1")
    assert result.exit_code == 1
    assert "broken on purpose" in result.stdout
    assert "viewkeeper simulate --fleet --seed 0" in result.stdout
    assert call("simulate", "--fleet", "--seed", "0").exit_code == 1


@pytest.mark.parametrize(
    "words", [["--algorithm", "sweep"], ["--table"], ["--level", "strong"]], ids=lambda w: w[0]
)
def test_what_does_not_go_together_is_refused(words: list[str]) -> None:
    assert call("simulate", "--fleet", *words).exit_code == 2
    assert call("simulate", "--without-order").exit_code == 2
