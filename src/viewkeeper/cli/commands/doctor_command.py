"""`viewkeeper doctor`: look at every source, view and Java, and print what would mend them.

What is looked at is in `viewkeeper.engine.operations.doctor` and in each kind of source; here it
becomes text with the statements to run, or JSON.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from viewkeeper.cli.format import as_json
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import print_line, print_note

if TYPE_CHECKING:
    from viewkeeper.engine.operations.doctor import Diagnosis

MARKS = {"good": "ok  ", "warning": "WARN", "bad": "BAD ", "unchecked": "?   "}

EPILOG = """\b
Examples:
  viewkeeper doctor
  viewkeeper doctor --json | jq '.[] | select(.ok | not)'

Exit codes: 0 nothing that was found is wrong (there may be warnings, and views that Spark has not
checked yet), 1 something is, 2 no project."""


@click.command(epilog=EPILOG)
@click.option("--json", "wants_json", is_flag=True, help="Print one JSON list.")
@click.pass_obj
def doctor(invocation: Invocation, wants_json: bool) -> int:
    """Check every source, view and Java, and say what mends them.

    Looks whether each source answers, at its version, our privileges, what its log needs
    (wal_level, binlog format, replica identity, journal mode), how much it keeps for us, and its
    clock. All that is missing is found at once, with the statements that grant or set it. Changes
    nothing at the sources and starts no Spark: what only Spark can say of a view, and has not said
    before, is marked by a question mark, and `viewkeeper explain VIEW` asks it.
    """
    from viewkeeper.engine.connections.open_sources import Connections
    from viewkeeper.engine.operations.doctor import (
        Diagnosis,
        examine_children,
        examine_identity,
        examine_project,
    )
    from viewkeeper.engine.views.view_catalogue import read_views
    from viewkeeper.warehouse.metadata.head import read_head

    settings = invocation.read_settings()
    head = read_head(settings.warehouse)
    catalogue = read_views(settings, head, may_be_empty=True)
    catalogue.use_refresh(settings.refresh.word_of)
    reader, folder = examine_identity(settings.warehouse)
    connections = Connections(settings.sources, reader, time.time)
    with closing(connections):
        found = examine_project(
            settings, catalogue, connections, lambda what: print_note(f"looking at {what} ...")
        )
        children = examine_children(settings.warehouse, head, time.time())
    found.append(Diagnosis(children.what, children.name, (folder, *children.findings)))
    if wants_json:
        body = [{"ok": each.ok, **asdict(each)} for each in found]
        click.echo(as_json(body, indent=2))
    else:
        for line in examination_lines(found):
            print_line(line)
    return 0 if all(each.ok for each in found) else 1


def examination_lines(found: Sequence[Diagnosis]) -> Iterator[str]:
    """The findings as text: a line each, and below it what mends it."""
    for each in found:
        yield f"{each.what} {each.name}"
        for finding in each.findings:
            yield f"  {MARKS[finding.state]} {finding.check}: {finding.text}"
            if finding.mend and finding.state != "good":
                yield from (f"       {line}" for line in finding.mend.splitlines())
    bad = sum(f.state == "bad" for each in found for f in each.findings)
    warnings = sum(f.state == "warning" for each in found for f in each.findings)
    yield ""
    wrong = f"{bad} bad, {warnings} to be warned of" if bad or warnings else "nothing is wrong"
    left = sum(f.state == "unchecked" for each in found for f in each.findings)
    views = "one view" if left == 1 else f"{left} views"
    yield f"{wrong}, but Spark has not checked {views} yet" if left else wrong
