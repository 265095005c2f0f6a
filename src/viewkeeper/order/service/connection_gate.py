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


class ConnectionStage(Enum):
    """What a connection is waiting for."""

    READ = "a request of anybody"
    TRUSTED = "the rest of a request with the right token"
    WORK = "an answer"
    TAKEN = "a client that takes its answer"
    CUT = "nothing any more"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
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
    stage: ConnectionStage = ConnectionStage.READ
    since: float = field(default_factory=time.monotonic)


class ConnectionGate:
    """All connections of a service; used by the thread that accepts and by those that answer."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._visits: dict[int, _Visit] = {}
        """By the identity of the socket, in the order in which they came."""
        self._lock = threading.Lock()
        self._swept = 0.0

    def admit_connection(self, connection: socket.socket, host: str) -> bool:
        """Begin to read a request; whether there is room for it, made if need be."""
        with self._lock:
            if len(self._visits) >= 2 * (self.limits.reading + self.limits.working):
                return False
            address = network_of(host)
            near = [visit for visit in self._reading_visits() if visit.address == address]
            if len(near) >= self.limits.reading_per_address:
                _cut_off(_first_to_cut(near))
            elif len(reading := self._reading_visits()) >= self.limits.reading:
                _cut_off(_first_to_cut(reading))
            self._visits[id(connection)] = _Visit(connection, address)
            return True

    def trust_connection(self, connection: socket.socket) -> None:
        """Its token was right: others go first, where somebody has to."""
        with self._lock:
            self._move_stage(connection, ConnectionStage.READ, ConnectionStage.TRUSTED)

    def begin_work(self, connection: socket.socket) -> bool:
        """Its request is read; whether there is a place to work on it."""
        with self._lock:
            working = Counter(
                v.address for v in self._visits.values() if v.stage is ConnectionStage.WORK
            )
            address = self._visits[id(connection)].address
            if (
                working.total() >= self.limits.working
                or working[address] >= self.limits.working_per_address
            ):
                return False
            self._move_stage(connection, ConnectionStage.TRUSTED, ConnectionStage.WORK)
            return True

    def begin_answer(self, connection: socket.socket) -> None:
        """Its answer is being sent."""
        with self._lock:
            for stage in (ConnectionStage.READ, ConnectionStage.TRUSTED, ConnectionStage.WORK):
                self._move_stage(connection, stage, ConnectionStage.TAKEN)

    def drop_connection(self, connection: socket.socket) -> None:
        with self._lock:
            self._visits.pop(id(connection), None)

    def cut_off_slow(self) -> None:
        """Cut off visits that took too long; called all the time."""
        now = time.monotonic()
        if now - self._swept < SWEEP_SECONDS:
            return
        self._swept = now
        with self._lock:
            for visit in self._visits.values():
                if now - visit.since > self._stage_seconds(visit.stage):
                    _cut_off(visit)

    def make_room(self) -> None:
        """The system has no room for another connection: cut off the oldest that is read."""
        with self._lock:
            if reading := self._reading_visits():
                _cut_off(_first_to_cut(reading))

    def close(self) -> None:
        """Cut off all visits that have not sent a whole request."""
        with self._lock:
            for visit in self._reading_visits():
                _cut_off(visit)

    def _stage_seconds(self, stage: ConnectionStage) -> float:
        if stage in (ConnectionStage.READ, ConnectionStage.TRUSTED):
            return self.limits.reading_seconds
        return self.limits.answer_seconds if stage is ConnectionStage.TAKEN else float("inf")

    def _reading_visits(self) -> list[_Visit]:
        return [
            v
            for v in self._visits.values()
            if v.stage in (ConnectionStage.READ, ConnectionStage.TRUSTED)
        ]

    def _move_stage(
        self, connection: socket.socket, before: ConnectionStage, after: ConnectionStage
    ) -> None:
        visit = self._visits[id(connection)]
        if visit.stage is before:
            visit.stage = after
            if after is not ConnectionStage.TRUSTED:
                visit.since = time.monotonic()


def network_of(host: str) -> str:
    """Addresses that one machine can have as many of as it likes count as one.

    >>> network_of("192.0.2.7"), network_of("2001:db8:1:2:3:4:5:6")
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


def _first_to_cut(visits: list[_Visit]) -> _Visit:
    """The one to go: the oldest, and strangers first."""
    return min(visits, key=lambda visit: (visit.stage is ConnectionStage.TRUSTED, visit.since))


def _cut_off(visit: _Visit) -> None:
    visit.stage = ConnectionStage.CUT
    with suppress(OSError):
        # Of a TLS connection only the socket below is shut down: its reader may be in the middle.
        socket.socket.shutdown(visit.connection, socket.SHUT_RDWR)
