"""Who may hold a connection to a service, and for how long: strangers cannot shut members out.

A connection goes through three stages. While its request is *read* it costs little and is worth
little: it must be complete within seconds, one address has only so many, and where there are too
many, the oldest make room for the newest. A member's request is complete at once, so it is never
the oldest for long, however many connections others leave half open. Only a request that is whole
and has the right token gets one of the places for *work*. The answer must be *taken* within seconds
too.

Cutting off means shutting the socket down: the thread that waits for it wakes up and ends.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

SWEEP_SECONDS = 0.1


class Stage(Enum):
    """What a connection is waiting for."""

    READ = "a request of anybody"
    TRUSTED = "the rest of a request with the right token"
    WORK = "an answer"
    TAKEN = "a client that takes its answer"
    CUT = "nothing any more"


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections there may be, and how long each stage may take."""

    reading: int = 256
    reading_per_address: int = 64
    working: int = 256
    working_per_address: int = 128
    reading_seconds: float = 10.0
    answer_seconds: float = 30.0


@dataclass(slots=True, eq=False)
class _Visit:
    """One connection."""

    connection: socket.socket
    address: str
    stage: Stage = Stage.READ
    since: float = field(default_factory=time.monotonic)


class Gate:
    """All connections of a service; used by the thread that accepts and by those that answer."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._visits: dict[int, _Visit] = {}
        """By the identity of the socket, in the order in which they came."""
        self._lock = threading.Lock()
        self._swept = 0.0

    def enter(self, connection: socket.socket, host: str) -> bool:
        """Begin to read a request; whether there is room for it, made if need be."""
        with self._lock:
            if len(self._visits) >= 2 * (self.limits.reading + self.limits.working):
                return False
            address = neighbourhood(host)
            near = [visit for visit in self._reading() if visit.address == address]
            if len(near) >= self.limits.reading_per_address:
                _cut_off(_first(near))
            elif len(reading := self._reading()) >= self.limits.reading:
                _cut_off(_first(reading))
            self._visits[id(connection)] = _Visit(connection, address)
            return True

    def trust(self, connection: socket.socket) -> None:
        """Its token was right: others go first, where somebody has to."""
        with self._lock:
            self._move(connection, Stage.READ, Stage.TRUSTED)

    def work(self, connection: socket.socket) -> bool:
        """Its request is read; whether there is a place to work on it."""
        with self._lock:
            working = Counter(v.address for v in self._visits.values() if v.stage is Stage.WORK)
            address = self._visits[id(connection)].address
            if (
                working.total() >= self.limits.working
                or working[address] >= self.limits.working_per_address
            ):
                return False
            self._move(connection, Stage.TRUSTED, Stage.WORK)
            return True

    def answer(self, connection: socket.socket) -> None:
        """Its answer is being sent."""
        with self._lock:
            for stage in (Stage.READ, Stage.TRUSTED, Stage.WORK):
                self._move(connection, stage, Stage.TAKEN)

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._visits.pop(id(connection), None)

    def sweep(self) -> None:
        """Cut off whoever took too long; called all the time."""
        now = time.monotonic()
        if now - self._swept < SWEEP_SECONDS:
            return
        self._swept = now
        with self._lock:
            for visit in self._visits.values():
                if now - visit.since > self._seconds(visit.stage):
                    _cut_off(visit)

    def make_room(self) -> None:
        """The system has no room for another connection: the oldest that is read goes."""
        with self._lock:
            if reading := self._reading():
                _cut_off(_first(reading))

    def close(self) -> None:
        """Cut off whoever has not sent a whole request."""
        with self._lock:
            for visit in self._reading():
                _cut_off(visit)

    def _seconds(self, stage: Stage) -> float:
        if stage in (Stage.READ, Stage.TRUSTED):
            return self.limits.reading_seconds
        return self.limits.answer_seconds if stage is Stage.TAKEN else float("inf")

    def _reading(self) -> list[_Visit]:
        return [v for v in self._visits.values() if v.stage in (Stage.READ, Stage.TRUSTED)]

    def _move(self, connection: socket.socket, before: Stage, after: Stage) -> None:
        visit = self._visits[id(connection)]
        if visit.stage is before:
            visit.stage = after
            if after is not Stage.TRUSTED:
                visit.since = time.monotonic()


def neighbourhood(host: str) -> str:
    """Addresses that one machine can have as many of as it likes count as one.

    >>> neighbourhood("192.0.2.7"), neighbourhood("2001:db8:1:2:3:4:5:6")
    ('192.0.2.7', '2001:db8:1:2::/64')
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def _first(visits: list[_Visit]) -> _Visit:
    """The one to go: the oldest, and strangers first."""
    return min(visits, key=lambda visit: (visit.stage is Stage.TRUSTED, visit.since))


def _cut_off(visit: _Visit) -> None:
    visit.stage = Stage.CUT
    with suppress(OSError):
        # Of a TLS connection only the socket below is shut down: its reader may be in the middle.
        socket.socket.shutdown(visit.connection, socket.SHUT_RDWR)
