"""The lock of a warehouse in object storage: an object that its holder renews.

It says who holds the warehouse, how often it was taken (the *epoch*), and how often this holder has
renewed it. All changes are by compare and swap, so that of two who want it one gets it. Who waits
watches the object on a clock of its own: no two clocks are compared. One that stays the same for
the length of a lease may be taken over.

A holder that was silent for that long need not know. So the lease is only politeness: what keeps a
*zombie* from committing is the journal, in which the new holder takes the number that the other one
would use next (`object_journal`). The lease tells it early: `confirm_held` renews what is older
than two seconds, and who has lost it finds out there. Time is counted from before a request.

A holder that gives the lease back after something failed does not know what is still under way; the
next one then begins as after a death.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from viewkeeper.errors import CorruptError, LockedError, RequestTroubleError, WarehouseError
from viewkeeper.storage.local_lock import LockHolder
from viewkeeper.storage.objects.object_client import ObjectClient
from viewkeeper.storage.storage_protocol import Clock

RENEW_SECONDS = 2.0
"""What is older is renewed before anything is committed."""

SILENT_SECONDS = 5.0
"""Who has had no answer for so long commits nothing more."""

SEEN_SECONDS = 60.0
"""A lease that was renewed within so many seconds by the storage's clock is shown as held."""

ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class _Content:
    """What the object says; without `is_held` nobody has the warehouse."""

    holder: LockHolder
    writer: str
    is_held: bool = True
    is_clean: bool = True

    def encode(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    @staticmethod
    def decode(data: bytes, where: str) -> _Content:
        try:
            facts: dict[str, Any] = json.loads(data)
            return _Content(**{**facts, "holder": LockHolder(**facts["holder"])})
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptError(
                f'warehouse object "{where}": this is no lock of a warehouse',
                detail=str(error)[:200],
                hint="if no process maintains the warehouse, remove the object and run again",
            ) from error


class ObjectLease:
    """The lease of a warehouse, held by this process."""

    def __init__(self, client: ObjectClient, key: str, where: str, steady: Clock) -> None:
        self._client = client
        self._key = key
        self._where = where
        self._steady = steady
        self._content = _Content(LockHolder(0, "", 0.0, ""), "")
        self._tag = ""
        self._renewed_at = 0.0
        self._lost: LockedError | None = None
        self.is_after_death = False
        self.predecessor: LockHolder | None = None

    @staticmethod
    def take_lease(
        client: ObjectClient,
        key: str,
        where: str,
        holder: LockHolder,
        writer: str,
        steady: Clock,
        over: object,
    ) -> ObjectLease:
        """Take the lease now, or say who has it; one whose tag still is `over` is taken over."""
        lease = ObjectLease(client, key, where, steady)
        for _ in range(ATTEMPTS):
            if lease._try_take(replace(holder, renewed=0), writer, over):
                return lease
        raise LockedError(
            f'warehouse "{where}": others want it at the same time',
            hint="run again: one of them has it by now",
        )

    @property
    def epoch(self) -> int:
        return self._content.holder.epoch

    def _try_take(self, holder: LockHolder, writer: str, over: object) -> bool:
        began = self._steady()
        try:
            data, tag = self._client.read_tagged(self._key)
        except FileNotFoundError:
            self._content = _Content(replace(holder, epoch=1), writer)
            try:
                self._tag = self._client.create(self._key, self._content.encode())
            except FileExistsError:
                return False
            self._renewed_at = began
            return True
        found = _Content.decode(data, self._where)
        if found.is_held and tag != over and not found.holder.is_gone():
            raise LockedError(
                f'warehouse "{self._where}": another process maintains it',
                detail=str(found.holder),
                hint=f"stop process {found.holder.pid} on {found.holder.host} first, or wait until "
                "it ends",
            ).seen_as(tag)
        self._content = _Content(replace(holder, epoch=found.holder.epoch + 1), writer)
        self.is_after_death = found.is_held or not found.is_clean
        self.predecessor = found.holder if self.is_after_death else None
        taken = self._client.replace(self._key, self._content.encode(), tag)
        self._tag, self._renewed_at = taken or "", began
        return taken is not None

    def confirm_held(self) -> None:
        """Be sure that it is still held; LockedError says who has it instead."""
        if self._lost is not None:
            raise self._lost
        age = self._steady() - self._renewed_at
        if age <= RENEW_SECONDS:
            return
        try:
            self.renew_lease()
        except RequestTroubleError:
            if age > SILENT_SECONDS:
                raise

    def renew_lease(self) -> None:
        """Change the object, for those who wait; a LockedError if somebody else has it."""
        if self._lost is not None or not self._content.is_held:
            return
        began = self._steady()
        holder = self._content.holder
        renewed = replace(self._content, holder=replace(holder, renewed=holder.renewed + 1))
        tag = self._client.replace(self._key, renewed.encode(), self._tag)
        if tag is None:
            self._settle_other(began)
        else:
            self._content, self._tag, self._renewed_at = renewed, tag, began

    def _settle_other(self, began: float) -> None:
        """The object is not what it was: another thread has renewed it, or another process."""
        try:
            data, tag = self._client.read_tagged(self._key)
            found = _Content.decode(data, self._where)
        except FileNotFoundError:
            found = None
        if found is not None and found.is_held and found.writer == self._content.writer:
            self._content, self._tag, self._renewed_at = found, tag, began
            return
        self._lost = LockedError(
            f'warehouse "{self._where}": another process has taken it over',
            detail=f"now {found.holder}, epoch {found.holder.epoch}" if found else "it was removed",
            hint="nothing more is committed here: leave it to the other process, or stop that one "
            "and run again; never remove the object while a process runs",
        )
        raise self._lost

    def release_lock(self, *, is_clean: bool = True) -> None:
        """Give the lease back; one that cannot be given back ends by itself."""
        if self._lost is not None or not self._content.is_held:
            return
        left = replace(self._content, is_held=False, is_clean=is_clean)
        with suppress(WarehouseError):
            tag = self._client.replace(self._key, left.encode(), self._tag)
            if tag is None:
                self._settle_other(self._steady())
                tag = self._client.replace(self._key, left.encode(), self._tag)
            self._tag = tag or ""
        self._content = left


def read_holder(client: ObjectClient, key: str, where: str, now: float) -> LockHolder | None:
    """Who holds a warehouse, as far as its lease tells; None if it was not renewed of late."""
    facts = client.find_facts(key)
    if facts is None or now - facts.changed_at > SEEN_SECONDS:
        return None
    with suppress(FileNotFoundError, CorruptError):
        found = _Content.decode(client.read(key), where)
        if found.is_held and not found.holder.is_gone():
            return found.holder
    return None
