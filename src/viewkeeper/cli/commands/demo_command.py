"""`viewkeeper demo`: the whole promise in a minute, on real databases, with an independent judge.

The command makes the folder, chooses how to show things, and says at the end in sentences (or as
JSON) what was written, how it was maintained and what the judge found. It exits 1 if anything
differs, and 130 when it was interrupted; either way nothing is left running or lying about.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from viewkeeper.demo.demo_run import DemoResult
    from viewkeeper.demo.demo_world import DemoWorld
    from viewkeeper.demo.display import DemoScreen

DIFFERS = 1
INTERRUPTED = 130


EPILOG = """\b
Examples:
  viewkeeper demo
  viewkeeper demo --sources mixed                 PostgreSQL, MariaDB, SQLite, files, Delta Lake
  viewkeeper demo --seconds 60 --keep shop        and look around in the project afterwards
  viewkeeper demo --json | jq .judge

Exit codes: 0 every state is right, 1 something differs, 2 the demo could not be carried out,
130 interrupted."""


@click.command(epilog=EPILOG)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1.0),
    default=20.0,
    show_default=True,
    help="How long the writers go on after the views are loaded.",
)
@click.option(
    "--sources",
    type=click.Choice(["sqlite", "mixed"]),
    default="sqlite",
    show_default=True,
    help="Three SQLite databases, or one of each kind; servers are private and stopped again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print only a report, as JSON.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Make the project in this new folder and keep it.",
)
@click.option("--seed", default=1, show_default=True, help="What the writers' choices start from.")
def demo(seconds: float, sources: str, as_json: bool, keep: Path | None, seed: int) -> None:
    """Keep a join over busy databases fresh, then prove every state right."""
    from rich.console import Console

    from viewkeeper.demo.demo_run import run_demo
    from viewkeeper.demo.display import DemoScreen

    context = click.get_current_context()
    # Without a terminal there is no width to keep to.
    screen = DemoScreen(Console(width=None if sys.stdout.isatty() else 120), quiet=as_json)
    try:
        with interrupt_on_sigterm(), demo_folder(keep) as folder:
            result = run_demo(world_of(sources, folder), seconds, seed, screen)
    except KeyboardInterrupt:
        click.echo("Interrupted; everything that was started is stopped.", err=True)
        context.exit(INTERRUPTED)
    if as_json:
        click.echo(json.dumps(report_data(result, seconds, seed), indent=2))
    else:
        show_result(screen, result)
        if keep is not None:
            screen.print_text(folder_advice(sources, keep))
    context.exit(0 if result.verdict.ok else DIFFERS)


@contextmanager
def demo_folder(keep: Path | None) -> Iterator[Path]:
    """The folder to keep, which must be new, or one that is removed in the end."""
    if keep is None:
        with tempfile.TemporaryDirectory(
            prefix="viewkeeper-demo-", ignore_cleanup_errors=True
        ) as folder:
            yield Path(folder)
        return
    if keep.exists() and any(keep.iterdir()):
        raise click.BadParameter(f"{keep} is not empty", param_hint="--keep")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: in order."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def world_of(sources: str, folder: Path) -> DemoWorld:
    """The world by its word; what the mixed one needs is imported only for it."""
    if sources == "mixed":
        from viewkeeper.demo.mixed_world import MixedWorld

        return MixedWorld(folder)
    from viewkeeper.demo.demo_world import DemoSizes
    from viewkeeper.demo.shop_world import ShopWorld

    return ShopWorld(folder, DemoSizes())


def folder_advice(sources: str, keep: Path) -> str:
    """What can be done with the folder afterwards."""
    if sources == "mixed":
        query = '"SELECT * FROM order_lines LIMIT 9"'
        return (
            f"The project is in {keep}. Its servers are stopped, so the views can be read and not "
            f"maintained; try: viewkeeper --project {keep} query {query}"
        )
    return f"The project is in {keep}; try: viewkeeper --project {keep} status"


def show_result(screen: DemoScreen, result: DemoResult) -> None:
    """The end of the demo in sentences."""
    from rich.table import Table

    table = Table(title=f"order_lines: {result.rows:,} rows, the newest orders first")
    for name in result.examples.column_names:
        table.add_column(name)
    for row in result.examples.to_pylist():
        table.add_row(*map(str, row.values()))
    screen.print_content(table)
    for sentence in (*result_sentences(result), *map(str, result.verdict.findings)):
        screen.print_text(sentence)
    good = "Everything agrees" if result.verdict.ok else "SOMETHING DIFFERS"
    screen.print_text(
        f"{good}; {result.seconds:.0f} seconds, {result.judge_seconds:.0f} of them judging."
    )


def result_sentences(result: DemoResult) -> list[str]:
    """What was done, in numbers."""
    written, meter = result.written.total, result.meter
    writers = sum(result.written.writers.values())
    steady = maintenance_figures(result)["freshness"]
    return [
        f"{writers} processes committed {written.transactions:,} transactions with "
        f"{written.changes:,} row changes to {len(result.captured)} databases, and rolled "
        f"{written.rolled_back:,} back.",
        *(source_sentence(result, name) for name in result.captured),
        f"{len(meter.batches)} batches maintained them, {meter.inline_batches} inline and "
        f"{meter.spark_batches} "
        f"on Spark, with {meter.lookups_per_batch:.1f} lookups per batch, "
        f"{result.throughput:,.0f} changes per second.",
        "The oldest change of a batch, when the views showed it, had an age of "
        f"{steady['median']:.2f} s in the median, {steady['p95']:.2f} s at p95 and "
        f"{steady['p99']:.2f} s at p99.",
        *(f"Trouble on the way: {trouble}" for trouble in meter.troubles),
    ]


def source_sentence(result: DemoResult, name: str) -> str:
    """What was written to a database, and what became of it."""
    counts, asked = result.written.counts[name], result.meter.lookups_of(name)
    return (
        f"  {name}, {result.captured[name]}: {counts.transactions:,} transactions with "
        f"{counts.changes:,} changes, reported as {result.reported[name]:,}; "
        f"asked {asked:,} times."
    )


def maintenance_figures(result: DemoResult) -> dict[str, Any]:
    """The numbers of the maintenance."""
    from viewkeeper.demo.display import percentile_of

    meter = result.meter
    return {
        "batches": {"inline": meter.inline_batches, "spark": meter.spark_batches},
        "changes": meter.changes,
        "changes_per_second": round(result.throughput, 1),
        "lookups": meter.lookups,
        "lookups_per_batch": round(meter.lookups_per_batch, 2),
        "freshness": {
            "median": round(percentile_of(meter.steady, 0.5), 3),
            "p95": round(percentile_of(meter.steady, 0.95), 3),
            "p99": round(percentile_of(meter.steady, 0.99), 3),
            "max": round(max(meter.steady, default=0.0), 3),
        },
        "troubles": meter.troubles,
    }


def report_data(result: DemoResult, seconds: float, seed: int) -> dict[str, Any]:
    """Everything for scripts."""
    written, verdict = result.written, result.verdict
    total = written.total
    return {
        "ok": verdict.ok,
        "options": {"seconds": seconds, "seed": seed},
        "written": {
            "writers": sum(written.writers.values()),
            **asdict(total),
            "seconds": written.seconds,
        },
        "sources": {
            name: {
                "captured": captured,
                "writers": written.writers[name],
                **asdict(written.counts[name]),
                "reported": result.reported[name],
                "lookups": result.meter.lookups_of(name),
            }
            for name, captured in result.captured.items()
        },
        "maintained": maintenance_figures(result),
        "view": {"name": "order_lines", "rows": result.rows},
        "judge": {
            "states": verdict.states,
            "transactions": verdict.transactions,
            "changes": verdict.changes,
            "findings": [
                {"ok": f.ok, "compared": f.compared, "differing": f.differing, "says": str(f)}
                for f in verdict.findings
            ],
        },
        "seconds": {
            "writing": round(result.written.seconds, 2),
            "judging": round(result.judge_seconds, 2),
            "total": round(result.seconds, 2),
        },
    }
