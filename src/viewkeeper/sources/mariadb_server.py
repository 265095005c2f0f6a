"""What a MariaDB server must be like to be followed, and how `doctor` says it.

Every requirement is checked before anything is followed, and said with the statement that mends it.
The same checks, run one by one, are what `doctor` prints.
"""

from __future__ import annotations

from collections.abc import Mapping

from viewkeeper.errors import SchemaError
from viewkeeper.sources.mariadb_open import Connection, pairs

OLDEST = (10, 5)
_SETTINGS = {
    "log_bin": (
        "ON",
        "start the server with --log-bin=binlog --server-id=1 (in its configuration)",
    ),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = ROW"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = FULL"),
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = FULL"),
}


def variables(connection: Connection) -> dict[str, str]:
    """The server's global variables, by their names."""
    return pairs(connection, "SHOW GLOBAL VARIABLES")


def version_of(text: str) -> tuple[int, int]:
    """
    >>> version_of("10.11.19-MariaDB-log")
    (10, 11)
    """
    major, minor, *_ = text.split(".")
    return int(major), int(minor.partition("-")[0])


def shortcomings(known: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """What is wrong with a server's settings: by setting, the sentence and what mends it."""
    found = {}
    version = known["version"]
    if "mariadb" not in version.lower() or version_of(version) < OLDEST:
        found["version"] = (
            f"version {version} is not MariaDB 10.5 or newer",
            "update the server; MySQL has no snapshots with a binlog position",
        )
    for name, (wanted, mend) in _SETTINGS.items():
        value = known.get(name, "")
        if value.upper() != wanted:
            found[name] = (f"{name} is {value or 'not known'}, not {wanted}", mend)
    return found


def require(connection: Connection, source: str) -> None:
    """A SchemaError that names everything that must be changed about the server."""
    wrong = shortcomings(variables(connection))
    if wrong:
        raise SchemaError(
            source,
            "its server cannot be followed as it is set up",
            detail="; ".join(text for text, _ in wrong.values()),
            hint="; ".join(mend for _, mend in wrong.values())
            + "; then end the sessions that are older than that",
        )
