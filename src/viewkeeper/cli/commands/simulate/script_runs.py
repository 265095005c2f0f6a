"""`viewkeeper simulate FILE`: the runs of a script, with what they expect.

A run that says which level it expects must have exactly that. One that does not, such as a failure
that was printed, must have what its algorithm promises; so it fails as long as the defect is there.

A diagram, and a history for `check`, are of one run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from viewkeeper.check.explanation import explain_verdict
from viewkeeper.cli.format import amount_text
from viewkeeper.errors import ExpectationError, SimulationError
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.simulate.scenario import Scenario
from viewkeeper.simulate.scripts.script_format import Expect, Script, ScriptRun
from viewkeeper.simulate.scripts.script_reader import read_script
from viewkeeper.simulate.scripts.script_run import PerformedRun, perform_run

if TYPE_CHECKING:
    from viewkeeper.simulate.simulated_world import SimulatedWorld


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a run is drawn and recorded."""

    diagram: Path | None
    history: Path | None

    @property
    def has_any(self) -> bool:
        return self.diagram is not None or self.history is not None

    def write_run(self, world: SimulatedWorld, title: str) -> None:
        """Draw and record a run that was made."""
        if self.diagram is not None:
            from viewkeeper.simulate.sequence_diagram import draw_diagram

            self.diagram.write_text(draw_diagram(world, title), encoding="utf-8")
        if self.history is not None:
            from viewkeeper.check.history.history_file import write_history

            text = write_history(world.run_history(as_of=world.kind.as_of))
            self.history.write_text(text, encoding="utf-8")


def run_file(path: Path, number: int | None, level: Level | None, outputs: Outputs) -> int:
    """Run a script; 1 if something is not as it should be."""
    try:
        script = read_script(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise SimulationError(f"{path}: cannot be read: {error}") from error
    runs = script.runs if number is None else script.runs[number - 1 : number]
    if not runs:
        raise SimulationError(f"{path}: it has {amount_text(len(script.runs), 'run')}")
    if outputs.has_any and len(runs) > 1:
        raise SimulationError(
            f"{path}: several runs, of which one can be drawn or recorded",
            hint="--run 1, --run 2, ...",
        )
    return max(_perform_run(script, run, level, outputs) for run in runs)


def _perform_run(script: Script, run: ScriptRun, level: Level | None, outputs: Outputs) -> int:
    try:
        performed = perform_run(script, run)
    except ExpectationError as unmet:
        click.echo(f"{run.title}: not as expected\n  {unmet.message}")
        return 1
    outputs.write_run(performed.world, run.title)
    lookups = amount_text(sum(performed.world.asks.values()), "lookup")
    verdict = performed.verdict
    if verdict is None:
        click.echo(f"{run.title}: not over; {lookups}")
        return 0
    click.echo(f"{run.title}: {verdict.level.lower_name}, {lookups}")
    wanted = _wanted_level(script, run, level, performed)
    if verdict.level >= wanted:
        return 0
    for explanation in explain_verdict(verdict):
        click.echo(f"  {explanation.text}")
    click.echo(f"  {wanted.lower_name} was wanted")
    return 1


def _wanted_level(
    script: Script, run: ScriptRun, level: Level | None, performed: PerformedRun
) -> Level:
    if level is not None:
        return level
    if any(isinstance(line.what, Expect) and line.what.what == "level" for line in run.lines):
        return Level.NONE
    return performed.world.kind.promise[transactions_of(script.scenario)]


def transactions_of(scenario: Scenario) -> Transactions:
    """What kind of transactions a scenario has."""
    if any(len(transaction.parts) > 1 for transaction in scenario.transactions):
        return Transactions.GLOBAL
    changes = [
        sum(len(rows) for part in transaction.parts.values() for rows in part.values())
        for transaction in scenario.transactions
    ]
    return Transactions.LOCAL if max(changes, default=0) > 1 else Transactions.SINGLE
