"""Removing from a store what no member has to take any more, inside the caller's transaction.

A kill at any moment leaves all of it or nothing. What is removed at once is bounded, so that nobody
waits for it.
"""

from __future__ import annotations

from collections import defaultdict

from viewkeeper.order.retention_rule import RetentionWindows, is_done, order_cut
from viewkeeper.order.store.store_database import StatementRunner

_GROUPS_AT_ONCE = 50


def trim_order(
    rows: StatementRunner, group: str, last: int, trimmed: int, windows: RetentionWindows
) -> None:
    """Remove ids of an open group that all members have committed; its row is held."""
    reached = [n for (n,) in rows("SELECT reached FROM registry_member WHERE grp = ?", group)]
    cut = order_cut(reached, last, trimmed, windows)
    if cut == trimmed:
        return
    rows(
        "DELETE FROM registry_id WHERE grp = ? AND n <= ? AND EXISTS (SELECT 1 FROM registry_id"
        " later WHERE later.grp = registry_id.grp AND later.source = registry_id.source"
        " AND later.position > registry_id.position)",
        *(group, cut),
    )
    rows("UPDATE registry_group SET trimmed = ? WHERE name = ?", cut, group)


def note_place(rows: StatementRunner, member: str, opened: int) -> bool:
    """Note the group that a member is in, by when it was opened; whether it has gone on."""
    known = rows("SELECT opened FROM registry_place WHERE member = ?", member)
    if known == [(opened,)]:
        return False
    rows(
        "INSERT INTO registry_place (member, opened) VALUES (?, ?) ON CONFLICT (member)"
        " DO UPDATE SET opened = excluded.opened",
        *(member, opened),
    )
    return True


def remove_groups(rows: StatementRunner, windows: RetentionWindows) -> None:
    """Remove closed groups that everybody has left behind; the environment's row is held."""
    ((now,),) = rows("SELECT regroupings FROM registry_environment")
    old = rows(
        "SELECT name, opened, closed FROM registry_group WHERE closed > 0 AND closed <= ?"
        " ORDER BY opened LIMIT ?",
        *(now - windows.groups, _GROUPS_AT_ONCE),
    )
    if not old:
        return
    places: dict[str, list[int | None]] = defaultdict(list)
    for name, place in rows(
        "SELECT m.grp, p.opened FROM registry_member m"
        " JOIN registry_group g ON g.name = m.grp AND g.closed > 0"
        " JOIN registry_member o ON o.member = m.member"
        " JOIN registry_group h ON h.name = o.grp AND h.closed = 0"
        " LEFT JOIN registry_place p ON p.member = m.member WHERE g.closed <= ?",
        now - windows.groups,
    ):
        places[name].append(place)
    for name, opened, closed in old:
        if is_done(opened, closed, now, places[name], windows):
            for table in ("registry_id", "registry_reporter", "registry_member"):
                rows(f"DELETE FROM {table} WHERE grp = ?", name)
            rows("DELETE FROM registry_group WHERE name = ?", name)
