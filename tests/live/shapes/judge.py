"""The judge: what a view must show, from plain SELECTs over the tables as they are, joined here.

A view that goes on must show exactly that. One that has stopped must say why and what would help,
and must show what it showed before; where the other source went on until it stopped, its column may
have any name that the group had, the same one in all rows.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tests.live.shapes.case import Subject
from tests.live.shapes.databases import Session
from viewkeeper.engine.project import Project
from viewkeeper.warehouse.metadata.head import ViewHead

Row = tuple[Any, ...]
OTHER = "name"


def shown(project: Project, subject: Subject) -> tuple[tuple[str, ...], Counter[Row]]:
    """The columns and rows of a subject's view."""
    return shown_rows(project, subject.view)


def shown_rows(project: Project, view: str) -> tuple[tuple[str, ...], Counter[Row]]:
    """The columns and rows of a view."""
    table = project.view(view).arrow()
    names = tuple(table.column_names)
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    return names, Counter(rows)


def expected(
    own: Session, side: Session, subject: Subject, at: int, columns: Sequence[str]
) -> Counter[Row]:
    """What a view with these columns must show after a moment."""
    stands = subject.shows(at)
    assert {*columns} == {*stands, OTHER}, f"columns {columns} instead of {[*stands]}"
    names = {int(id): name for id, name in side.run("SELECT id, name FROM grp")}
    listed = ", ".join(stands.values())
    found: Counter[Row] = Counter()
    for k, *values in own.run(f"SELECT k, {listed} FROM {subject.table(at)}"):
        if k in names:
            row = {**dict(zip(stands, values, strict=True)), OTHER: names[k]}
            found[tuple(row[column] for column in columns)] += 1
    return found


def differences(found: Counter[Row], wanted: Counter[Row]) -> str:
    """Empty if there are none."""
    if found == wanted:
        return ""
    return f"too much: {dict(found - wanted)}; missing: {dict(wanted - found)}"


def complaint(
    project: Project, own: Session, side: Session, subject: Subject, at: int
) -> str | None:
    """What is wrong with a view that must go on, if anything."""
    head = project.newest_head().views[subject.view]
    if head.stopped:
        return f"stopped: {head.stopped}"
    columns, rows = shown(project, subject)
    if {*columns} != {*subject.shows(at), OTHER}:
        return f"columns {columns} instead of {[*subject.shows(at), OTHER]}"
    return differences(rows, expected(own, side, subject, at, columns)) or None


def stop_complaint(
    head: ViewHead,
    causes: str,
    now: Counter[Row],
    before: Counter[Row],
    names: Mapping[int, Sequence[str]] | None,
) -> str | None:
    """What is wrong with a view that must have stopped; `names` where the other source went on."""
    if wrong := stop_cause_complaint(head, causes):
        return wrong
    if names is None:
        return differences(now, before) or None
    if wrong := differences(_without_name(now), _without_name(before)):
        return wrong
    return _name_complaint(now, before, names)


def stop_cause_complaint(head: ViewHead, causes: str) -> str | None:
    """What is wrong with what a view says that must have stopped."""
    if head.stopped is None or head.stopped_at is None:
        return "it goes on"
    if not re.search(causes, head.stopped):
        return f"the cause is not named: {head.stopped}"
    return None if "  hint: " in head.stopped else f"no hint: {head.stopped}"


def _without_name(rows: Counter[Row]) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for row, count in rows.items():
        found[row[:-1]] += count
    return found


def _name_complaint(
    now: Counter[Row], before: Counter[Row], names: Mapping[int, Sequence[str]]
) -> str | None:
    """Rows that had one name have one name still, and it is one that a group was given."""
    was = {row[:-1]: row[-1] for row in before}
    became: dict[str, set[str]] = defaultdict(set)
    for row in now:
        became[was[row[:-1]]].add(row[-1])
    given = {name for each in names.values() for name in each}
    for old, new in became.items():
        if len(new) > 1:
            return f"rows of one group show several names: {new}"
        if not new <= {*given, old}:
            return f"a name that no group had: {new}"
    return None
