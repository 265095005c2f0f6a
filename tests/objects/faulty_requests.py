"""Requests that fail: before they are carried out, after it, or by the death of who sent them.

`FaultyRequests` stands between a storage and the service. A `Chance` says what happens to the next
request, from a seed or from a number.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import pytest

from viewkeeper.errors import RequestTroubleError
from viewkeeper.storage.objects import object_storage
from viewkeeper.storage.objects.object_address import ObjectAddress
from viewkeeper.storage.objects.object_requests import (
    ObjectFacts,
    ObjectRequests,
    ObstoreRequests,
)

T = TypeVar("T")

Fate = Literal["fine", "refused", "lost", "dies before", "dies after"]
Chance = Callable[[str], Fate]


class DeathError(BaseException):
    """The process ends here."""


def trouble(what: str) -> RequestTroubleError:
    return RequestTroubleError(f"{what}: 503", hint="a test")


class FaultyRequests:
    """Requests of which some fail; counts all that are sent, by their kind."""

    def __init__(self, inner: ObjectRequests, chance: Chance) -> None:
        self._inner = inner
        self._chance = chance
        self.counts: Counter[str] = Counter()

    def _send(self, kind: str, request: Callable[[], T]) -> T:
        self.counts[kind] += 1
        fate = self._chance(kind)
        if fate == "refused":
            raise trouble(kind)
        if fate == "dies before":
            raise DeathError(kind)
        answer = request()
        if fate == "lost":
            raise trouble(kind)
        if fate == "dies after":
            raise DeathError(kind)
        return answer

    def get(self, key: str) -> tuple[bytes, ObjectFacts]:
        return self._send("get", lambda: self._inner.get(key))

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        return self._send("get", lambda: self._inner.get_range(key, start, stop))

    def get_end(self, key: str, count: int) -> tuple[bytes, int]:
        return self._send("get", lambda: self._inner.get_end(key, count))

    def head(self, key: str) -> ObjectFacts:
        return self._send("head", lambda: self._inner.head(key))

    def put(self, key: str, data: bytes | Path, expected: str | None, is_new: bool) -> str:
        return self._send("put", lambda: self._inner.put(key, data, expected, is_new))

    def list_all(self, prefix: str) -> Iterator[ObjectFacts]:
        return iter(self._send("list", lambda: [*self._inner.list_all(prefix)]))

    def list_folder(self, prefix: str) -> tuple[list[str], list[ObjectFacts]]:
        return self._send("list", lambda: self._inner.list_folder(prefix))

    def delete(self, keys: Sequence[str]) -> None:
        self._send("delete", lambda: self._inner.delete(keys))


class Faults:
    """What happens to the requests of storages that are opened from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chance: Chance = lambda _: "fine"
        self.opened: list[FaultyRequests] = []
        monkeypatch.setattr(object_storage, "open_requests", self._open)

    def _open(self, address: ObjectAddress) -> FaultyRequests:
        made = FaultyRequests(ObstoreRequests(address), lambda kind: self.chance(kind))
        self.opened.append(made)
        return made

    @property
    def counts(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for requests in self.opened:
            total.update(requests.counts)
        return total

    def end(self) -> None:
        """All is fine again."""
        self.chance = lambda _: "fine"

    def seed(self, generator: random.Random, share: float) -> None:
        """Refuse some requests, and lose the answers of others."""

        def choose(_: str) -> Fate:
            found = generator.random()
            return "refused" if found < share / 2 else "lost" if found < share else "fine"

        self.chance = choose

    def die_after(self, number: int) -> None:
        """Let the process die after its request with a number, the next one being 0; only requests
        that change something count, and it sends none afterwards."""
        left = [number]

        def choose(kind: str) -> Fate:
            if left[0] < 0:
                return "dies before"
            left[0] -= kind in ("put", "delete")
            return "dies after" if left[0] < 0 else "fine"

        self.chance = choose
