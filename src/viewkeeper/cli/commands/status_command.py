"""`viewkeeper status`: how far every view and source is, without starting anything.

What is gathered is in `viewkeeper.engine.operations.project_status`; here it becomes two tables, or
JSON.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from viewkeeper.cli.format import amount_text, as_json, duration_text, kept_text
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import make_console, make_grid, print_line
from viewkeeper.sources.kinds import position_text_of
from viewkeeper.storage.stored_files import local_folder

if TYPE_CHECKING:
    from rich.table import Table

    from viewkeeper.engine.group.group_status import GroupNow
    from viewkeeper.engine.operations.project_status import (
        Lag,
        ProjectStatus,
        SourceStatus,
        ViewStatus,
    )

EPILOG = """\b
Examples:
  viewkeeper status
  viewkeeper status --json | jq '.views[] | {name, ts, seconds}'

Exit codes: 0 all views loaded and all sources there, 1 not so (see the problems listed), 2 no
project."""


@click.command(epilog=EPILOG)
@click.option("--json", "wants_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def status(invocation: Invocation, wants_json: bool) -> int:
    """Show how far every view and source is.

    Reads the warehouse and asks each source for its log; starts no Spark, takes no lock, and works
    while `viewkeeper run` runs and while a source is away.
    """
    # First, because what is imported afterwards would import pandas.
    settings = invocation.read_settings()
    from viewkeeper.engine.group.group_status import gather_group
    from viewkeeper.engine.operations.project_status import gather_status

    found, group = gather_status(settings, time.time()), gather_group(settings)
    if wants_json:
        body = project_status_data(found) | ({"group": asdict(group)} if group else {})
        click.echo(as_json(body, indent=2))
    else:
        _show_project(found, group)
        if invocation.verbose:
            _show_tracebacks(local_folder(settings.warehouse))
    return 0 if found.ok and not (group and group.error) else 1


def _show_tracebacks(folder: Path) -> None:
    """Where something unexpected happened, as it was kept."""
    for file in sorted((folder / "tracebacks").glob("*.txt")):
        print_line(f"\n{file}:\n{file.read_text(encoding='utf-8', errors='replace').rstrip()}")


def project_status_data(found: ProjectStatus) -> dict[str, Any]:
    """The status as plain data, with what the classes compute; a `place` is a position as the
    source's own tools write it."""
    body = asdict(found)
    styles = {source.name: source.positions for source in found.sources}
    for view, data in zip(found.views, body["views"], strict=True):
        data["seconds"], data["up"] = view.lag_seconds, view.is_up
        for lag in data["lags"]:
            lag["place"] = _place_text(styles.get(lag["source"], "number"), lag["position"])
    for source, data in zip(found.sources, body["sources"], strict=True):
        data["place"] = _place_text(source.positions, source.position)
    return {"ok": found.ok, **body}


def _show_project(found: ProjectStatus, group: GroupNow | None) -> None:
    out = make_console()
    running = "not running"
    if found.running:
        running = f"{found.running} (epoch {found.running.epoch})"
    out.print(f"project    {found.folder}", soft_wrap=True)
    out.print(f"maintained {running}\n", soft_wrap=True)
    out.print(view_table(found))
    out.print()
    out.print(source_table(found))
    for line in (
        *fresh_lines(found),
        *stored_lines(found),
        *lease_lines(found),
        *group_lines(group),
    ):
        print_line(line)
    for line in problem_lines(found):
        print_line(f"\n{line}")


def view_table(found: ProjectStatus) -> Table:
    """One line per view and source."""
    table = make_grid(
        "view", "rows>", "ts>", "from ts>", "committed", "source", "position>", "behind"
    )
    styles = {source.name: source.positions for source in found.sources}
    for view in found.views:
        facts = [view.name, *_view_facts(view, found.at)]
        for lag in view.lags or (None,):
            told = ["", "", ""]
            if lag is not None:
                place = _place_text(styles.get(lag.source, "number"), lag.position)
                told = [lag.source, place, lag_text(lag)]
            table.add_row(*facts, *told)
            facts = [""] * len(facts)
    return table


def source_table(found: ProjectStatus) -> Table:
    """One line per source: what its log keeps, and for whom."""
    table = make_grid("source", "kind", "state", "position>", "keeps>", "for")
    for source in found.sources:
        state = "away" if source.error else "followed" if source.followed else "not followed yet"
        kept = ", ".join(_reader_texts(source))
        keeps = (
            "" if source.error or not source.followed else kept_text(source.retained, source.unit)
        )
        place = _place_text(source.positions, source.position)
        table.add_row(source.name, source.kind, state, place, keeps, kept)
    return table


def fresh_lines(found: ProjectStatus) -> list[str]:
    """How fresh views were in their last batches."""
    return [
        f"{view.name}: from commit to visible "
        f"{', '.join(map('{} {}'.format, ('p50', 'p95', 'p99'), map(_fresh_text, view.freshness)))}"
        for view in found.views
        if view.freshness
    ]


