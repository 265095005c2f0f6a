"""`viewkeeper partition`: which views need one order, over which bases, and what that saves.

The groups are computed by `viewkeeper.partition.pyco` from the definitions of the views alone:
no source is asked and nothing is started. Here they become text, JSON or a picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from viewkeeper.cli.format import amount_text, as_json
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import print_line, show_warning

if TYPE_CHECKING:
    from viewkeeper.partition.message_cost import MessageCounts
    from viewkeeper.partition.pyco import Partition

EPILOG = """\b
Examples:
  viewkeeper partition
  viewkeeper partition shop stock reports --svg groups.svg
  viewkeeper partition reports --why shop.orders reports.daily
  viewkeeper partition reports --projects

Exit codes: 0 shown, 2 no project, wrong SQL, or views that read each other in a circle."""


@click.command(epilog=EPILOG)
@click.argument("folders", nargs=-1, metavar="[FOLDER]...", type=click.Path(path_type=Path))
@click.option("--why", nargs=2, metavar="A B", help="Say why two views are together, or not.")
@click.option(
    "--together",
    multiple=True,
    metavar="A,B,...",
    help="Keep these views in one group, whatever they read; may be repeated.",
)
@click.option(
    "--svg",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw the groups.",
)
@click.option(
    "--projects",
    is_flag=True,
    help="Group whole projects, as a registry does, with their labels `together`.",
)
@click.option("--json", "wants_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def partition(
    invocation: Invocation,
    folders: tuple[Path, ...],
    why: tuple[str, str] | None,
    together: tuple[str, ...],
    svg: Path | None,
    projects: bool,
    wants_json: bool,
) -> int:
    """Show which views share one order, and over which bases.

    Views of one group are consistent with each other at every moment, by a registry that orders
    the transactions of the group's bases. Reads the projects in the folders, by default this one,
    and every project whose views they read. Expected messages are means over updates that are
    spread evenly over all bases.
    """
    from viewkeeper.cli.commands.partition_projects import read_projects
    from viewkeeper.partition.pyco import partition_graph as find_groups

    fleet = read_projects(folders or (invocation.folder,))
    wanted = [[name.strip() for name in names.split(",")] for names in together]
    if projects:
        found = find_groups(fleet.project_graph(), [*wanted, *fleet.label_groups()])
    else:
        found = find_groups(fleet.view_graph(), wanted)
    warnings = tuple(fleet.name_warnings())
    if svg is not None:
        from viewkeeper.partition.svg_picture import draw_partition

        svg.write_text(draw_partition(found), encoding="utf-8")
    if wants_json:
        click.echo(as_json(partition_data(found, why, warnings), indent=2))
        return 0
    for warning in warnings:
        show_warning(warning)
    for line in (
        found.explain_pair(*why)
        if why
        else partition_lines(found, "project" if projects else "view")
    ):
        print_line(line)
    return 0


def partition_data(
    found: Partition, why: tuple[str, str] | None, warnings: Sequence[str]
) -> dict[str, Any]:
    """Everything that is known, for programs."""
    from viewkeeper.partition.message_cost import group_levels

    levels = group_levels(found)
    told: dict[str, Any] = {
        "groups": [
            asdict(group) | {"level": levels[group.name], "registry": group.needs_registry}
            for group in found.groups
        ],
        "views": {
            view: {
                "parents": found.graph.parents[view],
                "level": found.graph.levels[view],
                "group": found.group_of(view).name,
            }
            for view in found.graph.views
        },
        "messages_per_update": {
            name: asdict(messages) | {"total": messages.total}
            for name, messages in expected_messages(found).items()
        },
        "warnings": warnings,
    }
    return told | ({"why": found.explain_pair(*why)} if why else {})


def expected_messages(found: Partition) -> dict[str, MessageCounts]:
    """Messages for one update, as a mean over one at every base."""
    from viewkeeper.partition.message_cost import (
        even_updates,
        pyco_messages,
        ryco_messages,
        uncoordinated_messages,
    )

    graph = found.graph
    updates = even_updates(graph)
    ways = {
        "ryco": ryco_messages(graph, updates),
        "pyco": pyco_messages(found, updates),
        "none": uncoordinated_messages(graph, updates),
    }
    return {name: messages.per_update(len(graph.bases)) for name, messages in ways.items()}


def partition_lines(found: Partition, member: str = "view") -> Iterator[str]:
    """The partition as text; `member` is what the groups consist of."""
    from viewkeeper.partition.message_cost import group_levels

    graph, levels = found.graph, group_levels(found)
    counts = (
        amount_text(len(found.groups), "group"),
        amount_text(len(graph.views), member),
        amount_text(len(graph.bases), "base"),
    )
    yield ", ".join(counts)
    for group in found.groups:
        needs = "one registry" if group.needs_registry else "no registry: nothing to agree with"
        yield ""
        yield f"group {group.name}  ({needs}, level {levels[group.name]})"
        yield f"  {member + 's':<9} {', '.join(group.views)}"
        real = [base for base in group.external if base not in group.virtual]
        for word, names in (
            ("internal", group.internal),
            ("external", real),
            ("virtual", group.virtual),
        ):
            if names:
                yield f"  {word:<9} {', '.join(names)}"
    yield ""
    yield from _message_lines(found)


WAYS = {"ryco": "one registry (RyCo)", "pyco": "one per group (PyCo)", "none": "no coordination"}


def _message_lines(found: Partition) -> Iterator[str]:
    kinds = ("registered", "ordered", "empty", "deltas", "asked", "total")
    yield "expected messages per update" + "".join(f"{kind:>12}" for kind in kinds)
    for name, messages in expected_messages(found).items():
        yield f"  {WAYS[name]:<26}" + "".join(f"{getattr(messages, kind):12.1f}" for kind in kinds)
