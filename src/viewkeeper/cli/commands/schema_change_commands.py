"""`viewkeeper changes`, `approve` and `reject`: schema changes that wait for somebody's word.

A view whose policy is `approve` is held at a schema change. These commands need no lock: they work
beside a running maintainer, which finds the word and goes on.

`viewkeeper history` finds everything in the head: no source is asked and no JVM is started.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from viewkeeper.cli.format import amount_text, as_json, as_text
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import print_note
from viewkeeper.engine.evolution.text_difference import changed_lines

if TYPE_CHECKING:
    from viewkeeper.engine.evolution.preview import Preview
    from viewkeeper.engine.evolution.proposals import Proposed
    from viewkeeper.warehouse.metadata.definition_version import DefinitionVersion
    from viewkeeper.warehouse.metadata.head import ViewHead

CHANGES_EPILOG = """\b
Examples:
  viewkeeper changes                     everything that waits
  viewkeeper changes order_lines --no-rows

Exit codes: 0 nothing waits, 1 something does, 2 no such view, or a source is away."""

DECIDE_EPILOG = """\b
Examples:
  viewkeeper approve order_lines
  viewkeeper reject order_lines

Exit codes: 0 done, 2 nothing waits for a decision."""

_WORDS = {
    "nothing": "the stored rows stay as they are",
    "restate": "the stored rows stay, under other columns",
    "difference": "recomputed, and repaired by the difference",
    "reload": "recomputed, into a new table",
}


@click.command(epilog=CHANGES_EPILOG)
@click.argument("views", nargs=-1, metavar="[VIEW]...")
@click.option("--rows/--no-rows", default=True, help="Also compute which rows would change.")
@click.option("--json", "wants_json", is_flag=True, help="Print one JSON list.")
@click.pass_obj
def changes(invocation: Invocation, views: tuple[str, ...], rows: bool, wants_json: bool) -> int:
    """Show schema changes that wait for approval.

    For each view that is held: what its sources changed, the difference between its definition now
    and then, and which rows would come and go.
    """
    with invocation.open_project() as project:
        for name in views:
            project.catalogue.written.check_name(name)
        found = [p for p in project.proposals().list_proposals() if not views or p.view in views]
        shown = []
        for proposed in found:
            if rows and not wants_json:
                print_note(f"{proposed.view}: computing which rows would change ...")
            shown.append((proposed, project.preview(proposed) if rows else None))
    if wants_json:
        click.echo(as_json([_proposal_data(*each) for each in shown], indent=2))
    else:
        for each in shown:
            for line in proposal_lines(*each):
                click.echo(line)
        if not shown:
            click.echo("nothing waits for approval")
    return 1 if shown else 0


@click.command(epilog=DECIDE_EPILOG)
@click.argument("view")
@click.pass_obj
def approve(invocation: Invocation, view: str) -> int:
    """Let a held view follow its schema changes.

    A running maintainer takes it up at once, otherwise the next run does.
    """
    with invocation.open_project() as project:
        project.catalogue.written.check_name(view)
        project.proposals().answer_proposal(view, "approve")
    click.echo(f"{view}: approved; the maintainer takes it from here")
    return 0


@click.command(epilog=DECIDE_EPILOG)
@click.argument("view")
@click.pass_obj
def reject(invocation: Invocation, view: str) -> int:
    """Stop a held view instead of letting it follow.

    Its last state stays readable. The next run proposes the change again.
    """
    with invocation.open_project() as project:
        project.catalogue.written.check_name(view)
        project.proposals().answer_proposal(view, "reject")
    click.echo(f"{view}: rejected; it stops where it is")
    return 0


def proposal_lines(proposed: Proposed, rows: Preview | None) -> Iterator[str]:
    """A proposal as text."""
    yield f'view "{proposed.view}" is held'
    for cause in proposed.version.causes:
        yield f"  {cause}"
    yield "definition"
    for line in changed_lines(proposed.before, proposed.version.text) or ["(the same SQL)"]:
        yield f"  {line}"
    yield f"rows: {_WORDS[proposed.adaptation]}; extent {proposed.version.extent}"
    if rows is not None:
        yield (
            f"  {amount_text(rows.came, 'row')} would come, {amount_text(rows.went, 'row')} "
            "would go"
        )
        for row in rows.sample.to_pylist() if rows.sample is not None else ():
            count = int(row.pop("_count"))
            sign = "+" if count > 0 else "-"
            values = ", ".join(f"{name}={as_text(value)}" for name, value in row.items())
            yield f"  {sign} {abs(count)} x ({values})"
    yield f"decide: `viewkeeper approve {proposed.view}` or `viewkeeper reject {proposed.view}`"


def _proposal_data(proposed: Proposed, rows: Preview | None) -> dict[str, object]:
    return {
        "view": proposed.view,
        "causes": list(proposed.version.causes),
        "before": proposed.before,
        "after": proposed.version.text,
        "extent": proposed.version.extent,
        "rows": proposed.adaptation,
        "came": rows.came if rows else None,
        "went": rows.went if rows else None,
        "at": proposed.at,
    }


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
    with invocation.open_project() as project:
        head = project.view(view).head
    if wants_json:
        click.echo(as_json([_version_data(version) for version in head.versions], indent=2))
    else:
        for line in version_lines(head):
            click.echo(line)
    return 0


def version_lines(head: ViewHead) -> Iterator[str]:
    """The versions as text, the oldest first."""
    before: DefinitionVersion | None = None
    for number, version in enumerate(head.versions, 1):
        when = datetime.fromtimestamp(version.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        yield f"version {number}, from ts {version.ts} on, {when}"
        for cause in version.causes:
            yield f"  {cause}"
        if before is not None and version.extent != "equal":
            yield f"  rows: {version.extent} of what they would have been"
        yield from _sql_difference(before.text if before else "", version.text)
        before = version


def _sql_difference(before: str, after: str) -> Iterator[str]:
    """What changed in the SQL; all of it for the first version."""
    if not before:
        yield from (f"    {line}" for line in after.strip().splitlines())
    elif before == after:
        yield "    (the same SQL)"
    else:
        yield from (f"    {line}" for line in changed_lines(before, after))


def _version_data(version: DefinitionVersion) -> dict[str, object]:
    return {
        "ts": version.ts,
        "at": version.at,
        "sql": version.text,
        "causes": list(version.causes),
        "extent": version.extent,
        "columns": list(version.columns),
    }
