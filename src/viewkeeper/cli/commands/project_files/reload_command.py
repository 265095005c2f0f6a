"""`viewkeeper reload`: a running maintainer takes up the project's files, and says what became of
each view.

It is asked by its local socket (`viewkeeper.engine.query.query_socket`), on this machine and by the
same user.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from viewkeeper.cli.format import amount_text, as_json
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import print_line
from viewkeeper.errors import ProjectError
from viewkeeper.storage.stored_files import local_folder

if TYPE_CHECKING:
    from viewkeeper.engine.reload.reload_desk import ReloadAnswer

EPILOG = """\b
Examples:
  viewkeeper reload
  viewkeeper reload --json | jq .refused

`viewkeeper run` also notices by itself when files have changed, about a second later.

Exit codes: 0 everything is taken up, 1 something is refused, waits or needs a restart, 2 no
maintainer runs here, or the project file is wrong."""


@click.command(epilog=EPILOG)
@click.option("--json", "wants_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def reload(invocation: Invocation, wants_json: bool) -> int:
    """Let a running maintainer take up the project's files now.

    Says which views are added, edited, dropped, refused and why, or unchanged, and which settings
    need a restart. Views that were refused because of a table or column that was missing are tried
    again. SQL that needs other rows than those that are stored waits for `viewkeeper refresh VIEW`.
    """
    settings = invocation.read_settings()
    from viewkeeper.engine.query.query_socket import send_request

    found = send_request(local_folder(settings.warehouse), {"kind": "reload"})
    if found is None:
        raise ProjectError(
            "no maintainer of this project runs on this machine for this user",
            hint="`viewkeeper run` takes the project's files as they are when it starts; "
            "`viewkeeper plan` shows what that would change",
        )
    if wants_json:
        click.echo(as_json(found, indent=2))
    else:
        for line in reload_lines(found):
            print_line(line)
    waits = "pending" in found
    return 1 if waits or found["refused"] or found["needs_restart"] else 0


def reload_lines(found: ReloadAnswer) -> Iterator[str]:
    """What became of each view, in words."""
    if "pending" in found:
        yield f"not yet: it waits for {found['pending']}, and is done when that has ended"
        return
    for fate in ("added", "edited", "dropped"):
        for name in found[fate]:
            yield f"{fate:<10} {name}"
    for name, why in found["refused"].items():
        yield f"{'refused':<10} {name}: {why['error']}"
        parts = (why["detail"], why["hint"] and f"hint: {why['hint']}")
        yield from (f"             {line}" for part in parts if part for line in part.splitlines())
    if found["unchanged"]:
        yield f"{'unchanged':<10} {amount_text(len(found['unchanged']), 'view')}"
    if found["settings"]:
        yield f"{'settings':<10} {', '.join(found['settings'])}"
    if found["needs_restart"]:
        keys = ", ".join(found["needs_restart"])
        yield f"{'restart':<10} {keys}: stop `viewkeeper run` and start it again"
