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
from viewkeeper.registry.http_order import PATIENCE_SECONDS, HttpRegistry
from viewkeeper.registry.order import Registry
from viewkeeper.registry.sqlite_order import SqliteRegistry
from viewkeeper.registry.stored_order import StoredRegistry

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def open_registry(
    url: str,
    folder: Path | None = None,
    token: str | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Registry:
    """The registry at an address; nothing is connected yet. `token` is what a service asks for,
    which is asked again for so long while it does not answer."""
    if url.partition("://")[0] in ("http", "https"):
        secret = resolve(token) if token else None
        return HttpRegistry(resolve(url, _quoted), secret, patience_seconds)
    return open_store(url, folder)


def open_store(url: str, folder: Path | None = None) -> StoredRegistry:
    """The store at an address, to be used directly or served."""
    kind, separator, rest = url.partition("://")
    if not separator:
        return SqliteRegistry(_path(resolve(url), folder))
    if kind == "sqlite":
        return SqliteRegistry(_path(unquote(resolve(rest.removeprefix("/"))), folder))
    if kind in ("postgresql", "postgres"):
        return _postgres(resolve(url, _quoted))
    raise RegistryError(
        f"{kind}://...",
        "there is no such kind of registry",
        hint="use sqlite:///path, postgresql://user@host/database or http://host:port",
    )


def resolve(text: str, spelled: Callable[[str], str] = str) -> str:
    """The text with the environment variables that it names.

    >>> os.environ["NAME_OF_A_TEST"] = "a/b"
    >>> resolve("x${NAME_OF_A_TEST}"), resolve("x${NAME_OF_A_TEST}", _quoted)
    ('xa/b', 'xa%2Fb')
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


def _quoted(value: str) -> str:
    return quote(value, safe="")


def _path(text: str, folder: Path | None) -> Path:
    return (folder or Path()) / text


def _postgres(url: str) -> StoredRegistry:
    try:
        from viewkeeper.registry.postgres_order import PostgresRegistry
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("viewkeeper"):
            raise
        raise RegistryError(
            "postgresql://...",
            "the driver of PostgreSQL is not installed",
            hint="pip install 'viewkeeper[postgres]'",
        ) from error
    return PostgresRegistry(url)
