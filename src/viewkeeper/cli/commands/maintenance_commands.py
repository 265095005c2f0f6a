"""`viewkeeper compact` and `viewkeeper publish`: the upkeep that `run` does by itself, by command.

Both take the warehouse's lock, so a running maintainer must be stopped first.
"""

from __future__ import annotations

import click

from viewkeeper.cli.invocation import Invocation
from viewkeeper.errors import WarehouseError

COMPACT_EPILOG = """\b
Examples:
  viewkeeper compact

Exit codes: 0 done, 2 the warehouse is held by another process or damaged."""

PUBLISH_EPILOG = """\b
Examples:
  viewkeeper publish               all views
  viewkeeper publish order_lines   one

Exit codes: 0 done, 2 no such view, or the warehouse is held by another process."""


@click.command(epilog=COMPACT_EPILOG)
@click.pass_obj
def compact(invocation: Invocation) -> int:
    """Fold old states and merge small files.

    States older than `retention:` are folded into one; no state that is still promised changes. A
    running maintainer does this by itself.
    """
    with invocation.open_project() as project:
        project.compact(click.echo)
    return 0


@click.command(epilog=PUBLISH_EPILOG)
@click.argument("views", nargs=-1, metavar="[VIEW]...")
@click.pass_obj
def publish(invocation: Invocation, views: tuple[str, ...]) -> int:
    """Write plain tables, rows only, for other tools.

    Each becomes a Delta Lake table in the warehouse's folder `published`, which any reader of Delta
    Lake shows as it is. `publish:` in viewkeeper.yml does this at a cadence.
    """
    with invocation.open_project() as project:
        loaded = project.newest_head().views
        missing = [name for name in views if name in project.catalogue and name not in loaded]
        if missing or not loaded:
            raise WarehouseError(
                f"not loaded yet: {', '.join(missing) or 'any view'}",
                hint="`viewkeeper run --once` loads the views",
            )
        project.publish(views, click.echo)
    return 0
