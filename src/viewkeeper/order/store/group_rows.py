"""The row of a group and those of its members, read and held inside a transaction.

Whoever changes a group holds its row, so numbers are given one caller at a time, and a number is
visible only together with all before it.

A store is used by members directly, or it is owned by one service. Taking ownership gives a new
epoch; every transaction that writes compares the epoch, so a service that was taken over while it
slept cannot write any more, and neither can members that go past the service. The lease, by the
database's clock, only keeps a second service from taking over while the first one lives.

A store is a handful of tables. Which database has them is known by one part only
(`sqlite_store`, `postgres_store`), which opens transactions; everything else is SQL that all of
them understand, with ? for values.

A store of an earlier format is brought up to date by whoever opens it; an earlier version of
Viewkeeper refuses it from then on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol

from viewkeeper.errors import (
    ClosedGroupError,
    FencedError,
    IdentityError,
    RegistryError,
    TrimmedError,
    reload_hint,
)
from viewkeeper.order.registry_protocol import GroupMember, MemberFacts, StoreOwner

FORMAT = 3
_ADDED = (
    "CREATE TABLE IF NOT EXISTS registry_place (member TEXT PRIMARY KEY, opened BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS registry_secret (member TEXT PRIMARY KEY, hash TEXT NOT NULL)",
)
"""Where members are among the groups, and hashes of their secrets."""
UPGRADES = {
    2: (
        *_ADDED,
        "ALTER TABLE registry_group ADD COLUMN trimmed BIGINT NOT NULL DEFAULT 0",
        "UPDATE registry SET format = 3",
    )
}
"""What makes a store of an earlier format one of the next."""
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS registry (one INTEGER PRIMARY KEY CHECK (one = 1),"
    " format INTEGER NOT NULL, epoch BIGINT NOT NULL, holder TEXT NOT NULL,"
    " until DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS registry_environment (one INTEGER PRIMARY KEY CHECK (one = 1),"
    " regroupings BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS registry_group (name TEXT PRIMARY KEY,"
    " identity TEXT NOT NULL UNIQUE, last BIGINT NOT NULL, closed INTEGER NOT NULL,"
    " opened BIGINT NOT NULL, trimmed BIGINT NOT NULL DEFAULT 0)",
    *_ADDED,
    "CREATE TABLE IF NOT EXISTS registry_id (grp TEXT NOT NULL, n BIGINT NOT NULL,"
    " source TEXT NOT NULL, position BIGINT NOT NULL, PRIMARY KEY (grp, n),"
    " UNIQUE (grp, source, position))",
    "CREATE TABLE IF NOT EXISTS registry_reporter (grp TEXT NOT NULL, source TEXT NOT NULL,"
    " member TEXT NOT NULL, token BIGINT NOT NULL, until DOUBLE PRECISION NOT NULL,"
    " PRIMARY KEY (grp, source))",
    "CREATE TABLE IF NOT EXISTS registry_member (grp TEXT NOT NULL, member TEXT NOT NULL,"
    " facts TEXT NOT NULL, reached BIGINT NOT NULL, seen DOUBLE PRECISION NOT NULL,"
    " PRIMARY KEY (grp, member))",
    "CREATE INDEX IF NOT EXISTS registry_member_name ON registry_member (member)",
    "INSERT INTO registry_environment (one, regroupings) VALUES (1, 0) ON CONFLICT (one)"
    " DO NOTHING",
    f"INSERT INTO registry (one, format, epoch, holder, until) VALUES (1, {FORMAT}, 0, '', 0)"
    " ON CONFLICT (one) DO NOTHING",
)


class StatementRunner(Protocol):
    """Runs one statement, with ? for values, in the transaction that is open."""

    def __call__(self, statement: str, *values: object) -> list[tuple[Any, ...]]: ...


class StoreDatabase(Protocol):
    """The database that has a store; used by one thread at a time, others wait."""

    name: str
    """Where it is, without secrets."""
    clock: str
    """An SQL expression: the seconds since 1970, by the database's clock."""
    for_update: str
    for_share: str

    def write_transaction(self, create: bool = False) -> AbstractContextManager[StatementRunner]:
        """A transaction, durable when it ends; with `create`, the store is made if it is not."""

    def read_transaction(self) -> AbstractContextManager[StatementRunner]:
        """A transaction that sees one state."""

    def close(self) -> None:
        """Let go of connections."""


