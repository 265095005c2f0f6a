"""The store of a registry: its tables, and who may write them.

A store is used by members directly, or it is owned by one service. Taking ownership gives a new
epoch; every transaction that writes compares the epoch, so a service that was taken over while it
slept cannot write any more, and neither can members that go past the service. The lease, by the
database's clock, only keeps a second service from taking over while the first one lives.

A store of an earlier format is brought up to date by whoever opens it; an earlier version of
Viewkeeper refuses it from then on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from viewkeeper.errors import FencedError, RegistryError, reload_hint
from viewkeeper.order.registry_protocol import StoreOwner

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


def nobody_is_gone(holder: str) -> bool:
    """What is known of a holder without looking: nothing."""
    return False


class OwnedStore(ABC):
    """A store and the epoch by which we write to it, if we own it."""

    _now: str
    """An SQL expression: the seconds since 1970, by the database's clock."""
    _for_update: str = ""
    _for_share: str = ""

    def __init__(self, name: str) -> None:
        self.name = name
        self._epoch: int | None = None

    @abstractmethod
    def _write_transaction(self, create: bool = False) -> AbstractContextManager[StatementRunner]:
        """A transaction, durable when it ends; with `create`, the store is made if it is not."""

    def take_ownership(
        self, holder: str, seconds: float, is_gone: Callable[[str], bool] = nobody_is_gone
    ) -> int:
        """Take the store for ourselves; the new epoch.

        A FencedError while the lease of another holder lasts, unless `is_gone` knows that it died.
        """
        with self._write_transaction(create=True) as rows:
            owner = self._read_owner(rows, self._for_update)
            if owner is not None and not is_gone(owner.holder):
                raise FencedError(
                    self.name,
                    f"it is served by {owner.holder}",
                    detail=f"its lease ends in {owner.lease:.0f} seconds unless it is renewed",
                    hint="stop that service first; if it is dead, wait until its lease has ended",
                )
            ((epoch,),) = rows(
                f"UPDATE registry SET epoch = epoch + 1, holder = ?, until = {self._now} + ?"
                " RETURNING epoch",
                *(holder, float(seconds)),
            )
        self._epoch = int(epoch)
        return self._epoch

    def renew_ownership(self, seconds: float) -> None:
        """Renew the lease; a FencedError if somebody else owns the store now."""
        with self._write_transaction() as rows:
            kept = rows(
                f"UPDATE registry SET until = {self._now} + ? WHERE epoch = ? RETURNING epoch",
                *(float(seconds), self._epoch),
            )
            if not kept:
                raise self._taken_over()

    def release_ownership(self) -> None:
        """Let others have the store at once; nothing if they have it already."""
        with self._write_transaction() as rows:
            rows("UPDATE registry SET until = 0 WHERE epoch = ?", self._epoch)

    def _check_owner(self, rows: StatementRunner) -> None:
        """Inside a transaction: nobody takes the store over before it ends."""
        if self._epoch is None:
            owner = self._read_owner(rows, self._for_share)
            if owner is not None:
                raise FencedError(
                    self.name,
                    f"it is served by {owner.holder}, and cannot be written past it",
                    hint="use the address of that service (http://host:port) for the registry, "
                    "or stop the service",
                )
        else:
            ((epoch,),) = rows(f"SELECT epoch FROM registry{self._for_share}")
            if epoch != self._epoch:
                raise self._taken_over()

    def _read_owner(self, rows: StatementRunner, lock: str = "") -> StoreOwner | None:
        """Who owns the store now, if anybody does."""
        ((holder, epoch, lease),) = rows(
            f"SELECT holder, epoch, until - {self._now} FROM registry{lock}"
        )
        return StoreOwner(holder, epoch, lease) if lease > 0 else None

    def _is_old(self, rows: StatementRunner) -> bool:
        """Whether the store has a format that can be brought up to date."""
        return rows("SELECT format FROM registry")[0][0] in UPGRADES

    def _upgrade_format(self, rows: StatementRunner) -> None:
        """Inside a transaction that writes; nothing if somebody else has done it meanwhile."""
        while self._is_old(rows):
            for statement in UPGRADES[rows("SELECT format FROM registry")[0][0]]:
                rows(statement)

    def _check_format(self, rows: StatementRunner) -> None:
        ((found,),) = rows("SELECT format FROM registry")
        if found != FORMAT:
            raise RegistryError(
                self.name,
                f"its store has format {found}; this version of Viewkeeper knows {FORMAT}",
                hint="use the version of Viewkeeper that made it, or move the store away: members "
                f"then make a new one, and at each of them {reload_hint()}",
            )

    def _taken_over(self) -> FencedError:
        return FencedError(
            self.name,
            "another service has taken over this store",
            detail=f"our epoch was {self._epoch}",
            hint="stop this service; the other one serves the same order",
        )
