"""`viewkeeper detach`: take what captures changes out of the sources again.

A view that lacks changes cannot be continued, only loaded again, so this asks first.
"""

from __future__ import annotations

import time
from contextlib import closing

import click

from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import show_error, show_warning
from viewkeeper.errors import LockedError, ProjectError, ViewkeeperError, suggest_nearest

EPILOG = """\b
Examples:
  viewkeeper detach             all sources of the project
  viewkeeper detach shop --yes  one source, without being asked
  viewkeeper detach shop --force
                                also what other projects still follow there

Exit codes: 0 detached, 1 some source could not be, 2 usage or project error, 130 not confirmed."""


@click.command(epilog=EPILOG)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@click.option("--force", is_flag=True, help="Remove everything, even if other projects follow.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def detach(invocation: Invocation, sources: tuple[str, ...], force: bool, yes: bool) -> int:
    """Remove the change capture from the sources.

    The views stay readable but cannot be continued: `run --reanchor VIEW` commits what they
    lack as one state, `refresh VIEW` loads them again. Needs no Spark.
    """
    # First, because what is imported afterwards would import pandas.
    settings = invocation.read_settings()
    from viewkeeper.engine.connections.open_sources import Connections, reader_of
    from viewkeeper.engine.operations.project_status import running_holder
    from viewkeeper.sources.kinds import is_clock

    known = tuple(name for name, source in settings.sources.items() if not is_clock(source))
    for name in sources:
        if name not in known:
            raise ProjectError(
                f'there is no source "{name}"',
                hint=f"sources of this project: {', '.join(known)}{suggest_nearest(name, known)}",
            )
    holder = running_holder(settings.warehouse, time.time())
    if holder is not None:
        raise LockedError(
            "this project is being maintained", detail=str(holder), hint="stop it first"
        )
    chosen = sources or known
    if not yes:
        show_warning(
            f"the views over {', '.join(chosen)} cannot be continued afterwards, only re-anchored "
            "or loaded again"
        )
        click.confirm("Detach?", abort=True, err=True)
    connections = Connections(settings.sources, reader_of(settings.warehouse), time.time)
    with closing(connections):
        return max([_detach_source(connections, name, force) for name in chosen], default=0)


def _detach_source(connections: object, name: str, force: bool) -> int:
    from viewkeeper.engine.connections.open_sources import Connections

    assert isinstance(connections, Connections)
    try:
        done = connections.get_source(name).detach_source(force)
    except ViewkeeperError as error:
        show_error(error.message, error.detail, error.hint)
        return 1
    if done.capture_dropped:
        click.echo(f"{name}: detached; nothing of Viewkeeper is left in it")
    elif done.was_following:
        others = len(done.other_readers)
        click.echo(f"{name}: detached; its capture stays for {others} other project(s)")
    else:
        click.echo(f"{name}: was not followed")
    for what in done.left:
        click.echo(f"{name}: left alone: {what}")
    return 0
