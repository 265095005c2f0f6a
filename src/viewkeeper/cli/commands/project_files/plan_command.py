"""`viewkeeper plan`: what the project's files would change, before anything does.

What is found out is in `viewkeeper.engine.operations.project_plan`; here it becomes text, or JSON.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from viewkeeper.cli.format import amount_text, as_json
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import print_line, print_note

if TYPE_CHECKING:
    from viewkeeper.engine.operations.project_plan import PlannedRead, PlannedView, ProjectPlan

EPILOG = """\b
Examples:
  viewkeeper plan
  viewkeeper plan --json | jq '.views[] | select(.fate != "unchanged")'
  viewkeeper plan || echo "the files are not what is stored"

Exit codes: 0 nothing to do, 1 something would change or is refused, 2 no project, or its project
file is wrong."""

WORKS = {
    "load": "load",
    "adapt": "its rows stay as they are",
    "full refresh": "waits for `viewkeeper refresh`",
    "drop": "drop its rows",
    "wait": "waits for a source",
    "none": "",
}


@click.command(epilog=EPILOG)
@click.option("--json", "wants_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def plan(invocation: Invocation, wants_json: bool) -> int:
    """Show what the project's files would change, and change nothing.

    Compares viewkeeper.yml and views/*.sql with the warehouse: which views are added, edited,
    dropped, refused or unchanged, which of them are loaded and about how much that reads, and what
    the sources must still grant. Takes no lock, and works while `viewkeeper run` runs. Spark is
    started only to ask what a new or edited report means.
    """
    settings = invocation.read_settings()
    from viewkeeper.engine.connections.open_sources import Connections, reader_of
    from viewkeeper.engine.operations.project_plan import plan_project
    from viewkeeper.engine.views.view_catalogue import read_views
    from viewkeeper.warehouse.metadata.head import read_head

    head = read_head(settings.warehouse)
    catalogue = read_views(settings, head, may_be_empty=True)
    connections = Connections(settings.sources, reader_of(settings.warehouse), time.time)
    with closing(connections), invocation.start_compiler(settings, catalogue):
        if any(catalogue.needs_compiler(name) for name in catalogue):
            print_note("asking Spark what new reports mean ...")
        found = plan_project(settings, catalogue, head, connections)
    if wants_json:
        click.echo(as_json({"is_empty": found.is_empty, **asdict(found)}, indent=2))
    else:
        for line in plan_lines(found):
            print_line(line)
    return 0 if found.is_empty else 1


def plan_lines(found: ProjectPlan) -> Iterator[str]:
    """The plan as text."""
    for view in (view for view in found.views if view.fate != "unchanged"):
        yield from _view_lines(view)
    for need in found.needs:
        yield f"source {need.source} must grant or mend"
        for finding in need.findings:
            yield f"  {finding.check}: {finding.text}"
            yield from (f"      {line}" for line in (finding.mend or "").splitlines())
    same = sum(view.fate == "unchanged" for view in found.views)
    yield f"{'unchanged':<10} {amount_text(same, 'view')}"
    yield "nothing to do" if found.is_empty else "`viewkeeper run`, or `viewkeeper reload`, does it"


def _view_lines(view: PlannedView) -> Iterator[str]:
    work = WORKS[view.work]
    stored = f" ({amount_text(view.rows, 'row')} stored)" if view.rows is not None else ""
    yield f"{view.fate:<10} {view.name}{': ' if work else ''}{work}{stored}"
    for read in view.reads:
        yield f"             reads {_read_text(read)}"
    if view.reason:
        yield f"             {view.reason}"
    if view.hint:
        yield f"             hint: {view.hint}"


def _read_text(read: PlannedRead) -> str:
    table = f"{read.source}.{read.table}" if read.source else f"view {read.table}"
    rows = "unknown rows" if read.rows is None else f"about {amount_text(read.rows, 'row')}"
    size = "unknown size" if read.bytes is None else f"about {_size_text(read.bytes)}"
    return f"{table}: {rows}, {size}"


def _size_text(count: int) -> str:
    """A number of bytes for people.

    >>> _size_text(0), _size_text(1_500), _size_text(5_300_000_000)
    ('0 bytes', '2 KB', '5.3 GB')
    """
    if count < 1000:
        return f"{count} bytes"
    if count < 1_000_000:
        return f"{count / 1000:.0f} KB"
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"
