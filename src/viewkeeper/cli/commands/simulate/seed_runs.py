"""`viewkeeper simulate` on seeds: many, one, or all algorithms for the table.

What is below its level is shown in this order: how many seeds, the command that replays the first
of them, the smallest run that still fails, as a script, and what the checker says of it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from viewkeeper.check.explanation import explain_verdict
from viewkeeper.cli.commands.simulate.script_runs import Outputs
from viewkeeper.cli.commands.simulate.workers import run_campaign
from viewkeeper.cli.format import amount_text
from viewkeeper.cli.terminal import print_note
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.simulate.campaigns.algorithm_campaign import (
    AlgorithmCell,
    CampaignTally,
    SeedOutcome,
    case_of,
    judge_world,
    replay_seed,
    run_seed,
    smallest_failure,
)
from viewkeeper.simulate.campaigns.algorithm_table import full_table, insert_table, line_of
from viewkeeper.simulate.campaigns.standstill import is_standstill
from viewkeeper.simulate.scenario import AlgorithmSubject
from viewkeeper.simulate.scripts.script_format import script_of

if TYPE_CHECKING:
    from viewkeeper.simulate.simulated_world import SimulatedWorld


def run_many(
    cells: Sequence[AlgorithmCell], seeds: int, jobs: int, level: Level | None, outputs: Outputs
) -> int:
    """Run seeds of some cells; 1 if one falls below."""
    tallies = run_campaign(cells, seeds, jobs, level)
    for tally in tallies:
        click.echo(_tally_summary(tally))
    failed = [tally for tally in tallies if tally.failed]
    if failed:
        _show_failure(failed[0].cell, failed[0].failed[0], failed[0].level, outputs, level)
    return 1 if failed else 0


def _tally_summary(tally: CampaignTally[AlgorithmCell]) -> str:
    cell = tally.cell
    line = (
        f"{cell.subject.name}, {cell.transactions.value}: {amount_text(tally.seeds, 'seed')}, "
        f"lowest level {tally.lowest.lower_name}, {tally.level.lower_name} wanted; "
        f"{tally.incomplete:,} not complete; {tally.messages_per_update:.2f} lookups per update"
    )
    if tally.undecided:
        line += f"; {tally.undecided:,} undecided"
    return (
        line
        if not tally.failed
        else f"{line}; {len(tally.failed):,} BELOW {tally.level.lower_name}"
    )


def run_one(cell: AlgorithmCell, seed: int, level: Level | None, outputs: Outputs) -> int:
    """Replay a seed; 1 if it falls below."""
    wanted = cell.promised_level if level is None else level
    outcome = run_seed(cell, seed)
    where = f"{cell.subject.name}, {cell.transactions.value}, seed {seed}"
    if outcome.is_below(wanted):
        click.echo(f"{where}: below {wanted.lower_name}")
        _show_failure(cell, outcome, wanted, outputs, level)
        return 1
    world = replay_seed(cell, seed)
    click.echo(
        f"{where}: {outcome.possible.lower_name}, {wanted.lower_name} wanted; "
        f"{amount_text(outcome.updates, 'transaction')}, "
        f"{amount_text(len(world.trace.steps), 'step')}, {amount_text(outcome.lookups, 'lookup')}"
    )
    outputs.write_run(world, where)
    return 0


def _show_failure(
    cell: AlgorithmCell, outcome: SeedOutcome, wanted: Level, outputs: Outputs, level: Level | None
) -> None:
    click.echo(f"\nreplay it with:\n\n  {replay_command(cell, outcome.seed, level)}\n")
    print_note("looking for the smallest run that still fails")
    world = smallest_failure(cell, outcome.seed, wanted)
    title = f"smallest of seed {outcome.seed}"
    case = case_of(world)
    click.echo(f"{script_of(case.scenario, case.subject, case.steps, title)}\n")
    click.echo(_failure_reason(world, outcome))
    outputs.write_run(world, f"{cell.subject.name}, {title}")


def _failure_reason(world: SimulatedWorld, outcome: SeedOutcome) -> str:
    """What the checker says, or how the algorithm failed."""
    if not world.is_done:
        return f"The run does not come to its end. {outcome.error or ''}".strip()
    verdict = judge_world(world)
    said = [explanation.text for explanation in explain_verdict(verdict)]
    return "\n".join([*said, f"The run is {verdict.level.lower_name}."])


def replay_command(cell: AlgorithmCell, seed: int, level: Level | None = None) -> str:
    words = ["viewkeeper", "simulate", "--algorithm", cell.subject.name]
    words += ["--scenario", cell.transactions.value, "--seed", str(seed)]
    words += ["--view", str(cell.shape)] if cell.shape else []
    for key, value in sorted(cell.subject.options.items()):
        words += ["--option", f"{key}={value}"]
    words += ["--level", level.lower_name] if level is not None else []
    return shlex.join(words)


def run_table(seeds: int, jobs: int, files: Sequence[Path]) -> int:
    """All algorithms and scenarios; 1 if a promise is not kept."""
    for path in files:
        # Better said before the long run than after it.
        insert_table(path.read_text(encoding="utf-8"), (), str(path))
    cells = [
        AlgorithmCell(AlgorithmSubject(name), transactions)
        for name in KINDS
        for transactions in Transactions
    ]
    tallies = run_campaign(cells, seeds, jobs)
    lines = [line_of(t, is_standstill(t.cell.subject, t.cell.transactions)) for t in tallies]
    click.echo(full_table(lines))
    for path in files:
        path.write_text(
            insert_table(path.read_text(encoding="utf-8"), lines, str(path)), encoding="utf-8"
        )
    failed = [tally for tally in tallies if tally.failed]
    for tally in failed:
        click.echo(
            f"\n{_tally_summary(tally)}\n  {replay_command(tally.cell, tally.failed[0].seed)}"
        )
    return 1 if failed else 0
