"""`viewkeeper simulate`: algorithms in random worlds, seeds that replay, and scripts.

The worlds are in `viewkeeper.simulate`, the processes in
`viewkeeper.cli.commands.simulate.workers`. A seed that falls below its level is reduced to the
smallest run that still does, and that run is printed in the language that a script file is written
in; so what is printed can be run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from viewkeeper.cli.commands.simulate.script_runs import Outputs
from viewkeeper.errors import suggest_nearest
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions

if TYPE_CHECKING:
    from viewkeeper.simulate.campaigns.algorithm_campaign import AlgorithmCell

EPILOG = """\b
Examples:
  viewkeeper simulate --algorithm batch_sweep --seeds 2000
  viewkeeper simulate --algorithm strobe --scenario local --level strong
  viewkeeper simulate --algorithm sweep --scenario global --seed 17 --diagram run.svg
  viewkeeper simulate tests/specs/sweep-figure-5.txt
  viewkeeper simulate --table --seeds 200
  viewkeeper simulate --schema-changes optimistic --algorithm sweep --seed 17
  viewkeeper simulate --fleet --seeds 1000
  viewkeeper simulate --capacity views=5,sources=3,slots=8,latency=2ms

docs/algorithms.md says what the algorithms are and how to write a script; docs/dyno.md says what
happens when sources change their shape, docs/fleet-simulation.md what a fleet is,
docs/performance.md what a machine can keep up with.

