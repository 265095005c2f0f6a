"""Members and groups in a store: who joins, who leaves, and which groups follow from that.

A member has a row in every group that it is, or was, in; the open groups are how things are now. In
a group that is closed, rows stay as they were: they say who must still take its order, and what lay
behind whom while it lasted. Joining and leaving hold one row for the whole environment, so groups
are computed from facts that nobody else changes meanwhile, and everything that follows is in one
transaction. Registering holds its own group's row and looks there whether the group is closed, so a
group is closed before or after any report, never in the middle of one.

What no member has to take any more is removed inside the caller's transaction: a kill at any moment
leaves all of it or nothing. What is removed at once is bounded, so that nobody waits for it.

Only a service asks for hashes of secrets: it cannot tell callers apart by anything else. A member
without a hash has never joined through a service, or an administrator let it begin again; the next
join gives one.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from viewkeeper.errors import AccessError, IdentityError, RegistryError
from viewkeeper.order.member_groups import find_ambiguous_names, find_circle, regroup_members
from viewkeeper.order.member_secret import is_secret, secret_hash
from viewkeeper.order.registry_protocol import Assignment, GroupMember, MemberFacts
from viewkeeper.order.retention_rule import RetentionWindows, check_names, is_done, order_cut
from viewkeeper.order.store.group_rows import (
    SAME_REGISTRY,
    GroupRows,
    StatementRunner,
    facts_text,
    read_facts,
)
from viewkeeper.partition.view_graph import group_name_of

_SELECT = "SELECT hash FROM registry_secret WHERE member = ?"


def admit_secret(registry: str, rows: StatementRunner, member: str, secret: str) -> None:
    """At a join: the first secret of a member is kept, any other one is an AccessError."""
    found = rows(_SELECT, member)
    if not found:
        rows(
            "INSERT INTO registry_secret (member, hash) VALUES (?, ?)", member, secret_hash(secret)
        )
    elif not is_secret(secret, found[0][0]):
        raise _another_secret_error(registry, member)


def check_secret(registry: str, rows: StatementRunner, member: str, secret: str | None) -> None:
    """An AccessError unless it is the one that the member joined with."""
    found = rows(_SELECT, member)
    if not found:
        raise AccessError(
            registry,
            f'the service has no member "{member}" that may ask for this',
            hint="it must join first, through the service",
        )
    if secret is None:
        raise AccessError(
            registry,
            f'nobody may speak for "{member}" without its secret, and none was sent',
            hint="its version of Viewkeeper is older than the service's: install the same one",
        )
    if not is_secret(secret, found[0][0]):
        raise _another_secret_error(registry, member)


def forget_secret(rows: StatementRunner, member: str) -> None:
    rows("DELETE FROM registry_secret WHERE member = ?", member)


def _another_secret_error(registry: str, member: str) -> AccessError:
    return AccessError(
        registry,
        f'"{member}" has joined with another secret',
        detail="somebody else has this name, or the file with the secret was lost",
        hint="give this project another name with `registry: member:`; if it is the same member, "
        f"the administrator runs `viewkeeper registry forget URL {member}`, and it joins again",
    )


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


_IS_OPEN = "grp IN (SELECT name FROM registry_group WHERE closed = 0)"
_NEVER = (1 << 63) - 1


class StoredGroups:
    """Members of a store, and the groups that follow from what they read."""

    def __init__(self, groups: GroupRows, windows: RetentionWindows) -> None:
        self._groups = groups
        self._database = groups.database
        self._windows = windows
        self._joined: dict[str, str] = {}
        """The group that each member was given, as far as it joined through this object."""
        self.grouping = object()
        """Another one after groups were computed again through this object."""

    def join_registry(
        self,
        member: str,
        facts: MemberFacts,
        remembered: str | None = None,
        secret: str | None = None,
    ) -> Assignment:
        """As every registry; a service hands on the secret that came with the request."""
        joined = self._joined.get(member)
        with self._regroup_transaction(create=not (joined or remembered)) as rows:
            if secret is not None:
                admit_secret(self._groups.name, rows, member, secret)
            if joined:
                self._groups.read_group(rows, joined)
            opened = self._find_opening(rows, member, remembered) if remembered else _NEVER
            said = self._member_facts(rows, member)
            self._check_warehouse(member, said.get(member, facts).warehouse, facts.warehouse)
            changes = said != {member: facts}
            if changes:
                before = self._member_facts(rows)
                after = {**before, member: facts}
                check_names(self._groups.name, member, facts, known=before)
                self._check_facts(after, member)
                self._apply_regrouping(rows, before, after)
            rows(
                f"UPDATE registry_member SET facts = ?, seen = {self._database.clock}"
                f" WHERE member = ? AND {_IS_OPEN}",
                *(facts_text(facts), member),
            )
            found = self._next_assignment(rows, member, opened)
            if note_place(rows, member, opened if remembered else found.opened) or changes:
                remove_groups(rows, self._windows)
        self._joined[member] = found.group
        self._groups.expect_identity(found.group, found.identity)
        if changes:
            self.grouping = object()
        return found

    def leave_registry(self, member: str) -> None:
        with self._regroup_transaction() as rows:
            before = self._member_facts(rows)
            changes = member in before
            if changes:
                after = {name: facts for name, facts in before.items() if name != member}
                self._apply_regrouping(rows, before, after)
        self._joined.pop(member, None)
        if changes:
            self.grouping = object()

    def fetch_members(self, group: str) -> tuple[GroupMember, ...]:
        with self._database.read_transaction() as rows:
            self._groups.read_group(rows, group)
            return self._groups.read_members(rows, group)

    def note_reached(self, group: str, member: str, n: int) -> None:
        with self._groups.group_transaction(group) as (rows, found):
            if n > found.last:
                raise self._groups.older_error(group, n, found.last)
            noted = rows(
                f"UPDATE registry_member SET seen = {self._database.clock},"
                " reached = CASE WHEN reached < ? THEN ? ELSE reached END"
                " WHERE grp = ? AND member = ? RETURNING reached",
                *(n, n, group, member),
            )
            if not noted:
                raise self._groups.no_member_error(group, member)
            if not found.closed:
                trim_order(rows, group, found.last, found.trimmed, self._windows)

    def check_secret(self, member: str, secret: str | None) -> None:
        """An AccessError unless this is the secret that the member joined with."""
        with self._database.read_transaction() as rows:
            check_secret(self._groups.name, rows, member, secret)

    def forget_secret(self, member: str) -> None:
        with self._regroup_transaction() as rows:
            forget_secret(rows, member)

    def check_identity(self, group: str, identity: str) -> None:
        """An IdentityError if the group here is another one."""
        with self._database.read_transaction() as rows:
            self._groups.read_group(rows, group, identity)

    # Groups that change

    @contextmanager
    def _regroup_transaction(self, create: bool = False) -> Iterator[StatementRunner]:
        """A transaction in which nobody else joins or leaves."""
        with self._database.write_transaction(create=create) as rows:
            self._groups.ownership.check_owner(rows)
            rows(f"SELECT regroupings FROM registry_environment{self._database.for_update}")
            yield rows

    def _member_facts(
        self, rows: StatementRunner, member: str | None = None
    ) -> dict[str, MemberFacts]:
        """What all members say now, or only this one."""
        select = f"SELECT member, facts FROM registry_member WHERE {_IS_OPEN}"
        found = rows(f"{select} AND member = ?", member) if member else rows(select)
        return {member: read_facts(facts) for member, facts in found}

    def _apply_regrouping(
        self,
        rows: StatementRunner,
        before: Mapping[str, MemberFacts],
        after: Mapping[str, MemberFacts],
    ) -> None:
        groups: dict[str, set[str]] = defaultdict(set)
        for group, member in rows(f"SELECT grp, member FROM registry_member WHERE {_IS_OPEN}"):
            groups[group].add(member)
        open_groups = {group: frozenset(members) for group, members in groups.items()}
        change = regroup_members(open_groups, before, after)
        ((number,),) = rows(
            "UPDATE registry_environment SET regroupings = regroupings + 1 RETURNING regroupings"
        )
        for group in change.closed:
            rows("UPDATE registry_group SET closed = ? WHERE name = ?", number, group)
            rows("UPDATE registry_reporter SET until = 0 WHERE grp = ?", group)
        for members in change.opened:
            name = self._new_name(rows, members, number)
            rows(
                "INSERT INTO registry_group (name, identity, last, closed, opened)"
                " VALUES (?, ?, 0, 0, ?)",
                *(name, secrets.token_hex(16), number),
            )
            for member in members:
                rows(
                    "INSERT INTO registry_member (grp, member, facts, reached, seen) VALUES"
                    " (?, ?, ?, 0, COALESCE((SELECT max(seen) FROM registry_member"
                    f" WHERE member = ?), {self._database.clock}))",
                    *(name, member, facts_text(after[member]), member),
                )

    def _new_name(self, rows: StatementRunner, members: tuple[str, ...], number: int) -> str:
        """The name of these members; with a number where a group had it before.

        A group that had it may be forgotten by now, and a member still remember its order: from
        the first regrouping on that can have forgotten one, the number is that of the regrouping.
        """
        plain = group_name_of(members)
        if number > self._windows.groups:
            return f"{plain}.{number}"
        alike = "SELECT name FROM registry_group WHERE substr(name, 1, ?) = ?"
        used = {name for (name,) in rows(alike, len(plain), plain)}
        name, count = plain, 1
        while name in used:
            count += 1
            name = f"{plain}.{count}"
        return name

    def _find_opening(self, rows: StatementRunner, member: str, identity: str) -> int:
        """When the group that a member remembers was opened."""
        found = rows("SELECT name, opened FROM registry_group WHERE identity = ?", identity)
        if not found:
            raise IdentityError(
                self._groups.name,
                f'this registry is not the one that was joined by "{member}"',
                detail=f"its group was {identity}, and there is none here: two registries would "
                "order one group. Or it was away for so long that its group is not kept any more",
                hint=f"{SAME_REGISTRY}; a member that was away for long is loaded again with it",
            )
        ((name, opened),) = found
        self._groups.expect_identity(name, identity)
        return int(opened)

    def _next_assignment(self, rows: StatementRunner, member: str, opened: int) -> Assignment:
        """The first group of a member that is open, or was opened later and has ids to take."""
        ((group, identity, closed, since),) = rows(
            "SELECT g.name, g.identity, g.closed, g.opened FROM registry_group g"
            " JOIN registry_member m ON m.grp = g.name WHERE m.member = ?"
            " AND (g.closed = 0 OR (g.opened > ? AND g.last > 0)) ORDER BY g.opened LIMIT 1",
            *(member, opened),
        )
        return Assignment(
            group, identity, self._groups.read_members(rows, group), bool(closed), since
        )

    def _check_facts(self, facts: Mapping[str, MemberFacts], member: str) -> None:
        """What cannot be: a member that reads itself, a name that stands for two things."""
        if way := find_circle(facts, member):
            raise RegistryError(
                self._groups.name,
                f"members would read each other in a circle: {' <- '.join(way)}",
                detail=(
                    f'"{member}" says that it reads {", ".join(sorted(facts[member].read_names))}'
                ),
                hint="build the views of one of them on the sources instead",
            )
        for name in sorted(find_ambiguous_names(facts)):
            raise RegistryError(
                self._groups.name,
                f'"{name}" would be the name of a source and of a member',
                detail=f'"{member}" cannot join with that: ids carry both kinds of names',
                hint="give the source another name with its option `global`, in all projects that "
                "read it, or the project another one with `registry: member:`",
            )

    def _check_warehouse(self, member: str, known: str, given: str) -> None:
        if known != given:
            raise RegistryError(
                self._groups.name,
                f'"{member}" is another warehouse',
                detail="two warehouses with one name would each undo what the other one says",
                hint="give this project another name with `registry: member:`; if the other one is "
                f"gone for good, `viewkeeper registry leave URL {member}`",
            )


_IS_OPEN = "grp IN (SELECT name FROM registry_group WHERE closed = 0)"
