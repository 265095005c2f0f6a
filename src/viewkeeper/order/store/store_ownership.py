"""Who may write the store of a registry.

A store is used by members directly, or it is owned by one service. Taking ownership gives a new
epoch; every transaction that writes compares the epoch, so a service that was taken over while it
slept cannot write any more, and neither can members that go past the service. The lease, by the
database's clock, only keeps a second service from taking over while the first one lives.
"""

from __future__ import annotations

from collections.abc import Callable

from viewkeeper.errors import FencedError
from viewkeeper.order.registry_protocol import StoreOwner
from viewkeeper.order.store.store_database import StatementRunner, StoreDatabase


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
