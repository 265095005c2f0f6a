"""`viewkeeper verify`: what is stored against recomputation, and what differs, both ways.

The comparison is in `viewkeeper.engine.operations.verification`. A difference is shown as the rows
that make it: *missing* ones the view should have, *too much* ones it should not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from viewkeeper.cli.format import amount_text, as_json, as_text, duration_text
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import make_console, print_note
from viewkeeper.errors import WarehouseError

if TYPE_CHECKING:
    from rich.table import Table

    from viewkeeper.engine.operations.verification import Verification

EPILOG = """\b
Examples:
  viewkeeper verify                        all views, newest state
  viewkeeper verify order_lines --every-state
  viewkeeper verify --every-state --since 120
  viewkeeper verify --files                every file of the warehouse, without Spark

Exit codes: 0 equal, 1 something differs, 2 beyond the kept window, usage, or a source is away."""


@click.command(epilog=EPILOG)
@click.argument("views", nargs=-1, metavar="[VIEW]...")
@click.option("--every-state", is_flag=True, help="Every state that `history:` still reaches.")
@click.option(
    "--since", type=click.IntRange(0), metavar="TS", help="With --every-state: from here."
)
@click.option(
    "--files", "only_files", is_flag=True, help="Read every file once; say which are damaged."
)
@click.option("--json", "wants_json", is_flag=True, help="Print one JSON list.")
@click.pass_obj
def verify(
    invocation: Invocation,
    views: tuple[str, ...],
    every_state: bool,
    since: int | None,
    only_files: bool,
    wants_json: bool,
) -> int:
    """Compare views with recomputation from the sources.

    Writers and a running maintainer go on meanwhile. Says how many states were compared and how far
    back that reached.
    """
    if since is not None and not every_state:
        raise click.UsageError("--since needs --every-state")
    if only_files:
        if every_state:
            raise click.UsageError("--files compares no states: leave --every-state out")
        return _verify_files(invocation, views, wants_json)
    from viewkeeper.engine.operations.verification import verification_json as verdict

    with invocation.open_project() as project:
        for name in views:
            _ = project.view(name).head
        if not project.newest_head().views:
            raise WarehouseError(
                "no view is loaded yet", hint="`viewkeeper run --once` loads the views"
            )
        found = project.verify(
            views, every_state, since, (lambda _: None) if wants_json else print_note
        )
    if wants_json:
        click.echo(as_json([verdict(each) for each in found], indent=2))
    else:
        for each in found:
            _show_verification(each)
    return 0 if all(each.ok for each in found) else 1


def _verify_files(invocation: Invocation, views: tuple[str, ...], wants_json: bool) -> int:
    """Read everything that is stored, and say what mends what is damaged."""
    from viewkeeper.warehouse.scrub import scrub_warehouse

    found = scrub_warehouse(
        invocation.read_settings().warehouse, views, (lambda _: None) if wants_json else print_note
    )
    if wants_json:
        facts = [{"message": e.message, "detail": e.detail, "hint": e.hint} for e in found.damaged]
        body = {"ok": found.is_whole, "files": found.files, "bytes": found.bytes, "damaged": facts}
        click.echo(as_json(body, indent=2))
    else:
        for error in found.damaged:
            click.echo(str(error))
        verdict = (
            "all as written"
            if found.is_whole
            else f"{amount_text(len(found.damaged), 'file')} DAMAGED"
        )
        click.echo(
            f"{amount_text(found.files, 'file')} read, {amount_text(found.bytes, 'byte')}: "
            f"{verdict}"
        )
    return 0 if found.is_whole else 1


def _show_verification(found: Verification) -> None:
    reach = f"from ts {found.since} to ts {found.ts}" if found.states > 1 else f"ts {found.ts}"
    verdict = "equal to recomputation" if found.ok else "DIFFERS from recomputation"
    click.echo(
        f"{found.view}: {verdict}; {amount_text(found.states, 'state')} compared ({reach}), "
        f"{amount_text(found.rows, 'row')}, {duration_text(found.seconds)}"
    )
    if not found.ok:
        out = make_console()
        out.print(_difference_table(found))


def _difference_table(found: Verification) -> Table:
    from rich import box
    from rich.table import Table

    from viewkeeper.updates.source_protocol import COUNT

    names = [name for name in found.differences.column_names if name != COUNT]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("the view's row is", "times", *names):
        table.add_column(name, overflow="fold")
    for row in found.differences.to_pylist():
        count = int(row[COUNT])
        kind = "missing" if count > 0 else "too much"
        table.add_row(kind, str(abs(count)), *(as_text(row[name]) for name in names))
    return table
