"""A registry in a database: the face that members and services use, over its named parts.

A call is one short transaction of the part that knows about it: ownership
(`StoreOwnership`), members and their groups (`stored_groups`), reporters and the order
(`stored_order`). Which database has the tables is known by the database alone. What only a service
asks, it asks of `ownership` and `groups` themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.registry_protocol import (
    Assignment,
    GroupMember,
    MemberFacts,
    OrderedId,
    RegistryStatus,
    Reporter,
)
from viewkeeper.order.retention_rule import RetentionWindows
from viewkeeper.order.store.group_rows import (
    GroupRows,
    StoreDatabase,
    StoreOwnership,
)
from viewkeeper.order.store.stored_groups import StoredGroups
from viewkeeper.order.store.stored_order import StoredOrder

WINDOWS = RetentionWindows()


class StoredRegistry:
    """A registry whose tables are in one database; `windows` says how much is kept at least."""

    def __init__(self, database: StoreDatabase, windows: RetentionWindows = WINDOWS) -> None:
        self.database = database
        self.ownership = StoreOwnership(database)
        groups = GroupRows(database, self.ownership)
        self.groups = StoredGroups(groups, windows)
        self._order = StoredOrder(groups)

    @property
    def name(self) -> str:
        return self.database.name

    def close(self) -> None:
        self.database.close()

    # Members

    def join_registry(
        self,
        member: str,
        facts: MemberFacts,
        remembered: str | None = None,
        secret: str | None = None,
    ) -> Assignment:
        return self.groups.join_registry(member, facts, remembered, secret)

    def leave_registry(self, member: str) -> None:
        self.groups.leave_registry(member)

    def fetch_members(self, group: str) -> tuple[GroupMember, ...]:
        return self.groups.fetch_members(group)

    def note_reached(self, group: str, member: str, n: int) -> None:
        self.groups.note_reached(group, member, n)

    def forget_secret(self, member: str) -> None:
        self.groups.forget_secret(member)

    # The order

    def claim_source(self, group: str, source: str, member: str, seconds: float) -> Reporter | None:
        return self._order.claim_source(group, source, member, seconds)

    def release_claim(self, reporter: Reporter) -> None:
        self._order.release_claim(reporter)

    def register_ids(self, group: str, ids: Sequence[GlobalId], reporter: Reporter) -> int:
        return self._order.register_ids(group, ids, reporter)

    def take_back(self, group: str, source: str, position: int) -> int:
        return self._order.take_back(group, source, position)

    def fetch_order(
        self, group: str, after: int, limit: int, wait_seconds: float = 0.0
    ) -> tuple[OrderedId, ...]:
        return self._order.fetch_order(group, after, limit, wait_seconds)

    def fetch_status(self) -> RegistryStatus:
        return self._order.fetch_status()
