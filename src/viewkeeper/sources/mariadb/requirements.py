"""What a MariaDB server must be like to be followed.

Every requirement is checked before anything is followed, and said with the statement that mends it.
The same checks, one by one, are part of what `doctor` prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from viewkeeper.errors import SchemaError
from viewkeeper.sources.mariadb.server_connection import Connection, fetch_pairs, fetch_texts

_OLDEST = (10, 5)
_SETTINGS = {
    "log_bin": (
        "ON",
        "start the server with log_bin=binlog and server_id=1 in its configuration",
    ),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = ROW"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = FULL"),
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = FULL"),
}


def read_variables(connection: Connection) -> dict[str, str]:
    """The server's global variables, by their names."""
    return fetch_pairs(connection, "SHOW GLOBAL VARIABLES")


def version_of(text: str) -> tuple[int, int]:
    """
    >>> version_of("10.11.19-MariaDB-log")
    (10, 11)
    """
    major, minor, *_ = text.split(".")
    return int(major), int(minor.partition("-")[0])


def find_version_shortcoming(known: Mapping[str, str]) -> tuple[str, str] | None:
    """What is wrong with the version, and what mends it."""
    version = known["version"]
    if "mariadb" in version.lower() and version_of(version) >= _OLDEST:
        return None
    return (
        f"version {version} is not MariaDB 10.5 or newer",
        "update the server; MySQL has no snapshots that know their place in the binlog",
    )


def find_shortcomings(known: Mapping[str, str]) -> dict[str, tuple[str, str] | None]:
    """By setting: what is wrong with it and what mends it, or None."""
    found: dict[str, tuple[str, str] | None] = {"version": find_version_shortcoming(known)}
    for name, (wanted, mend) in _SETTINGS.items():
        value = known.get(name, "")
        is_wrong = value.upper() != wanted
        found[name] = (
            (f"{name} is {value or 'not known'}, not {wanted}", mend) if is_wrong else None
        )
    if known.get("binlog_storage_engine"):
        found["log_bin"] = (
            f"its binlog is kept by {known['binlog_storage_engine']}, whose places are not known",
            "remove binlog_storage_engine from the server's configuration and restart it",
        )
    return found


def find_unlogged(connection: Connection, databases: Iterable[str]) -> list[str]:
    """Those of some databases whose changes the server does not log."""
    status = fetch_texts(connection, "SHOW MASTER STATUS")
    if not status:
        return []
    only, never = (set(filter(None, names.split(","))) for names in status[0][2:4])
    return sorted(name for name in set(databases) if name in never or (only and name not in only))


def require_followable(connection: Connection, source: str) -> None:
    """A SchemaError that names everything that must be changed about the server."""
    wrong = [found for found in find_shortcomings(read_variables(connection)).values() if found]
    if wrong:
        raise SchemaError(
            source,
            "its server cannot be followed as it is set up",
            detail="; ".join(text for text, _ in wrong),
            hint="; ".join(mend for _, mend in wrong)
            + "; write it into the server's configuration too, and end the sessions that are "
            "older than that",
        )


def require_logged(connection: Connection, source: str, databases: Iterable[str]) -> None:
    missing = find_unlogged(connection, databases)
    if missing:
        raise SchemaError(
            source,
            f'changes of the database "{missing[0]}" are not logged',
            detail="binlog_do_db or binlog_ignore_db of the server leaves it out",
            hint="remove these options from the server's configuration and restart it",
        )
