"""The row of a group and those of its members, read and held inside a transaction.

Whoever changes a group holds its row, so numbers are given one caller at a time, and a number is
visible only together with all before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import NamedTuple

from viewkeeper.errors import (
    ClosedGroupError,
    IdentityError,
    RegistryError,
    TrimmedError,
    reload_hint,
)
from viewkeeper.order.registry_protocol import GroupMember, MemberFacts
from viewkeeper.order.store.store_database import StatementRunner, StoreDatabase
from viewkeeper.order.store.store_ownership import StoreOwnership

SAME_REGISTRY = (
    "give all members the address of the same registry; if the old one is lost, at every member "
    f"of the group {reload_hint()}"
)


class GroupRow(NamedTuple):
    """What is stored of a group; `closed` is the regrouping that closed it, 0 while it is open.

    The order is kept from after number `trimmed` on.
    """

    identity: str
    last: int
    closed: int
    trimmed: int


class GroupRows:
    """The groups of a store, each checked to be the one that was joined."""

    def __init__(self, database: StoreDatabase, ownership: StoreOwnership) -> None:
        self.database = database
        self.ownership = ownership
        self._identities: dict[str, str] = {}

    @property
    def name(self) -> str:
        return self.database.name

    def expect_identity(self, group: str, identity: str) -> None:
        """Let a group be that one only from now on."""
        self._identities[group] = identity

    @contextmanager
    def group_transaction(
        self, group: str, open_only: bool = False
    ) -> Iterator[tuple[StatementRunner, GroupRow]]:
        """A transaction that holds the group's row."""
        with self.database.write_transaction() as rows:
            self.ownership.check_owner(rows)
            found = self.read_group(rows, group, lock=self.database.for_update)
            if open_only and found.closed:
                raise self.closed_error(group, found.last)
            yield rows, found

    def read_group(
        self, rows: StatementRunner, group: str, expected: str | None = None, lock: str = ""
    ) -> GroupRow:
        """The group's row; an error if it is not the group that we know."""
        expected = expected or self._identities.get(group)
        select = "SELECT identity, last, closed, trimmed FROM registry_group"
        found = [GroupRow(*row) for row in rows(f"{select} WHERE name = ?{lock}", group)]
        if found and (expected is None or found[0].identity == expected):
            return found[0]
        if expected is None:
            raise RegistryError(
                self.name,
                f'there is no group "{group}"',
                hint="groups are made when members join; check the address of the registry",
            )
        there = f"it is {found[0].identity} here" if found else "there is no such group here"
        raise IdentityError(
            self.name,
            f'group "{group}" is not the one that was joined',
            detail=f"its identity was {expected}; {there}: two registries would order one group",
            hint=SAME_REGISTRY,
        )

    def read_members(self, rows: StatementRunner, group: str) -> tuple[GroupMember, ...]:
        found = rows(
            f"SELECT member, facts, reached, {self.database.clock} - seen FROM registry_member"
            " WHERE grp = ? ORDER BY member",
            group,
        )
        members = (GroupMember(name, read_facts(facts), n, seen) for name, facts, n, seen in found)
        return tuple(sorted(members, key=lambda member: member.name))

    def closed_error(self, group: str, last: int) -> ClosedGroupError:
        return ClosedGroupError(
            self.name,
            f'the order of group "{group}" has ended with number {last}',
            detail="members have joined, left, or read something else; they are in other groups",
            hint="nothing to do: each member takes the order to its end, then joins again",
        )

    def older_error(self, group: str, n: int, last: int) -> IdentityError:
        return IdentityError(
            self.name,
            f'group "{group}" has an order of {last} ids, and a member knows of {n}',
            detail="this is an older copy of the registry; it would order later ids again",
            hint="bring back the newest copy of the registry's store; if it is lost, remove the "
            f"store, then at every member of the group {reload_hint()}",
        )

    def trimmed_error(self, group: str, after: int, trimmed: int) -> TrimmedError:
        return TrimmedError(
            self.name,
            f'the order of group "{group}" is kept from after number {trimmed} on, and it is asked '
            f"for from after {after}",
            detail="all members had committed what lies before; a warehouse that was restored from "
            "a backup comes from there",
            hint=f"at this member {reload_hint()}",
        )

    def no_member_error(self, group: str, member: str) -> RegistryError:
        return RegistryError(
            self.name, f'group "{group}" has no member "{member}"', hint="it must join first"
        )


def facts_text(facts: MemberFacts) -> str:
    """Facts as they are stored."""
    return json.dumps(asdict(facts))


def read_facts(text: str) -> MemberFacts:
    """Facts as they were stored."""
    return MemberFacts(**json.loads(text))
