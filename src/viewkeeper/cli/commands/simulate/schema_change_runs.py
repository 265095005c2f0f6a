"""`viewkeeper simulate --schema-changes`: Dyno in random worlds, many seeds or one.

A seed that is not consistent enough is printed with the command that replays it; replayed, it says
what happened step by step and what the judge found wrong. The table goes between the markers of
docs/dyno.md.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import click

from viewkeeper.cli.commands.simulate.workers import run_campaign
from viewkeeper.cli.format import amount_text
from viewkeeper.evolution.dyno.dyno_loop import WIDTHS
from viewkeeper.simulate.campaigns.algorithm_campaign import CampaignTally, SeedOutcome
from viewkeeper.simulate.campaigns.algorithm_table import insert_marked
from viewkeeper.simulate.schema_changes.reshaped_campaign import (
    ALGORITHMS,
    SETTINGS,
    ReshapedCell,
    world_of,
)
from viewkeeper.simulate.schema_changes.reshaped_world import play_reshaped

HEAD = (
    "| inner algorithm | detection | lowest level | not complete | values kept | queries broken "
    "| undone | merged | questions per transaction |\n| --- | --- | --- | --- | --- | --- | --- "
    "| --- | --- |"
)


def run_schema_changes(
    setting: str,
    algorithm: str | None,
    seeds: int,
    seed: int | None,
    jobs: int,
    files: Sequence[Path],
) -> int:
    """Run seeds with schema changes; 1 if one is not consistent enough."""
    if algorithm is not None and algorithm not in WIDTHS:
        words = ", ".join(WIDTHS)
        raise click.UsageError(f"--schema-changes: an algorithm of the sweep family: {words}")
    names = ALGORITHMS if algorithm is None else (algorithm,)
    settings = [setting] if setting in SETTINGS else [*SETTINGS]
    cells = [ReshapedCell(name, each) for name in names for each in settings]
    if seed is not None:
        return max(_replay_seed(cell, seed) for cell in cells)
    for path in files:
        # Better said before the long run than after it.
        _text_with_table(path, "")
    tallies = run_campaign(cells, seeds, jobs)
    table = _result_table(tallies)
    click.echo(table)
    for path in files:
        path.write_text(_text_with_table(path, table), encoding="utf-8")
    for tally in tallies:
        if tally.failed:
            click.echo(f"\n{_failure_text(tally.cell, tally.failed[0], len(tally.failed))}")
    return 1 if any(tally.failed for tally in tallies) else 0


def _replay_seed(cell: ReshapedCell, seed: int) -> int:
    """Run one seed, and tell what happened."""
    outcome = cell.judge_seed(seed)
    world = world_of(cell.dyno_setting, seed)
    click.echo(world.scenario.text)
    for number, transaction in enumerate(world.scenario.transactions, 1):
        click.echo(f"{number:3} {transaction.source} {transaction.kind}: {transaction.operations}")
    try:
        play_reshaped(world, random.Random(f"{seed} pace"))
    except Exception as raised:  # noqa: BLE001 - the outcome has it already; the states are wanted
        click.echo(f"{type(raised).__name__}: {raised}")
    for state in world.store.states:
        rows = ", ".join(f"{row} x{count}" for row, count in sorted(state.rows, key=repr))
        click.echo(f"{state.label} {dict(state.claim)} {state.columns}: {rows}")
    said = f"{cell.name}, seed {seed}: {outcome.found.lower_name}"
    click.echo(said if outcome.error is None else _failure_text(cell, outcome, 1))
    return 0 if outcome.error is None else 1


def _failure_text(cell: ReshapedCell, outcome: SeedOutcome, count: int) -> str:
    return (
        f"{cell.name}: {amount_text(count, 'seed')} not consistent enough; seed {outcome.seed}: "
        f"{outcome.error}\n  {cell.replay_command(outcome.seed)}"
    )


def _result_table(tallies: Sequence[CampaignTally[ReshapedCell]]) -> str:
    lines = [HEAD]
    for tally in tallies:
        cell, facts = tally.cell, tally.facts
        lines.append(
            f"| `{cell.algorithm}` | {cell.setting} | {tally.lowest.lower_name} "
            f"| {tally.incomplete:,} of {tally.seeds:,} | {facts['kept']:,} | {facts['broken']:,} "
            f"| {facts['undone']:,} | {facts['merged']:,} | {tally.messages_per_update:.2f} |"
        )
    return "\n".join(lines)


def _text_with_table(path: Path, table: str) -> str:
    return insert_marked(path.read_text(encoding="utf-8"), {"dyno": table}, str(path))
