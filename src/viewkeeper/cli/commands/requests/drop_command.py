"""`viewkeeper drop`: remove a view and what is stored of it.

It says what it will remove and asks first. A maintainer that runs does it between two batches;
otherwise this command takes the warehouse's lock.
"""

from __future__ import annotations

import time

import click

from viewkeeper.cli.format import amount_text
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import print_line, show_warning
from viewkeeper.storage.stored_files import local_folder

EPILOG = """\b
Examples:
  viewkeeper drop old_report               its file is gone already
  viewkeeper drop old_report --file        remove views/old_report.sql too
  viewkeeper drop old_report --file --yes  without being asked
  viewkeeper drop old_report --force       although other projects read this warehouse

What sources keep for the project stays as it is; `viewkeeper detach` removes that.

Exit codes: 0 dropped, 2 usage or project error, 130 not confirmed."""


@click.command(epilog=EPILOG)
@click.argument("views", nargs=-1, required=True, metavar="VIEW...")
@click.option("--file", "with_files", is_flag=True, help="Remove the file that defines it, too.")
@click.option("--force", is_flag=True, help="Drop it although other projects read the warehouse.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def drop(
    invocation: Invocation, views: tuple[str, ...], with_files: bool, force: bool, yes: bool
) -> int:
    """Remove a view and what is stored of it.

    Refuses while another view of the project reads it, while its file would bring it back, and
    while other projects hold leases on this warehouse. Readers that have begun can finish: data
    files are deleted an hour later. Needs no Spark.
    """
    settings = invocation.read_settings()
    from viewkeeper.engine.query.query_socket import send_request
    from viewkeeper.engine.requests.view_drop import drop_stored, plan_drop
    from viewkeeper.engine.warehouse_lease import open_store
    from viewkeeper.warehouse.metadata.head import read_head

    names = tuple(dict.fromkeys(views))
    found = plan_drop(settings, read_head(settings.warehouse), names, time.time())
    found.check_drop(with_files, force)
    if not yes:
        rows = ", ".join(f'view "{v.name}" ({amount_text(v.rows, "row")})' for v in found.views)
        files = "".join(f", {file}" for file in found.files)
        show_warning(f"this removes {rows}{files}, and it cannot be undone")
        click.confirm("Drop?", abort=True, err=True)
    request = {"kind": "drop", "views": names, "with_files": with_files, "force": force}
    if send_request(local_folder(settings.warehouse), request) is None:
        with open_store(settings.warehouse, "viewkeeper drop", time.time) as store:
            # Somebody may have been here since we looked.
            found = plan_drop(settings, store.head, names, time.time())
            found.check_drop(with_files, force)
            found.remove_files()
            drop_stored(store, names)
    for name in names:
        print_line(f"{name}: dropped")
    return 0
