"""The web server of a running maintainer: a thread with an event loop of its own.

The port is taken before anything else begins, so that a wrong address is an error at the start. The
address is of this machine unless another one is asked for, and then a token must be known. The
server ends with the run; pages that are open notice.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version

import uvicorn

from viewkeeper.engine.project import Project
from viewkeeper.engine.query.bounded_query import BoundedQueries
from viewkeeper.engine.report import Observer, ObserverGroup
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.errors import ProjectError
from viewkeeper.web.listen_address import ListenOption
from viewkeeper.web.project_metrics import make_registry
from viewkeeper.web.project_monitor import EventMemory, StatusReader
from viewkeeper.web.request_guard import RequestGuard
from viewkeeper.web.web_app import WebState, make_app

OPTION = ListenOption("--web", "127.0.0.1", 8484, "--web-token-file", "VIEWKEEPER_WEB_TOKEN")
START_SECONDS, STOP_SECONDS = 60.0, 5.0
REQUESTS_MAX = 200


@dataclass(frozen=True, slots=True)
class WebAddress:
    """Where the page is."""

    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"


def parse_address(text: str) -> WebAddress:
    """An address as `--web` takes it: HOST:PORT, HOST or PORT; nothing means the default.

    >>> parse_address(""), parse_address("9000").port, parse_address("[::1]:80").host
    (WebAddress(host='127.0.0.1', port=8484), 9000, '::1')
    """
    return WebAddress(*OPTION.split_address(text))


@dataclass(frozen=True, slots=True)
class WebSite:
    """A page that is being served: where it is, and what must hear of events for it."""

    address: WebAddress
    observer: Observer


@contextmanager
def serving_web(project: Project, address: WebAddress, token: str | None) -> Iterator[WebSite]:
    """Serve the page of a project for as long as the block lasts."""
    OPTION.require_secret(address.host, token)
    with open_listener(address) as listener:

        def settings_now() -> Settings:
            return project.settings

        memory, reader = EventMemory(), StatusReader(settings_now)
        registry, metrics = make_registry(lambda: reader.latest.status, version("viewkeeper"))
        queries = BoundedQueries(project.settings.warehouse, project.spark)
        state = WebState(settings_now, memory, reader, registry, queries, RequestGuard(token))
        bound = WebAddress(address.host, int(listener.getsockname()[1]))
        with reader.reading_status(), running_server(state, listener):
            yield WebSite(bound, ObserverGroup(memory, metrics))


def open_listener(address: WebAddress) -> socket.socket:
    """A socket that listens at an address."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            listener.listen(128)
        except BaseException:
            listener.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        raise ProjectError(
            f"--web: cannot listen at {address.host} port {address.port}",
            detail=str(error),
            hint="choose another one: --web HOST:PORT",
        ) from None
    return listener


@contextmanager
def running_server(state: WebState, listener: socket.socket) -> Iterator[None]:
    """Answer requests in a thread for as long as the block lasts."""
    config = uvicorn.Config(
        make_app(state),
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        server_header=False,
        limit_concurrency=REQUESTS_MAX,
        timeout_graceful_shutdown=1,
        proxy_headers=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, args=([listener],), name="viewkeeper-web", daemon=True
    )
    thread.start()
    try:
        end = time.monotonic() + START_SECONDS
        while not server.started and thread.is_alive() and time.monotonic() < end:
            time.sleep(0.01)
        if not server.started:
            raise ProjectError(
                f"the web server did not start within {START_SECONDS:g} seconds",
                hint="start again when the machine is less busy, or leave out --web",
            )
        yield
    finally:
        server.should_exit = True
        thread.join(STOP_SECONDS)
