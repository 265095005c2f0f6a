"""`viewkeeper run`: keep the views fresh, continuously or once.

What is said meanwhile depends on who listens: a live display on a terminal, lines of the log
otherwise (`--log-format`, `--log-level`), and with `--json` one object at the end. The exit code
says whether every view got all the way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from viewkeeper.cli.format import amount_text, as_json, duration_text
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.signals import stop_on_signals
from viewkeeper.cli.terminal import print_note, show_error
from viewkeeper.errors import require_libraries
from viewkeeper.storage.stored_files import local_folder

if TYPE_CHECKING:
    from viewkeeper.engine.project import Project
    from viewkeeper.engine.report import Observer, Report

WEB_LIBRARIES = ("prometheus_client", "starlette", "uvicorn")

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
  viewkeeper run --web                            a page at http://127.0.0.1:8484/
  viewkeeper run --log-format json 2>> run.jsonl  one event per line, for programs

The first Ctrl-C or SIGTERM finishes the commit under way, the second cancels it; both are safe.

If every view is refused, it waits for a table or a grant that a source lacks, unless --once is
given, and ends where the texts of all views are wrong.

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
@click.option(
    "--web",
    is_flag=False,
    flag_value="",
    metavar="[HOST:PORT]",
    help="Serve a web page and figures for Prometheus.  [default: 127.0.0.1:8484]",
)
@click.option(
    "--web-token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The token that the web page asks for; or VIEWKEEPER_WEB_TOKEN.",
)
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but troubles.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="What is logged; debug has a line for each batch.  [default: info, with --quiet warning]",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How events are logged, one per line.",
)
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
    web: str | None,
    web_token_file: Path | None,
    quiet: bool,
    log_level: str | None,
    log_format: str,
    wants_json: bool,
) -> int:
    """Keep the views fresh, continuously or once.

    Loads views that are new, then maintains all of them incrementally. One process maintains a
    warehouse at a time; reading needs none. `viewkeeper simulate` has the algorithms.
    """
    if wants_json and not once:
        raise click.UsageError("--json needs --once")
    for word, is_given in (("--standby", standby), ("--web", web is not None)):
        if is_given and once:
            raise click.UsageError(f"{word} and --once exclude each other")
    if web_token_file is not None and web is None:
        raise click.UsageError("--web-token-file needs --web")
    with invocation.open_project(algorithm, level) as project:
        for name in (*full_refresh, *reanchor):
            project.view(name)
        quiet_level = "warning" if quiet or wants_json else invocation.log_level
        level = log_level or quiet_level
        is_live = sys.stderr.isatty() and not (quiet or wants_json)
        with (
            open_watcher(project, level, log_format, is_live, invocation.verbose) as alone,
            open_site(project, alone, web, web_token_file) as watcher,
        ):
            ways = (once, sync_tables, standby)
            report = _maintain_views(project, watcher, ways, full_refresh, reanchor)
            watcher.log_end(report)
        project.spark.speed_up_next_start()
    if wants_json:
        click.echo(as_json(asdict(report), indent=2))
    elif not quiet and log_format == "text":
        print_note(report_summary(report))
    for name, reason in report.waiting.items() if log_format == "text" else ():
        show_error(f'view "{name}" is not up to date', reason, None)
    return 1 if report.waiting else 0


def _maintain_views(
    project: Project,
    watcher: Watcher,
    ways: tuple[bool, bool, bool],
    full_refresh: tuple[str, ...],
    reanchor: tuple[str, ...],
) -> Report:
    """Maintain once or for long; `ways` are `--once`, `--sync-tables` and `--standby`."""
    once, sync_tables, standby = ways
    what = "what is committed now" if once else "the commit under way"
    with stop_on_signals(what, watcher.say) as stop:
        if once:
            return project.refresh(watcher.observer, full_refresh, reanchor, strict=False)
        if standby:
            watcher.say("standby: waits while another process maintains the warehouse")
        return project.run(watcher.observer, stop, full_refresh, reanchor, sync_tables, standby)


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who watches a run for the user: what hears of its events, and what shows a remark."""

    observer: Observer
    say: Callable[[str], None]
    log_end: Callable[[Report], None]


@contextmanager
def open_watcher(
    project: Project, level: str, form: str, is_live: bool, is_verbose: bool = False
) -> Iterator[Watcher]:
    """The log of the run, and on a terminal the live display."""
    from viewkeeper.cli.log_output import (
        RunLogHandler,
        TroubleDetails,
        display_handler,
        keeping_stderr,
        stderr_handler,
        writing_log,
    )
    from viewkeeper.engine.event_log import LINE_SECONDS, EventLog
    from viewkeeper.engine.repeated_work import repeating_work
    from viewkeeper.engine.report import ObserverGroup

    log = EventLog()
    with ExitStack() as stack:
        if is_live:
            from viewkeeper.cli.live_display import LiveDisplay, own_console
            from viewkeeper.web.project_monitor import StatusReader

            terminal = stack.enter_context(keeping_stderr())
            console = stack.enter_context(own_console(terminal))
            reader = StatusReader(lambda: project.settings)
            stack.enter_context(reader.reading_status())
            display = stack.enter_context(LiveDisplay(reader, console))
            file = RunLogHandler(local_folder(project.settings.warehouse) / "run.log")
            stack.enter_context(writing_log(level, form, file, display_handler(display.say)))
            watcher = Watcher(ObserverGroup(log, display), display.say, log.log_end)
        else:
            stack.enter_context(writing_log(level, form, stderr_handler()))
            watcher = Watcher(log, log.say, log.log_end)
        if is_verbose:
            troubles = TroubleDetails(watcher.say)
            watcher = replace(watcher, observer=ObserverGroup(watcher.observer, troubles))
        # The last batches of a busy second get their line when no other batch follows.
        stack.enter_context(repeating_work("viewkeeper-log", LINE_SECONDS, log.flush_batches))
        yield watcher


@contextmanager
def open_site(
    project: Project, watcher: Watcher, web: str | None, token_file: Path | None
) -> Iterator[Watcher]:
    """The same watcher, and the web page if one is wanted."""
    if web is None:
        yield watcher
        return
    require_libraries("--web", "web", WEB_LIBRARIES)
    from viewkeeper.engine.report import ObserverGroup
    from viewkeeper.web.web_server import OPTION, parse_address, serving_web

    with serving_web(project, parse_address(web), OPTION.read_secret(token_file)) as site:
        watcher.say(f"the web page is at {site.address.url}")
        yield replace(watcher, observer=ObserverGroup(watcher.observer, site.observer))


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
