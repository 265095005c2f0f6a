"""Which registry an address names: a SQLite file, a PostgreSQL database, or a service.

    registry.db, sqlite:///data/registry.db      a file, relative to a folder
    postgresql://user@host/fleet?schema=orders   tables in a schema
    http://host:8765                             `viewkeeper registry serve`

`${NAME}` in an address or a token stands for an environment variable, so that no secret has to be
written down. A driver is imported when an address needs it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, unquote

from viewkeeper.errors import ProjectError, RegistryError
from viewkeeper.order.registry_protocol import Registry
from viewkeeper.order.service.http_registry import PATIENCE_SECONDS, HttpRegistry
from viewkeeper.order.store.sqlite_store import SqliteStore
from viewkeeper.order.store.stored_registry import StoredRegistry

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def open_registry(
    url: str,
    folder: Path | None = None,
    token: str | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
    secret: str | None = None,
    ca: str | None = None,
) -> Registry:
    """The registry at an address; nothing is connected yet.

    The rest is for services: the token that is asked for, how long one that does not answer is
    asked again, the secret of the member who asks, and a file of certificates to trust.
    """
    if not is_service(url):
        return open_store(url, folder)
    trusted = _path_in(resolve_variables(ca), folder) if ca else None
    shown = resolve_variables(token) if token else None
    return HttpRegistry(
        resolve_variables(url, _quote_value), shown, patience_seconds, secret, trusted
    )


def is_service(url: str) -> bool:
    """Whether an address is that of a service, which wants a secret of every member."""
    return url.partition("://")[0] in ("http", "https")


def open_store(url: str, folder: Path | None = None) -> StoredRegistry:
    """The store at an address, to be used directly or served."""
    kind, separator, rest = url.partition("://")
    if not separator:
        return StoredRegistry(SqliteStore(_path_in(resolve_variables(url), folder)))
    if kind == "sqlite":
        path = unquote(resolve_variables(rest.removeprefix("/")))
        return StoredRegistry(SqliteStore(_path_in(path, folder)))
    if kind in ("postgresql", "postgres"):
        return _open_postgres(resolve_variables(url, _quote_value))
    raise RegistryError(
        f"{kind}://...",
        "there is no such kind of registry",
        hint="use sqlite:///path, postgresql://user@host/database or http://host:port",
    )


def resolve_variables(text: str, spelled: Callable[[str], str] = str) -> str:
    """The text with the environment variables that it names.

    >>> os.environ["NAME_OF_A_TEST"] = "a/b"
    >>> resolve_variables("x${NAME_OF_A_TEST}")
    'xa/b'
    >>> resolve_variables("x${NAME_OF_A_TEST}", _quote_value)
    'xa%2Fb'
    """

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match.group(1))
        if found is None:
            raise ProjectError(
                f"registry: the environment variable {match.group(1)} is not set",
                hint=f"export {match.group(1)}=... before starting viewkeeper",
            )
        return spelled(found)

    return _REFERENCE.sub(value, text)


def _quote_value(value: str) -> str:
    return quote(value, safe="")


def _path_in(text: str, folder: Path | None) -> Path:
    return (folder or Path()) / text


def _open_postgres(url: str) -> StoredRegistry:
    try:
        from viewkeeper.order.store.postgres_store import PostgresStore
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("viewkeeper"):
            raise
        raise RegistryError(
            "postgresql://...",
            "the driver of PostgreSQL is not installed",
            hint="pip install 'viewkeeper[postgres]'",
        ) from error
    return StoredRegistry(PostgresStore(url))
