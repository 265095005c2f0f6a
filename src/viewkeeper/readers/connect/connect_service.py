"""A Spark Connect endpoint over the views of a warehouse, for as long as a block lasts.

A Spark session of its own has Spark's Connect server inside, at a port of this machine that asks
for a secret which only this process knows; the proxy listens where clients come. The warehouse is
only read: no lock is taken, and the maintainer, if one runs, is another process.

On a loopback address nobody needs a token, unless one is set. Any other address needs one, and a
certificate, because clients send tokens over TLS alone.
"""

from __future__ import annotations

import os
import secrets
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.spark.jvm_launch import has_java_ended, start_error
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.errors import ProjectError, SparkUnavailableError, require_libraries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOST, PORT = "127.0.0.1", 15002
REQUESTS_MAX = 64
"""So many answers are given at a time; others wait."""
STOP_SECONDS, LOOK_SECONDS = 5.0, 1.0
LIBRARIES = ("grpc", "grpc_status", "google.rpc", "zstandard")
SERVICE_CLASS = "org.apache.spark.sql.connect.service.SparkConnectService"


@dataclass(frozen=True, slots=True)
class ConnectAddress:
    """Where clients come, what they must know, and by which certificate they know us."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)
    certificate: tuple[Path, Path] | None = None
    """The files of the certificate and of its key."""

    @property
    def place(self) -> str:
        """The address as gRPC has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL for clients on this machine; the token itself is theirs to put in. Without TLS
        they send it to the name localhost only."""
        words = ["use_ssl=true"] if self.certificate is not None else []
        words += ["token=TOKEN"] if self.token is not None else []
        is_named = self.token is not None and self.certificate is None
        place = f"localhost:{self.port}" if is_named else self.place
        return f"sc://{place}/;{';'.join(words)}" if words else f"sc://{place}"


class ConnectService:
    """An endpoint that clients can use."""

    def __init__(self, address: ConnectAddress, session: SparkSession) -> None:
        self.address = address
        self._session = session

    def serve_until(self, stop: threading.Event) -> None:
        """Wait until somebody wants the end; SparkUnavailableError if Spark ends before."""
        while not stop.wait(LOOK_SECONDS):
            if has_java_ended(self._session):
                raise SparkUnavailableError(
                    "Spark's process has ended",
                    hint="if a query took too much memory, set `spark: {memory: 4g}` in "
                    "viewkeeper.yml; then start `viewkeeper serve` again",
                )


@contextmanager
def serving_connect(settings: Settings, address: ConnectAddress) -> Iterator[ConnectService]:
    """Serve the views of a project. The port is taken before Spark is started, which is slow."""
    require_libraries("Spark Connect", "connect", LIBRARIES)
    # The library writes what it also raises.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    import grpc

    from viewkeeper.readers.connect.connect_proxy import SERVER_OPTIONS

    with ThreadPoolExecutor(REQUESTS_MAX, "viewkeeper-connect") as threads:
        server = grpc.server(threads, options=SERVER_OPTIONS)
        try:
            bound = replace(address, port=_open_port(server, address))
            with _answering_requests(server, settings, address.token) as session:
                yield ConnectService(bound, session)
        finally:
            server.stop(None).wait()


@contextmanager
def _answering_requests(
    server: Any, settings: Settings, token: str | None
) -> Iterator[SparkSession]:
    """Let a server answer by a Spark session of its own, which is given."""
    import grpc

    from viewkeeper.readers.connect.connect_proxy import OPTIONS, ConnectProxy, ConnectTokens
    from viewkeeper.readers.connect.pinned_views import PinnedViews

    secret = secrets.token_hex(32)
    with (
        _running_backend(settings, secret) as (handle, port),
        grpc.insecure_channel(f"127.0.0.1:{port}", OPTIONS) as channel,
    ):
        session = handle.get_session()
        views = PinnedViews(settings.warehouse.absolute(), handle)
        proxy = ConnectProxy(channel, session, views, ConnectTokens(token, secret))
        server.add_generic_rpc_handlers((proxy,))
        server.start()
        try:
            yield session
        finally:
            server.stop(STOP_SECONDS).wait()


@contextmanager
def _running_backend(settings: Settings, secret: str) -> Iterator[tuple[SparkHandle, int]]:
    """A session with Spark's Connect server inside; the port of that."""
    from py4j.protocol import Py4JError

    handle = SparkHandle(replace(settings.spark, config=_session_config(settings, secret)))
    try:
        session = handle.get_session()
        if handle.is_given:
            raise SparkUnavailableError(
                "Spark Connect needs a session of its own, and this program has one already",
                hint="use a process of its own: `viewkeeper serve`",
            )
        # What goes wrong is said to the client whose query it was.
        session.sparkContext.setLogLevel("OFF")
        jvm: Any = session._jvm
        service = getattr(jvm, SERVICE_CLASS)
        try:
            service.start(session.sparkContext._jsc.sc())
            port = int(getattr(getattr(jvm, f"{SERVICE_CLASS}$"), "MODULE$").localPort())
        except Py4JError as error:
            raise start_error(error) from error
        yield handle, port
        service.stop(jvm.scala.Option.apply(None), jvm.scala.Option.apply(None))
    finally:
        handle.stop_session()


def _session_config(settings: Settings, secret: str) -> dict[str, str]:
    return {
        **settings.spark.config,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.authenticate.token": secret,
        # Traces tell of this machine, and nobody mends a query by them.
        "spark.sql.connect.serverStacktrace.enabled": "false",
        "spark.sql.pyspark.jvmStacktrace.enabled": "false",
        # The proxy reads plans.
        "spark.connect.session.planCompression.threshold": "-1",
    }


def _open_port(server: Any, address: ConnectAddress) -> int:
    """Let a server listen; the port that it got."""
    import grpc

    try:
        if address.certificate is None:
            return int(server.add_insecure_port(address.place))
        credentials = grpc.ssl_server_credentials([_read_certificate(*address.certificate)])
        return int(server.add_secure_port(address.place, credentials))
    except RuntimeError:
        raise ProjectError(
            f"cannot listen at {address.place}",
            detail="the port is taken, or the address is none of this machine",
            hint="choose another one: viewkeeper serve HOST:PORT",
        ) from None
    except OSError as error:
        raise ProjectError(
            "the certificate cannot be read",
            detail=str(error),
            hint="name files in PEM that this user may read: --certificate FILE --key FILE",
        ) from None


def _read_certificate(certificate: Path, key: Path) -> tuple[bytes, bytes]:
    """A key and its certificate as gRPC wants them. What is wrong with them it would not say."""
    try:
        # Without a password one would be asked for at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise ProjectError(
            "the certificate cannot be used",
            detail=f"{certificate} and {key}: {error.reason or error}",
            hint="both are PEM, the key is without a password, and belongs to the certificate",
        ) from None
    return key.read_bytes(), certificate.read_bytes()
