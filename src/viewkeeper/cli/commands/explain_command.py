"""`viewkeeper explain`: how a view is maintained, and what that costs; it maintains nothing.

What is explained is in `viewkeeper.engine.operations.view_explanation`, and for a query that is no
view yet in `viewkeeper.engine.operations.statement_explanation`; here it becomes text with a drawn
join tree, or JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

import click

from viewkeeper.cli.format import as_json
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import print_line, print_note

if TYPE_CHECKING:
    from viewkeeper.engine.operations.statement_explanation import RefusedQuery
    from viewkeeper.engine.operations.view_explanation import StageExplanation, ViewExplanation

EPILOG = """\b
Examples:
  viewkeeper explain order_lines
  viewkeeper explain order_lines --json | jq .warnings
  viewkeeper explain --sql models/daily_sales.sql
  echo "SELECT ..." | viewkeeper explain --sql -

Exit codes: 0 explained, 1 the query of --sql has parts that cannot be maintained,
2 no such view or table, wrong SQL, or a source that does not answer."""


@click.command(epilog=EPILOG)
@click.argument("view", required=False)
@click.option(
    "--sql",
    "query",
    type=click.File(encoding="utf-8"),
    help="Explain the query in this file, or - for the standard input, that is no view yet.",
)
@click.option("--json", "wants_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def explain(
    invocation: Invocation, view: str | None, query: TextIO | None, wants_json: bool
) -> int:
    """Show how a view is maintained, and what that costs.

    For a change of each relation: which other tables are asked, by which key, and whether an index
    serves it. Also where expressions run, what is stored, the consistency level, and the columns
    with their types.

    With --sql it shows what a SELECT over the sources and views of the project would become; if
    parts of it cannot be maintained, which, where they are, and what to write instead.
    """
    if view is not None and query is None:
        found: ViewExplanation | RefusedQuery = _explain_view(invocation, view)
    elif query is not None and view is None:
        found = _explain_query(invocation, query)
    else:
        raise click.UsageError("give the name of a view, or --sql and a file")
    if wants_json:
        click.echo(as_json(asdict(found), indent=2))
    else:
        for line in _text_lines(found):
            print_line(line)
    return 1 if query is not None and not found.incremental else 0


def _text_lines(found: ViewExplanation | RefusedQuery) -> Iterator[str]:
    from viewkeeper.engine.operations.statement_explanation import RefusedQuery

    return refusal_lines(found) if isinstance(found, RefusedQuery) else explanation_lines(found)


def _explain_query(invocation: Invocation, query: TextIO) -> ViewExplanation | RefusedQuery:
    from viewkeeper.engine.operations.statement_explanation import explain_statement

    settings = invocation.read_settings()
    path = None if query.name == "<stdin>" else query.name
    try:
        text = query.read()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{query.name} is not text in UTF-8: {error}") from error
    return explain_statement(settings, text, path, invocation.start_compiler)


def _explain_view(invocation: Invocation, view: str) -> ViewExplanation:
    from viewkeeper.engine.operations.statement_explanation import explain_bound
    from viewkeeper.engine.views.view_catalogue import read_views
    from viewkeeper.warehouse.metadata.head import read_head

    settings = invocation.read_settings()
    head = read_head(settings.warehouse)
    catalogue = read_views(settings, head, may_be_empty=True)
    catalogue.use_refresh(settings.refresh.word_of)
    catalogue.written.check_written(view)
    if catalogue.needs_compiler(view):
        print_note("starting Spark, which says what this report means ...")
        with invocation.open_project() as project:
            return explain_bound(settings, project.catalogue, view)
    found = explain_bound(settings, catalogue, view)
    if catalogue.unchecked:
        with invocation.start_compiler(settings, catalogue):
            return explain_bound(settings, catalogue, view)
    return found


def explanation_lines(found: ViewExplanation) -> Iterator[str]:
    """The explanation as text."""
    yield f"view {found.view}  ({found.path or 'standard input'})"
    yield ""
    yield "relations"
    for used in found.relations:
        columns = ", ".join(used.columns) or "no column, only how often"
        table = f"{used.source}.{used.table}" if used.source else f"view {used.table}"
        yield f"  {used.alias:<12} {table}  ({columns})"
    yield ""
    if found.stages:
        yield from _stage_lines(found.stages)
    elif found.incremental:
        yield "join tree"
        yield from join_tree_lines(found)
        yield ""
    if found.incremental:
        yield from _cost_lines(found)
    yield from _condition_lines(found)
    yield from _output_lines(found)
    yield from _guarantee_lines(found)


def refusal_lines(found: RefusedQuery) -> Iterator[str]:
    """What cannot be maintained of a query, part by part."""
    yield f"query {found.view}  ({found.path or 'standard input'})"
    yield ""
    yield "cannot be a view as it is written"
    for part in found.refused:
        yield f"  line {part.line}, column {part.column}: {part.message}"
        if part.hint:
            yield f"      instead: {part.hint}"


def _stage_lines(stages: tuple[StageExplanation, ...]) -> Iterator[str]:
    """The stages of a report, in the order in which a batch passes them."""
    yield "stages"
    for stage in stages:
        yield f"  {stage.name}  {stage.kind} of {', '.join(stage.reads) or 'nothing'}"
        if len(stage.relations) > 1:
            yield from (f"  {line}" for line in join_tree_lines(stage))
        yield from (f"      {line}" for line in stage.does)
        if stage.stored:
            yield f"      stored: {stage.stored}"
    yield ""


def join_tree_lines(found: ViewExplanation | StageExplanation) -> Iterator[str]:
    """The join tree, drawn; each child with the condition that joins it to its parent."""
    assert found.root is not None, "a core has a root"
    names = {
        used.place: f"{used.alias} ({'.'.join(filter(None, (used.source, used.table)))})"
        for used in found.relations
    }

    def below(parent: int, indent: str) -> Iterator[str]:
        branches = [branch for branch in found.tree if branch.parent == parent]
        for number, branch in enumerate(branches):
            last = number == len(branches) - 1
            mark, deeper = ("└── ", "    ") if last else ("├── ", "│   ")
            condition = f"ON {branch.condition}" if branch.condition else "no key: a cross product"
            yield f"{indent}{mark}{names[branch.child]}  {condition}"
            yield from below(branch.child, indent + deeper)

    yield f"  {names[found.root]}"
    yield from below(found.root, "  ")


def _cost_lines(found: ViewExplanation) -> Iterator[str]:
    for change in found.changes:
        yield f"a change of {change.alias} asks" + ("" if change.asks else " nobody")
        for number, ask in enumerate(change.asks, 1):
            key = f" by {ask.by}" if ask.by else ""
            mark = " " if ask.cheap else "!"
            table = f"{ask.source}.{ask.table}" if ask.source else ask.table
            yield f" {mark}{number}. {table}{key}: {ask.served}"
    if found.algorithm != "batch_sweep":
        yield ""
        return
    if found.stages:
        most = f"at most {found.lookups_max} lookups for a batch"
        yield f"  {most}, however many transactions it has"
        yield ""
        return
    yield (
        f"  at most {found.lookups_max} lookups for a batch, however many transactions it has: "
        f"2(m-1) for m = {len(found.relations)} relations"
    )
    yield ""


def _condition_lines(found: ViewExplanation) -> Iterator[str]:
    if not found.conditions:
        return
    yield "conditions that are no join key"
    for condition in found.conditions:
        yield f"  {condition.kind:<9} {condition.text}  [{condition.where}]"
    yield ""


def _output_lines(found: ViewExplanation) -> Iterator[str]:
    yield "columns"
    width = max(len(shown.name) for shown in found.outputs)
    for shown in found.outputs:
        kind = shown.type or "known after the load"
        yield f"  {shown.name:<{width}}  {kind:<14} {shown.expression}  [{shown.where}]"
    yield ""


def _guarantee_lines(found: ViewExplanation) -> Iterator[str]:
    yield f"incremental  {'yes' if found.incremental else 'no'}: {found.runs}"
    stored = [f"{stage.name} ({stage.kind})" for stage in found.stages[:-1] if stage.stored]
    yield f"stored       the view, and besides it {', '.join(stored) or 'nothing'}"
    yield f"algorithm    {found.algorithm}"
    yield f"consistency  {found.level}"
    yield f"             {found.level_reason}"
    for source in found.sources:
        yield f"source       {source.name}: {source.kind}, {source.description}"
    for warning in found.warnings:
        yield f"warning      {warning}"
