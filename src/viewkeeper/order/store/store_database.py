"""The database of a registry's store: its tables, their format, and what every database offers.

A store is a handful of tables. Which database has them is known by one part only
(`sqlite_store`, `postgres_store`), which opens transactions; everything else is SQL that all of
them understand, with ? for values.

A store of an earlier format is brought up to date by whoever opens it; an earlier version of
Viewkeeper refuses it from then on.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from viewkeeper.errors import RegistryError, reload_hint

FORMAT = 3
_ADDED = (
    "CREATE TABLE IF NOT EXISTS registry_place (member TEXT PRIMARY KEY, opened BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS registry_secret (member TEXT PRIMARY KEY, hash TEXT NOT NULL)",
)
"""Where members are among the groups, and hashes of their secrets."""
UPGRADES = {
    2: (
        *_ADDED,
        "ALTER TABLE registry_group ADD COLUMN trimmed BIGINT NOT NULL DEFAULT 0",
        "UPDATE registry SET format = 3",
    )
}
"""What makes a store of an earlier format one of the next."""
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS registry (one INTEGER PRIMARY KEY CHECK (one = 1),"
    " format INTEGER NOT NULL, epoch BIGINT NOT NULL, holder TEXT NOT NULL,"
    " until DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS registry_environment (one INTEGER PRIMARY KEY CHECK (one = 1),"
    " regroupings BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS registry_group (name TEXT PRIMARY KEY,"
    " identity TEXT NOT NULL UNIQUE, last BIGINT NOT NULL, closed INTEGER NOT NULL,"
    " opened BIGINT NOT NULL, trimmed BIGINT NOT NULL DEFAULT 0)",
    *_ADDED,
    "CREATE TABLE IF NOT EXISTS registry_id (grp TEXT NOT NULL, n BIGINT NOT NULL,"
    " source TEXT NOT NULL, position BIGINT NOT NULL, PRIMARY KEY (grp, n),"
    " UNIQUE (grp, source, position))",
    "CREATE TABLE IF NOT EXISTS registry_reporter (grp TEXT NOT NULL, source TEXT NOT NULL,"
    " member TEXT NOT NULL, token BIGINT NOT NULL, until DOUBLE PRECISION NOT NULL,"
    " PRIMARY KEY (grp, source))",
    "CREATE TABLE IF NOT EXISTS registry_member (grp TEXT NOT NULL, member TEXT NOT NULL,"
    " facts TEXT NOT NULL, reached BIGINT NOT NULL, seen DOUBLE PRECISION NOT NULL,"
    " PRIMARY KEY (grp, member))",
    "CREATE INDEX IF NOT EXISTS registry_member_name ON registry_member (member)",
    "INSERT INTO registry_environment (one, regroupings) VALUES (1, 0) ON CONFLICT (one)"
    " DO NOTHING",
    f"INSERT INTO registry (one, format, epoch, holder, until) VALUES (1, {FORMAT}, 0, '', 0)"
    " ON CONFLICT (one) DO NOTHING",
)


class StatementRunner(Protocol):
    """Runs one statement, with ? for values, in the transaction that is open."""

    def __call__(self, statement: str, *values: object) -> list[tuple[Any, ...]]: ...


class StoreDatabase(Protocol):
    """The database that has a store; used by one thread at a time, others wait."""

    name: str
    """Where it is, without secrets."""
    clock: str
    """An SQL expression: the seconds since 1970, by the database's clock."""
    for_update: str
    for_share: str

    def write_transaction(self, create: bool = False) -> AbstractContextManager[StatementRunner]:
        """A transaction, durable when it ends; with `create`, the store is made if it is not."""

    def read_transaction(self) -> AbstractContextManager[StatementRunner]:
        """A transaction that sees one state."""

    def close(self) -> None:
        """Let go of connections."""


def is_old(rows: StatementRunner) -> bool:
    """Whether the store has a format that can be brought up to date."""
    return rows("SELECT format FROM registry")[0][0] in UPGRADES


def upgrade_format(rows: StatementRunner) -> None:
    """Inside a transaction that writes; nothing if somebody else has done it meanwhile."""
    while is_old(rows):
        for statement in UPGRADES[rows("SELECT format FROM registry")[0][0]]:
            rows(statement)


def check_format(registry: str, rows: StatementRunner) -> None:
    """Refuse a store that this version cannot use."""
    ((found,),) = rows("SELECT format FROM registry")
    if found != FORMAT:
        raise RegistryError(
            registry,
            f"its store has format {found}; this version of Viewkeeper knows {FORMAT}",
            hint="use the version of Viewkeeper that made it, or move the store away: members "
            f"then make a new one, and at each of them {reload_hint()}",
        )
