"""`viewkeeper run`: keep the views fresh, continuously or once.

What is told meanwhile depends on who listens: a live display on a terminal, log lines otherwise,
and with `--json` one object at the end. The exit code says whether every view got all the way.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from viewkeeper.cli.format import amount_text, as_json, duration_text
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.signals import stop_on_signals
from viewkeeper.cli.terminal import print_note, show_error
from viewkeeper.storage.stored_files import local_folder

if TYPE_CHECKING:
    from viewkeeper.cli.live_display import LiveDisplay
    from viewkeeper.cli.log_lines import LogLines
    from viewkeeper.engine.project import Project
    from viewkeeper.engine.report import Report

EPILOG = """\b
Examples:
  viewkeeper run                                  until Ctrl-C
  viewkeeper run --once                           all that is committed now, then leave
  viewkeeper run --once --full-refresh order_lines
  viewkeeper run --reanchor order_lines           after a source has lost changes
  viewkeeper run --once --json | jq .waiting
  viewkeeper run --standby                        take over when another run ends
  viewkeeper run --algorithm pvm_cc               one of the papers' algorithms for all views
  viewkeeper run --algorithm strobe --level convergence

The first Ctrl-C or SIGTERM finishes the commit under way, the second cancels it; both are safe.

Exit codes: 0 every view is maintained, 1 some view waits or is stopped, 2 usage or project error,
130 cancelled."""


@click.command(epilog=EPILOG)
@click.option("--once", is_flag=True, help="Maintain what is committed now, then leave.")
@click.option(
    "--full-refresh",
    "full_refresh",
    multiple=True,
    metavar="VIEW",
    help="Load this view from scratch; can be repeated.",
)
@click.option(
    "--reanchor",
    multiple=True,
    metavar="VIEW",
    help="Compare this view with its sources and commit the difference; can be repeated.",
)
@click.option(
    "--algorithm",
    metavar="NAME",
    help="Maintain all views by this algorithm instead of those in the project file.",
)
@click.option(
    "--level",
    metavar="LEVEL",
    help="Be content with this consistency level, where the algorithm promises less than strong.",
)
@click.option(
    "--sync-tables",
    is_flag=True,
    help="Bring every commit into the Delta Lake tables at once, for other tools that read them.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="Wait while another process maintains the warehouse, and take over when it ends.",
)
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but troubles.")
@click.option("--json", "wants_json", is_flag=True, help="With --once: print the report as JSON.")
@click.pass_obj
def run(
    invocation: Invocation,
    once: bool,
    full_refresh: tuple[str, ...],
    reanchor: tuple[str, ...],
    algorithm: str | None,
    level: str | None,
    sync_tables: bool,
    standby: bool,
    quiet: bool,
    wants_json: bool,
) -> int:
    """Keep the views fresh, continuously or once.

    Loads views that are new, then maintains all of them incrementally. One process maintains a
    warehouse at a time; reading needs none. `viewkeeper simulate` has the algorithms.
    """
    if wants_json and not once:
        raise click.UsageError("--json needs --once")
    if standby and once:
        raise click.UsageError("--standby and --once exclude each other")
    with invocation.open_project(algorithm, level) as project:
        for name in (*full_refresh, *reanchor):
            project.view(name)
        with open_watcher(project, quiet or wants_json) as watcher:
            ways = (once, sync_tables, standby)
            report = _maintain_views(project, watcher, ways, full_refresh, reanchor)
        project.spark.speed_up_next_start()
    if wants_json:
        click.echo(as_json(asdict(report), indent=2))
    elif not quiet:
        print_note(report_summary(report))
    for name, reason in report.waiting.items():
        show_error(f'view "{name}" is not up to date', reason, None)
    return 1 if report.waiting else 0


def _maintain_views(
    project: Project,
    watcher: LiveDisplay | LogLines,
    ways: tuple[bool, bool, bool],
    full_refresh: tuple[str, ...],
    reanchor: tuple[str, ...],
) -> Report:
    """Maintain once or for long; `ways` are `--once`, `--sync-tables` and `--standby`."""
    once, sync_tables, standby = ways
    what = "what is committed now" if once else "the commit under way"
    with stop_on_signals(what, watcher.say) as stop:
        if once:
            return project.refresh(watcher, full_refresh, reanchor)
        if standby:
            watcher.say("standby: waits while another process maintains the warehouse")
        return project.run(watcher, stop, full_refresh, reanchor, sync_tables, standby)


@contextmanager
def open_watcher(project: Project, quiet: bool) -> Iterator[LiveDisplay | LogLines]:
    """The observer that shows what happens."""
    if sys.stderr.isatty() and not quiet:
        from viewkeeper.cli.live_display import LiveDisplay, own_terminal

        settings = project.settings
        with (
            own_terminal(local_folder(settings.warehouse) / "run.log") as terminal,
            LiveDisplay(settings, terminal) as display,
        ):
            yield display
    else:
        from viewkeeper.cli.log_lines import LogLines

        lines = LogLines(quiet)
        try:
            yield lines
        finally:
            lines.flush_batches()


def report_summary(report: Report) -> str:
    """What a whole run did, in a line."""
    loaded = ", ".join(f"{name} ({amount_text(n, 'row')})" for name, n in report.loaded.items())
    lookups = sum(report.lookups.values())
    return (
        (f"loaded {loaded}; " if loaded else "")
        + f"{amount_text(report.transactions, 'transaction')}, "
        f"{amount_text(report.changes, 'change')} in "
        f"{amount_text(report.batches, 'batch', 'batches')} ({report.batches_on_spark} on Spark), "
        f"{amount_text(lookups, 'lookup')}, {duration_text(report.seconds)}"
    )
