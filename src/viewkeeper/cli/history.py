"""`viewkeeper history`: what became of a view's definition, version by version, and why.

Everything is in the head, so no source is asked and no JVM is started.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.values import as_json

if TYPE_CHECKING:
    from viewkeeper.warehouse.head import ViewHead
    from viewkeeper.warehouse.version import Version

EPILOG = """\b
Examples:
  viewkeeper history order_lines
  viewkeeper history order_lines --json

Exit codes: 0 shown, 2 no such view, or not loaded yet."""


@click.command(epilog=EPILOG)
@click.argument("view")
@click.option("--json", "wants_json", is_flag=True, help="Print one JSON list.")
@click.pass_obj
def history(invocation: Invocation, view: str, wants_json: bool) -> int:
    """Show what became of a view's definition.

    A view follows the schema changes of its sources; each one that it followed made a version of
    its SQL. Shows from which ts on each holds, what caused it, and what it changed.
    """
    with invocation.open() as project:
        head = project.view(view).head
    if wants_json:
        click.echo(as_json([_plain(version) for version in head.versions], indent=2))
    else:
        for line in lines(head):
            click.echo(line)
    return 0


def lines(head: ViewHead) -> Iterator[str]:
    """The versions as text, the oldest first."""
    before: Version | None = None
    for number, version in enumerate(head.versions, 1):
        when = datetime.fromtimestamp(version.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        yield f"version {number}, from ts {version.ts} on, {when}"
        for cause in version.causes:
            yield f"  {cause}"
        if before is not None and version.extent != "equal":
            yield f"  rows: {version.extent} of what they would have been"
        yield from _difference(before.text if before else "", version.text)
        before = version


def _difference(before: str, after: str) -> Iterator[str]:
    """What changed in the SQL; all of it for the first version."""
    if not before:
        yield from (f"    {line}" for line in after.strip().splitlines())
    elif before == after:
        yield "    (the same SQL)"
    else:
        yield from (f"    {line}" for line in changed_lines(before, after))


def changed_lines(before: str, after: str) -> list[str]:
    """The lines of a unified difference, without its head."""
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    return [line for line in found if not line.startswith(("---", "+++", "@@"))]


def _plain(version: Version) -> dict[str, object]:
    return {
        "ts": version.ts,
        "at": version.at,
        "sql": version.text,
        "causes": list(version.causes),
        "extent": version.extent,
        "columns": list(version.columns),
    }
