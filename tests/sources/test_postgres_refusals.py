"""Why a server does not let us in, whatever language it speaks.

The server is one that only pretends: it refuses everybody, in German. What is meant is in the state
of its refusal.
"""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from viewkeeper.errors import SourceAwayError
from viewkeeper.sources.postgres import connection_state
from viewkeeper.sources.postgres.connection_state import read_connection_state
from viewkeeper.sources.postgres.postgres_server import PostgresServer
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.testing.private_servers import PrivatePostgres

pytest_plugins = ("tests.servers",)

_SSL_REQUEST = 80877103
_GSS_REQUEST = 80877104


@contextmanager
def refusing(state: str, text: str) -> Iterator[int]:
    """A server at a port that refuses with this state and text."""
    fields = b"SFATAL\0VFATAL\0" + f"C{state}\0M{text}\0".encode() + b"\0"
    error = b"E" + (len(fields) + 4).to_bytes(4, "big") + fields
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    client.settimeout(10)
                    while int.from_bytes(client.recv(1024)[4:8], "big") in (
                        _SSL_REQUEST,
                        _GSS_REQUEST,
                    ):
                        client.sendall(b"N")
                    client.sendall(error)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


@pytest.mark.parametrize(
    ("state", "text", "meant"),
    [
        ("28P01", "Passwort-Authentifizierung fehlgeschlagen", "wrong password, or no such user"),
        ("28000", "kein pg_hba.conf-Eintrag", "it does not let us in"),
        ("3D000", "Datenbank »x« existiert nicht", "the database does not exist"),
        ("53300", "zu viele Verbindungen", "it takes no more connections"),
        ("42501", "keine Berechtigung", "the role may not connect to the database"),
    ],
)
def test_a_refusal_is_known_by_its_state(state: str, text: str, meant: str) -> None:
    with refusing(state, text) as port:
        url = f"postgresql://keeper:hidden@127.0.0.1:{port}/x?sslmode=disable"
        server = PostgresServer(SourceSettings("shop", "postgres", {"url": url}, "."))
        with pytest.raises(SourceAwayError, match=meant) as caught:
            server.open_connection()
    assert text in str(caught.value.detail)
    assert "hidden" not in str(caught.value)


def test_who_may_not_connect_is_named_without_a_name_in_the_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGUSER", "carol")
    with refusing("42501", "permission denied") as port:
        url = f"postgresql://127.0.0.1:{port}/x?sslmode=disable"
        server = PostgresServer(SourceSettings("shop", "postgres", {"url": url}, "."))
        with pytest.raises(SourceAwayError) as caught:
            server.open_connection()
    assert caught.value.hint == 'GRANT CONNECT ON DATABASE "x" TO "carol";'


def test_a_refusal_is_known_with_many_open_files() -> None:
    """More than `select` can number: the next connection has a number beyond them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        port = opened.enter_context(refusing("28P01", "Passwort-Authentifizierung fehlgeschlagen"))
        while opened.enter_context(open("/dev/null")).fileno() <= 1024:
            pass
        assert read_connection_state(_conninfo(port), 10) == "28P01"


@pytest.mark.parametrize(
    "names", [(), ("libpq.so.5 (deleted)",), ("libpq.so.5.16", "libpq-e9b5c9ac.so.5.18")]
)
def test_a_library_that_is_not_known_for_sure_is_not_used(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its file was replaced while we run, or there are two: what one made is not the other's."""
    folder = tmp_path / "psycopg_binary.libs"
    monkeypatch.setattr(connection_state, "MAPS", write_maps(tmp_path, folder, names))
    with refusing("28P01", "Passwort-Authentifizierung fehlgeschlagen") as port:
        assert read_connection_state(_conninfo(port), 10) == ""


def test_what_is_beside_the_drivers_library_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Memory without a name, and another library: the system's own, say, which another program in
    this process has loaded."""
    maps = write_maps(tmp_path, tmp_path / "lib", ("libpq.so.5.15",))
    mine = connection_state.MAPS.read_text().replace("\n", "\n7f40-7f41 rw-p 00000000 00:00 0 \n")
    maps.write_text(mine + maps.read_text())
    monkeypatch.setattr(connection_state, "MAPS", maps)
    with refusing("28P01", "Passwort-Authentifizierung fehlgeschlagen") as port:
        assert read_connection_state(_conninfo(port), 10) == "28P01"


def write_maps(folder: Path, libraries: Path, names: tuple[str, ...]) -> Path:
    """What the system says of a process that has these libraries."""
    lines = [f"7f00-7f01 r-xp 00000000 fe:00 42 {libraries / name}" for name in names]
    maps = folder / "maps"
    maps.write_text("\n".join([*lines, "7fff-8000 rw-p 00000000 00:00 0 [stack]", ""]))
    return maps


def _conninfo(port: int) -> str:
    return f"host=127.0.0.1 port={port} user=keeper dbname=x sslmode=disable gssencmode=disable"


def test_a_real_server_that_misses_the_database(postgres_server: PrivatePostgres) -> None:
    settings = SourceSettings("shop", "postgres", {"url": postgres_server.url_of("missing")}, ".")
    with pytest.raises(SourceAwayError, match="the database does not exist"):
        PostgresServer(settings).open_connection()