def is_old(rows: StatementRunner) -> bool:
    """Whether the store has a format that can be brought up to date."""
    return rows("SELECT format FROM registry")[0][0] in UPGRADES


def upgrade_format(rows: StatementRunner) -> None:
    """Inside a transaction that writes; nothing if somebody else has done it meanwhile."""
    while is_old(rows):
        for statement in UPGRADES[rows("SELECT format FROM registry")[0][0]]:
            rows(statement)


def check_format(registry: str, rows: StatementRunner) -> None:
    """Refuse a store that this version cannot use."""
    ((found,),) = rows("SELECT format FROM registry")
    if found != FORMAT:
        raise RegistryError(
            registry,
            f"its store has format {found}; this version of Viewkeeper knows {FORMAT}",
            hint="use the version of Viewkeeper that made it, or move the store away: members "
            f"then make a new one, and at each of them {reload_hint()}",
        )


def is_never_gone(holder: str) -> bool:
    """What is known of a holder without looking: nothing."""
    return False


class StoreOwnership:
    """The epoch by which we write to a store, if we own it."""

    def __init__(self, database: StoreDatabase) -> None:
        self._database = database
        self._epoch: int | None = None

    def take_ownership(
        self, holder: str, seconds: float, is_gone: Callable[[str], bool] = is_never_gone
    ) -> int:
        """Take the store for ourselves; the new epoch.

        A FencedError while the lease of another holder lasts, unless `is_gone` knows that it died.
        """
        with self._database.write_transaction(create=True) as rows:
            owner = self.read_owner(rows, self._database.for_update)
            if owner is not None and not is_gone(owner.holder):
                raise FencedError(
                    self._database.name,
                    f"it is served by {owner.holder}",
                    detail=f"its lease ends in {owner.lease:.0f} seconds unless it is renewed",
                    hint="stop that service first; if it is dead, wait until its lease has ended",
                )
            ((epoch,),) = rows(
                "UPDATE registry SET epoch = epoch + 1, holder = ?,"
                f" until = {self._database.clock} + ? RETURNING epoch",
                *(holder, float(seconds)),
            )
        self._epoch = int(epoch)
        return self._epoch

    def renew_ownership(self, seconds: float) -> None:
        """Renew the lease; a FencedError if somebody else owns the store now."""
        with self._database.write_transaction() as rows:
            kept = rows(
                f"UPDATE registry SET until = {self._database.clock} + ?"
                " WHERE epoch = ? RETURNING epoch",
                *(float(seconds), self._epoch),
            )
            if not kept:
                raise self._taken_over()

    def release_ownership(self) -> None:
        """Let others have the store at once; nothing if they have it already."""
        with self._database.write_transaction() as rows:
            rows("UPDATE registry SET until = 0 WHERE epoch = ?", self._epoch)

    def check_owner(self, rows: StatementRunner) -> None:
        """Inside a transaction: nobody takes the store over before it ends."""
        if self._epoch is None:
            owner = self.read_owner(rows, self._database.for_share)
            if owner is not None:
                raise FencedError(
                    self._database.name,
                    f"it is served by {owner.holder}, and cannot be written past it",
                    hint="use the address of that service (http://host:port) for the registry, "
                    "or stop the service",
                )
        else:
            ((epoch,),) = rows(f"SELECT epoch FROM registry{self._database.for_share}")
            if epoch != self._epoch:
                raise self._taken_over()

    def read_owner(self, rows: StatementRunner, lock: str = "") -> StoreOwner | None:
        """Who owns the store now, if anybody does."""
        ((holder, epoch, lease),) = rows(
            f"SELECT holder, epoch, until - {self._database.clock} FROM registry{lock}"
        )
        return StoreOwner(holder, epoch, lease) if lease > 0 else None

    def _taken_over(self) -> FencedError:
        return FencedError(
            self._database.name,
            "another service has taken over this store",
            detail=f"our epoch was {self._epoch}",
            hint="stop this service; the other one serves the same order",
        )


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
