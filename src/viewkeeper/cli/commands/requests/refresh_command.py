"""`viewkeeper refresh`: load views again, while readers go on with what is stored of them.

A maintainer that runs is asked by its socket, and this command waits for the loads; otherwise it is
the maintainer itself for as long as that takes. What was asked for outlives both: the next run goes
on with it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from viewkeeper.cli.format import amount_text, duration_text
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import print_line, print_note, show_error
from viewkeeper.errors import ProjectError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import local_folder

POLL_SECONDS = 0.2

EPILOG = """\b
Examples:
  viewkeeper refresh order_lines
  viewkeeper refresh order_lines daily_sales
  viewkeeper refresh order_lines --no-wait   leave as soon as `viewkeeper run` has begun

Ctrl-C ends the waiting, not the load: the maintainer goes on, or the next run does.

Exit codes: 0 loaded (with --no-wait: asked for), 1 some view could not be, 2 usage or project
error, 130 cancelled."""


@click.command(epilog=EPILOG)
@click.argument("views", nargs=-1, required=True, metavar="VIEW...")
@click.option(
    "--wait/--no-wait",
    default=True,
    show_default=True,
    help="Whether to wait for the loads of a running maintainer.",
)
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but troubles.")
@click.pass_obj
def refresh(invocation: Invocation, views: tuple[str, ...], wait: bool, quiet: bool) -> int:
    """Load views again; their old state is shown until then.

    They are loaded from scratch, as their files say now; both states change places in one commit.
    A load that fails leaves the old state. Meanwhile the warehouse holds both. `viewkeeper run`
    does the work if it runs; otherwise this command does.
    """
    settings = invocation.read_settings()
    from viewkeeper.engine.query.query_socket import send_request

    names = tuple(dict.fromkeys(views))
    folder = local_folder(settings.warehouse)
    answer = send_request(folder, {"kind": "refresh", "views": names})
    if answer is None:
        return _refresh_alone(invocation, names, wait, quiet)
    tables = {str(name): str(table) for name, table in answer.get("tables", {}).items()}
    if not wait:
        if not quiet:
            print_note(f"{', '.join(names)}: the maintainer loads it again")
        return 0
    return LoadWait(settings.warehouse, names, tables, quiet).wait_for_loads()


def _refresh_alone(invocation: Invocation, names: tuple[str, ...], wait: bool, quiet: bool) -> int:
    """Load the views in this process, which holds the warehouse meanwhile."""
    from viewkeeper.cli.commands.run_command import open_watcher, report_summary
    from viewkeeper.cli.signals import stop_on_signals

    if not wait:
        raise ProjectError(
            "no maintainer runs here that could be asked",
            hint="leave out --no-wait, then this command loads; or start `viewkeeper run` first",
        )
    with invocation.open_project() as project:
        for name in names:
            project.view(name)
        is_live = sys.stderr.isatty() and not quiet
        level = "warning" if quiet else invocation.log_level
        with (
            open_watcher(project, level, "text", is_live, invocation.verbose) as watcher,
            stop_on_signals("what is committed now", watcher.say),
        ):
            report = project.refresh(watcher.observer, names, strict=False)
        project.spark.speed_up_next_start()
    if not quiet:
        print_note(report_summary(report))
    for name, reason in report.waiting.items():
        show_error(f'view "{name}" is not up to date', reason, None)
    return 1 if report.waiting else 0


@dataclass(slots=True)
class LoadWait:
    """Waits until a running maintainer has loaded views; `tables` are those that are replaced."""

    warehouse: StoragePath
    names: tuple[str, ...]
    tables: Mapping[str, str]
    quiet: bool
    _began: float = field(default_factory=time.monotonic)
    _said: dict[str, str] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)

    def wait_for_loads(self) -> int:
        """The exit code, once every view is loaded or has failed."""
        from viewkeeper.engine.operations.project_status import running_holder
        from viewkeeper.warehouse.metadata.head import read_head

        open_names = list(self.names)
        while True:
            is_running = running_holder(self.warehouse, time.time()) is not None
            head = read_head(self.warehouse)
            for name in [*open_names]:
                view = head.views.get(name)
                if view is not None and view.table != self.tables.get(name):
                    open_names.remove(name)
                    self._say_loaded(name, view.rows)
                elif self._has_failed(name):
                    open_names.remove(name)
            if not open_names:
                return 1 if self._failed else 0
            if not is_running:
                show_error(
                    f"the maintainer has ended, and {', '.join(open_names)} is not loaded",
                    None,
                    "nothing is lost: the next `viewkeeper run` loads it; the old state is there",
                )
                return 1
            time.sleep(POLL_SECONDS)

    def _has_failed(self, name: str) -> bool:
        """Say why a view is not loaded yet; whether its load has failed."""
        from viewkeeper.warehouse.waiting_reasons import read_waiting

        noted = read_waiting(local_folder(self.warehouse))
        reason = noted.views.get(name)
        if name in noted.failed and reason is not None:
            show_error(f'view "{name}" could not be loaded', reason, None)
            self._failed.add(name)
            return True
        if reason is not None and not self.quiet and self._said.get(name) != reason:
            self._said[name] = reason
            print_note(f"{name}: {reason}")
        return False

    def _say_loaded(self, name: str, rows: int) -> None:
        if not self.quiet:
            took = duration_text(time.monotonic() - self._began)
            print_line(f"{name}: loaded again, {amount_text(rows, 'row')}, {took}")
