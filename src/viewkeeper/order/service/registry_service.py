"""The service behind `viewkeeper registry serve`: a store that one process owns, over HTTP.

The service keeps nothing but the store, so a kill at any moment loses nothing that was answered. It
owns the store under an epoch: a second service is refused while the first lives, and the first
cannot write after the second took over. `http_server` bounds its connections and reads requests,
`service_calls` says who may ask what.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading

from viewkeeper.errors import RegistryAwayError, RegistryError
from viewkeeper.order.service.http_server import ConnectionLimits, RegistryServer, ServiceAccess
from viewkeeper.order.service.service_calls import ServiceCalls
from viewkeeper.order.store.stored_registry import StoredRegistry
from viewkeeper.storage import disk

LEASE_SECONDS = 15.0
OPEN = ServiceAccess()
"""Whoever reaches the address may use it, and nobody is its administrator."""
LIMITS = ConnectionLimits()


class RegistryService:
    """A store that is owned and served, from `start` to `stop`."""

    def __init__(
        self,
        store: StoredRegistry,
        address: tuple[str, int],
        access: ServiceAccess = OPEN,
        limits: ConnectionLimits = LIMITS,
    ) -> None:
        self._store = store
        self._calls = ServiceCalls(store)
        self._address = address
        self._access = access
        self._limits = limits
        self._server: RegistryServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        assert self._server is not None, "not started"
        host, port = self._server.server_address[:2]
        place = f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"
        return f"{'http' if self._server.tls is None else 'https'}://{place}"

    def start(self) -> None:
        """Own the store and answer; a FencedError if another service owns it."""
        tls = self._load_certificate()
        try:
            self._server = RegistryServer(
                self._address, self._calls, self._access, self._limits, tls
            )
        except (OSError, OverflowError) as error:
            host, port = self._address
            raise RegistryError(
                self._store.name,
                f"cannot listen at {host}:{port}",
                detail=str(error),
                hint="choose another address with --listen, or end what listens there",
            ) from error
        try:
            self._store.ownership.take_ownership(this_process(), LEASE_SECONDS, is_gone)
        except BaseException:
            self._server.server_close()
            raise
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,))
        self._thread.start()

    def _load_certificate(self) -> ssl.SSLContext | None:
        if self._access.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # Without a password of ours, the library would ask for one in the terminal.
            context.load_cert_chain(self._access.certificate, self._access.key, password="")
        except (OSError, ValueError) as error:
            raise RegistryError(
                self._store.name,
                "the certificate or its key cannot be used",
                detail=str(error),
                hint="--cert is a PEM file with the certificate and those behind it, --key one "
                "with its private key, not encrypted",
            ) from error
        return context

    def serve_until(self, stop: threading.Event) -> None:
        """Keep the store ours until `stop` is set; a FencedError if somebody took it over."""
        while not stop.wait(LEASE_SECONDS / 4):
            try:
                self._store.ownership.renew_ownership(LEASE_SECONDS)
            except RegistryAwayError:
                # The store may be back at the next turn; callers are told meanwhile.
                continue

    def stop(self) -> None:
        """Answer what was asked, then let go of address and store."""
        if self._server is None or self._thread is None:
            return
        self._calls.end_waits()
        self._server.shutdown()
        self._thread.join()
        self._server.gate.close()
        self._server.server_close()
        self._server = self._thread = None
        self._store.ownership.release_ownership()


def this_process() -> str:
    """Who we are to other services: they must be able to tell whether we still live."""
    return f"process {os.getpid()} on {_machine_name()}"


def is_gone(holder: str) -> bool:
    """Whether a holder is known to have died: a process of this machine that does not exist."""
    process, _, machine = holder.removeprefix("process ").partition(" on ")
    is_ours = machine == _machine_name() and process.isdecimal()
    return is_ours and not disk.is_alive(int(process))


def _machine_name() -> str:
    """The host; containers on one host may have one name, and number their processes apart."""
    try:
        numbering = os.readlink("/proc/self/ns/pid")
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()} ({numbering})"
