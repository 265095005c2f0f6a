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

from viewkeeper.check.explanation import explain
from viewkeeper.cli.commands.simulate.run_outputs import Outputs
from viewkeeper.cli.commands.simulate.workers import campaign
from viewkeeper.cli.format import amount_text
from viewkeeper.cli.terminal import note
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.promises import Level
from viewkeeper.maintain.promises import Scenario as Transactions
from viewkeeper.simulate.campaigns.algorithm_campaign import (
    Cell,
    Outcome,
    Tally,
    judged,
    replayed,
    run_seed,
    smallest,
    steps_of,
)
from viewkeeper.simulate.campaigns.algorithm_table import full, into, line_of
from viewkeeper.simulate.campaigns.standstill import stands_still
from viewkeeper.simulate.scenario import Subject
from viewkeeper.simulate.scripts.script_format import script_of

if TYPE_CHECKING:
    from viewkeeper.simulate.simulated_world import World


def run_many(
    cells: Sequence[Cell], seeds: int, jobs: int, level: Level | None, outputs: Outputs
) -> int:
    """Run seeds of some cells; 1 if one falls below."""
    tallies = campaign(cells, seeds, jobs, level)
    for tally in tallies:
        click.echo(_summary(tally))
    failed = [tally for tally in tallies if tally.failed]
    if failed:
        _show_failure(failed[0].cell, failed[0].failed[0], failed[0].level, outputs, level)
    return 1 if failed else 0


def _summary(tally: Tally[Cell]) -> str:
    cell = tally.cell
    line = (
        f"{cell.subject.name}, {cell.transactions.value}: {amount_text(tally.seeds, 'seed')}, lowest "
        f"level {tally.lowest.word}, {tally.level.word} wanted; {tally.incomplete:,} not complete; "
        f"{tally.messages:.2f} lookups per update"
    )
    if tally.undecided:
        line += f"; {tally.undecided:,} undecided"
    return line if not tally.failed else f"{line}; {len(tally.failed):,} BELOW {tally.level.word}"


def run_one(cell: Cell, seed: int, level: Level | None, outputs: Outputs) -> int:
    """Replay a seed; 1 if it falls below."""
    wanted = cell.promise if level is None else level
    outcome = run_seed(cell, seed)
    where = f"{cell.subject.name}, {cell.transactions.value}, seed {seed}"
    if outcome.is_below(wanted):
        click.echo(f"{where}: below {wanted.word}")
        _show_failure(cell, outcome, wanted, outputs, level)
        return 1
    world = replayed(cell, seed)
    click.echo(
        f"{where}: {outcome.possible.word}, {wanted.word} wanted; "
        f"{amount_text(outcome.updates, 'transaction')}, {amount_text(len(world.trace.steps), 'step')}, "
        f"{amount_text(outcome.lookups, 'lookup')}"
    )
    outputs.write(world, where)
    return 0


def _show_failure(
    cell: Cell, outcome: Outcome, wanted: Level, outputs: Outputs, level: Level | None
) -> None:
    click.echo(f"\nreplay it with:\n\n  {command(cell, outcome.seed, level)}\n")
    note("looking for the smallest run that still fails")
    world = smallest(cell, outcome.seed, wanted)
    title = f"smallest of seed {outcome.seed}"
    case = steps_of(world)
    click.echo(f"{script_of(case.scenario, case.subject, case.steps, title)}\n")
    click.echo(_why(world, outcome))
    outputs.write(world, f"{cell.subject.name}, {title}")


def _why(world: World, outcome: Outcome) -> str:
    """What the checker says, or how the algorithm failed."""
    if not world.done:
        return f"The run does not come to its end. {outcome.error or ''}".strip()
    verdict = judged(world)
    said = [explanation.text for explanation in explain(verdict)]
    return "\n".join([*said, f"The run is {verdict.level.word}."])


def command(cell: Cell, seed: int, level: Level | None = None) -> str:
    """The one command that replays a seed."""
    words = ["viewkeeper", "simulate", "--algorithm", cell.subject.name]
    words += ["--scenario", cell.transactions.value, "--seed", str(seed)]
    words += ["--view", str(cell.shape)] if cell.shape else []
    for key, value in sorted(cell.subject.options.items()):
        words += ["--option", f"{key}={value}"]
    words += ["--level", level.word] if level is not None else []
    return shlex.join(words)


def run_table(seeds: int, jobs: int, files: Sequence[Path]) -> int:
    """All algorithms and scenarios; 1 if a promise is not kept."""
    for path in files:
        # Better said before the long run than after it.
        into(path.read_text(encoding="utf-8"), (), str(path))
    cells = [Cell(Subject(name), transactions) for name in KINDS for transactions in Transactions]
    tallies = campaign(cells, seeds, jobs)
    lines = [line_of(t, stands_still(t.cell.subject, t.cell.transactions)) for t in tallies]
    click.echo(full(lines))
    for path in files:
        path.write_text(into(path.read_text(encoding="utf-8"), lines, str(path)), encoding="utf-8")
    failed = [tally for tally in tallies if tally.failed]
    for tally in failed:
        click.echo(f"\n{_summary(tally)}\n  {command(tally.cell, tally.failed[0].seed)}")
    return 1 if failed else 0
