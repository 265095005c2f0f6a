"""Promises hold: every algorithm in every scenario, 100 random worlds each, and the tables say so.

One test per algorithm. What the README and docs/algorithms.md say was found by `make simulate` over
twenty times as many seeds; the words must be the same here, the figures need not.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from viewkeeper.cli.commands.simulate.seed_runs import replay_command
from viewkeeper.cli.commands.simulate.workers import run_campaign
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.simulate.campaigns.algorithm_campaign import AlgorithmCell, CampaignTally
from viewkeeper.simulate.campaigns.standstill import is_standstill
from viewkeeper.simulate.scenario import AlgorithmSubject

ROOT = Path(__file__).parents[2]
SEEDS = 100
ROW = re.compile(r"^\| `(\w+)` \| (.*) \|$", re.M)


def rows(path: str, form: str) -> list[tuple[str, str]]:
    """The rows between a file's markers: the algorithm, and the other columns."""
    text = (ROOT / path).read_text(encoding="utf-8")
    table = re.search(f"<!-- {form}:begin -->(.*)<!-- {form}:end -->", text, re.S)
    assert table is not None
    return ROW.findall(table[1].replace("¹", ""))


@cache
def full_table() -> dict[tuple[str, str], tuple[str, str, str]]:
    """Promised level, level found and quiet moments, by algorithm and scenario."""
    found = {}
    for name, rest in rows("docs/algorithms.md", "scenarios"):
        scenario, promised, lowest, _, _, quiet = rest.split(" | ")
        found[name, scenario] = (promised, lowest, quiet)
    return found


@cache
def brief_table() -> dict[str, list[str]]:
    return {name: rest.split(" | ") for name, rest in rows("README.md", "algorithms")}


def tallies(name: str) -> list[CampaignTally[AlgorithmCell]]:
    cells = [AlgorithmCell(AlgorithmSubject(name), transactions) for transactions in Transactions]
    return run_campaign(cells, SEEDS, jobs=1, quiet=True)


@pytest.mark.parametrize("name", KINDS)
def test_promises_hold(name: str) -> None:
    for tally in tallies(name):
        cell = tally.cell
        assert tally.seeds == SEEDS
        assert not tally.failed, replay_command(cell, tally.failed[0].seed)
        assert not tally.undecided, "the checker must decide such small histories"
        if cell.promised_level < Level.COMPLETE:
            assert tally.incomplete, "the worlds are too tame to show what is not promised"
        if name == "conventional":
            assert tally.lowest is Level.NONE, "the anomaly must appear"
        still = "needed" if is_standstill(cell.subject, cell.transactions) else "not needed"
        assert (still == "needed") is KINDS[name].quiescence
        words = (cell.promised_level.lower_name, tally.lowest.lower_name, still)
        assert full_table()[name, cell.transactions.value] == words, "run: make simulate"


@pytest.mark.parametrize("name", KINDS)
def test_the_readme_says_what_the_full_table_says(name: str) -> None:
    *levels, lookups, quiet = brief_table()[name]
    assert len(lookups.split(" / ")) == len(levels) == len(Transactions)
    for transactions, said in zip(Transactions, levels, strict=True):
        promised, found, needed = full_table()[name, transactions.value]
        assert said == (promised if promised == found else f"{promised} ({found} found)")
        assert quiet == needed


def test_the_tables_have_all_algorithms_and_no_others() -> None:
    assert list(brief_table()) == list(KINDS)
    assert list(full_table()) == [(name, t.value) for name in KINDS for t in Transactions]