Exit codes: 0 every seed has its level, 1 one falls below it or a script expects something else,
2 usage, or the file is no script, 130 cancelled."""

LEVELS = [level.lower_name for level in Level]
ALL = "all"
ONE_OF = "say one of: a FILE, --algorithm NAME, --table, --schema-changes, --fleet, --capacity"
DETECTION = ("pessimistic", "optimistic", "handles")


def _check_algorithm(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    if name is not None and name not in KINDS:
        raise click.BadParameter(f'there is no algorithm "{name}"{suggest_nearest(name, KINDS)}')
    return name


def _parse_options(_: click.Context, __: click.Parameter, words: Sequence[str]) -> dict[str, Any]:
    from viewkeeper.simulate.scripts.script_format import read_options

    try:
        return dict(read_options(words))
    except ValueError as wrong:
        raise click.BadParameter(str(wrong)) from wrong


@click.command(epilog=EPILOG)
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--algorithm", metavar="NAME", callback=_check_algorithm, help=", ".join(KINDS) + ".")
@click.option(
    "--seeds", type=click.IntRange(1), default=200, show_default=True, help="How many, from 0 on."
)
@click.option("--seed", type=click.IntRange(0), help="Only this one; it replays exactly.")
@click.option("--view", metavar="SHAPE", help="chain:4, star:3, cycle:3, self:3.  [default: any]")
@click.option(
    "--scenario",
    type=click.Choice([*(t.value for t in Transactions), ALL]),
    default=ALL,
    show_default=True,
    help="One change per transaction; several at one source; or at several sources.",
)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    help="What every run must have.  [default: what the algorithm promises]",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_parse_options,
    help="Of the algorithm.",
)
@click.option(
    "--diagram", type=click.Path(dir_okay=False, path_type=Path), help="Draw the run, in SVG."
)
@click.option(
    "--history", type=click.Path(dir_okay=False, path_type=Path), help="Record the run for `check`."
)
@click.option("--run", "number", type=click.IntRange(1), help="Only this run of FILE.")
@click.option("--jobs", type=click.IntRange(1), help="Processes.  [default: one per core]")
@click.option("--table", is_flag=True, help="All algorithms and scenarios, as a table.")
@click.option(
    "--into",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --table, --schema-changes: put it between the markers of this file. Repeatable.",
)
@click.option(
    "--schema-changes",
    type=click.Choice([*DETECTION, ALL]),
    help="Sources change their shape too; how Dyno notices it. One algorithm, or three.",
)
@click.option(
    "--fleet", is_flag=True, help="Many warehouses on top of each other, with a registry."
)
@click.option("--without-order", is_flag=True, help="With --fleet: everybody takes what arrives.")
@click.option(
    "--capacity",
    metavar="KEY=VALUE,...",
    help="Which rates are kept up with: rate, views, sources, slots, latency, p95; or, with what "
    "batches took here, batch and change.",
)
def simulate(
    file: Path | None,
    algorithm: str | None,
    seeds: int,
    seed: int | None,
    view: str | None,
    scenario: str,
    level: str | None,
    options: dict[str, Any],
    diagram: Path | None,
    history: Path | None,
    number: int | None,
    jobs: int | None,
    table: bool,
    into: tuple[Path, ...],
    schema_changes: str | None,
    fleet: bool,
    without_order: bool,
    capacity: str | None,
) -> int:
    """Try an algorithm in random worlds, or run a script.

    A seed determines a world: the view, the transactions, the order of all messages, crashes. The
    consistency level of every run is checked. A seed that falls below what is promised is printed
    with the command that replays it, and as the smallest run that still fails: a script, that is a
    FILE for this command.
    """
    workers = jobs or os.cpu_count() or 1
    if capacity is not None:
        return _run_capacity(capacity, not (fleet or table or file or algorithm))
    if fleet or without_order:
        others = (file, algorithm, schema_changes, level, view, diagram, history, number)
        given = [each for each in (*others, table or None, into or None) if each is not None]
        return _run_fleets(fleet and not given, not without_order, seeds, seed, workers)
    if schema_changes is not None and file is None and not table:
        return _run_schema_changes(schema_changes, algorithm, seeds, seed, workers, into)
    outputs = Outputs(diagram, history)
    wanted = None if level is None else Level[level.upper()]
    if sum((file is not None, algorithm is not None, table)) != 1 or schema_changes is not None:
        raise click.UsageError(ONE_OF)
    if file is not None:
        from viewkeeper.cli.commands.simulate.script_runs import run_file

        return run_file(file, number, wanted, outputs)
    if table:
        from viewkeeper.cli.commands.simulate.seed_runs import run_table

        return run_table(seeds, workers, into)
    cells = _make_cells(algorithm or "", options, scenario, view)
    return _by_seeds(cells, range(seeds) if seed is None else seed, workers, wanted, outputs)


def _by_seeds(
    cells: list[AlgorithmCell], seeds: range | int, jobs: int, level: Level | None, outputs: Outputs
) -> int:
    """Run many seeds, or one again."""
    from viewkeeper.cli.commands.simulate.seed_runs import run_many, run_one

    if isinstance(seeds, range):
        return run_many(cells, len(seeds), jobs, level, outputs)
    if outputs.has_any and len(cells) > 1:
        raise click.UsageError("--diagram and --history need a --scenario, to know which run")
    return max(run_one(cell, seeds, level, outputs) for cell in cells)


def _run_schema_changes(
    detection: str,
    algorithm: str | None,
    seeds: int,
    seed: int | None,
    jobs: int,
    into: tuple[Path, ...],
) -> int:
    from viewkeeper.cli.commands.simulate.schema_change_runs import run_schema_changes

    return run_schema_changes(detection, algorithm, seeds, seed, jobs, into)


def _run_capacity(words: str, alone: bool) -> int:
    """Say what a machine keeps up with, if nothing else was asked for."""
    if not alone:
        raise click.UsageError("--capacity goes alone")
    from viewkeeper.cli.commands.simulate.capacity_runs import run_capacity

    return run_capacity(words)


def _run_fleets(alone: bool, ordered: bool, seeds: int, seed: int | None, jobs: int) -> int:
    """Run fleets, if nothing was said that does not go with them."""
    if not alone:
        raise click.UsageError("--fleet goes with --without-order, --seeds, --seed and --jobs")
    from viewkeeper.cli.commands.simulate.fleet_runs import run_fleets

    return run_fleets(ordered, seeds, seed, jobs)


def _make_cells(
    algorithm: str, options: dict[str, Any], scenario: str, view: str | None
) -> list[AlgorithmCell]:
    from viewkeeper.simulate.campaigns.algorithm_campaign import AlgorithmCell
    from viewkeeper.simulate.campaigns.workload import JoinShape
    from viewkeeper.simulate.scenario import AlgorithmSubject

    KINDS[algorithm].check_options(options, "--option")
    shape = None if view is None else JoinShape.read_shape(view)
    return [
        AlgorithmCell(AlgorithmSubject(algorithm, options), transactions, shape)
        for transactions in Transactions
        if scenario in (ALL, transactions.value)
    ]