def _fresh_text(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds < 10 else duration_text(seconds)


def stored_lines(found: ProjectStatus) -> list[str]:
    """What reports keep beside their own rows, and what their last batches asked."""
    lines = []
    for view in found.views:
        if view.recomputed is not None:
            lines.append(f"{view.name}: computed again when its sources change, {view.recomputed}")
        if view.apart is not None:
            lines.append(f"{view.name}: advances apart from the others, because {view.apart}")
        for node in view.stored:
            size = f"{node.bytes / (1 << 20):,.1f} MB in {amount_text(node.files, 'file')}"
            most = _largest_text(node.largest_key)
            lines.append(f"{node.name}: {node.rows:,} groups are kept for it, {size}{most}")
        if view.asked_rows is not None and (view.stored or view.largest_key is not None):
            asked = amount_text(view.asked_rows, "row")
            most = _largest_text(view.largest_key)
            lines.append(f"{view.name}: its last batch asked the sources for {asked}{most}")
    return lines


def _largest_text(rows: int | None) -> str:
    return "" if rows is None else f"; its largest group has {amount_text(rows, 'row')}"


def lease_lines(found: ProjectStatus) -> list[str]:
    """What is kept for projects that read these views."""
    newest = max((view.ts or 0 for view in found.views), default=0)
    return [
        f"kept for {lease}: states from ts {lease.ts:,} on, {max(newest - lease.ts, 0):,} behind"
        for lease in found.leases
    ]


def group_lines(group: GroupNow | None) -> list[str]:
    """The lines about the group: the members that must agree with the project, and its progress."""
    if group is None:
        return []
    if group.error:
        return [f"\n{group.error}"]
    if group.group is None:
        return [f'\nregistry {group.registry}: "{group.member}" has not joined it yet']
    if group.alone:
        return [f'\nregistry {group.registry}: "{group.member}" has nobody to agree with']
    lines = [
        f'\nregistry {group.registry}: "{group.member}" in group {group.group}, '
        f"{group.committed:,} of {amount_text(group.last, 'id')} committed"
    ]
    if group.committed < group.last:
        lines += [f"  waits for {member}" for member in group.waits_for]
    return [*lines, *(f'  nobody reports source "{source}" now' for source in group.unreported)]


def lag_text(lag: Lag) -> str:
    """A lag in words."""
    if lag.position is None:
        return "not loaded yet"
    if not lag.captured:
        return "detached"
    if lag.changes is None:
        reported = amount_text(lag.transactions, "transaction")
        return f"source away; {reported} known to wait" if lag.transactions else "source away"
    if not lag.changes:
        return "up to date at the last look" if lag.more else "up to date"
    reported = amount_text(lag.transactions, "transaction") + (" and more" if lag.more else "")
    if not lag.transactions:
        reported = "not yet reported"
    age = duration_text(lag.seconds or 0.0)
    return f"{amount_text(lag.changes, 'change')} ({reported}), {age}"


def problem_lines(found: ProjectStatus) -> list[str]:
    """What somebody should look at, a paragraph each."""
    views = [f'view "{view.name}": {view.problem}' for view in found.views if view.problem]
    unloaded = [
        f'view "{view.name}": not loaded yet\n  hint: `viewkeeper run --once` loads it'
        for view in found.views
        if not view.loaded and not view.problem
    ]
    sources = [source.error for source in found.sources if source.error]
    warnings = [warning for source in found.sources for warning in source.warnings]
    behind = [view.name for view in found.views if any(lag.changes for lag in view.lags)]
    nobody = [
        f"nothing maintains this project now, and {', '.join(behind)} "
        f"{'is' if len(behind) == 1 else 'are'} behind\n  hint: `viewkeeper run`"
    ]
    is_idle = found.running is None and behind
    return [*views, *unloaded, *sources, *warnings, *(nobody if is_idle else ())]


def _view_facts(view: ViewStatus, now: float) -> list[str]:
    if not view.loaded:
        return ["", "", "", view.state_words]
    state = f"{duration_text(max(0.0, now - (view.committed_at or 0.0)))} ago"
    if view.state != "maintained":
        state = f"{view.state_words}, {state}"
    return [_number_text(view.rows), _number_text(view.ts), _number_text(view.horizon), state]


def _reader_texts(source: SourceStatus) -> list[str]:
    words = []
    for reader in source.readers:
        name = reader.reader if "/" in reader.reader else reader.reader[:8]
        who = "this project" if reader.ours else f"project {name}"
        if reader.lease_until is not None:
            until = datetime.fromtimestamp(reader.lease_until, UTC).strftime("%H:%M:%S UTC")
            who = f"a lease of {who} until {until}"
        words.append(f"{who} from {_place_text(source.positions, reader.position)}")
    return words


def _place_text(style: str, position: int | None) -> str:
    return "" if position is None else position_text_of(style, position)


def _number_text(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
