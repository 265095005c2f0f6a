"""The kinds of sources, by the word that a project file uses for them.

A kind is imported when a source of it is opened, so that a project needs the drivers of its own
databases only; a driver that is missing fails with the line that installs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TypeAlias

import pyarrow as pa

from viewkeeper.errors import ProjectError, suggest_nearest
from viewkeeper.sources.settings import Option, SourceSettings, check_options
from viewkeeper.updates.source_protocol import Source
from viewkeeper.view.definition import CLOCK

Differ: TypeAlias = Callable[[Sequence[str], Sequence[str], pa.Schema], Iterator[pa.RecordBatch]]
"""Rows of the first Parquet files minus rows of the second: columns of the schema and `_count`."""

WAREHOUSE = "warehouse"
"""The kind of a source that is another project (`viewkeeper.upstream`)."""
_MARIADB_URL = "mariadb://viewkeeper:${MARIADB_PASSWORD}@db/crm?ssl_mode=verify-full"
_KINDS: Mapping[str, tuple[Option, ...]] = {
    "sqlite": (
        Option("path", "text", "shop.db", required=True),
        Option("busy_seconds", "number", "5"),
    ),
    "postgres": (
        Option("url", "text", "postgresql://viewkeeper:${PGPASSWORD}@db/shop", required=True),
        Option("capture", "text", "decoding", one_of=("decoding", "triggers")),
        Option("slot", "text", "viewkeeper_shop"),
        Option("publication", "text", "viewkeeper_shop"),
        Option("retention", "size", "10gb"),
        Option("delete_by_key", "list", "[public.orders]"),
        Option("statement_seconds", "number", "60"),
    ),
    "mariadb": (
        Option("url", "text", _MARIADB_URL, required=True),
        Option("server_id", "number", "4711"),
        Option("statement_seconds", "number", "60"),
    ),
    "files": (
        Option("path", "text", "exports", required=True),
        Option("format", "text", "csv", required=True, one_of=("csv", "json", "parquet")),
        Option("tables", "mapping", "{price: {columns: {sku: string}, key: [sku]}}"),
        Option("settle_seconds", "number", "1"),
        Option("allow_outside", "switch", "true"),
    ),
    "delta_lake": (
        Option("path", "text", "lake/events", required=True),
        Option("table", "text", "events"),
        Option("allow_outside", "switch", "true"),
    ),
    WAREHOUSE: (Option("path", "text", "../orders", required=True),),
    "clock": (Option("ahead_days", "number", "1000"),),
}

_GLOBAL = Option("global", "text", "company_crm")
"""What the source is called in all projects that read it; its own name if left out."""

OPTIONS: Mapping[str, tuple[Option, ...]] = {
    kind: (*options, _GLOBAL) for kind, options in _KINDS.items()
}
"""The options of each kind, beside `kind` itself."""

EXTRAS: Mapping[str, str] = {"postgres": "postgres", "mariadb": "mariadb"}
"""The kinds whose drivers come with an extra of the package."""


def open_source(
    settings: SourceSettings,
    reader: str,
    differ: Differ | None = None,
    now: Callable[[], float] | None = None,
) -> Source:
    """The source that the settings describe; nothing is connected yet.

    A warehouse is no database, and is opened by those who know warehouses. `reader` is how this
    warehouse is called among those who follow the source; `differ` takes large differences between
    states of folders; `now` is what the clock shows, in seconds since 1970.
    """
    assert settings.kind != WAREHOUSE
    try:
        module = import_module(f"viewkeeper.sources.{settings.kind}")
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(settings.kind)
        if extra is None or (error.name or "").startswith("viewkeeper"):
            raise
        raise ProjectError(
            f'source "{settings.name}": the driver for {settings.kind} is not installed',
            detail=str(error),
            hint=f"pip install 'viewkeeper[{extra}]'",
        ) from error
    also: Mapping[str, tuple[object, ...]] = {"files": (differ,), "clock": (now or time.time,)}
    source: Source = module.open_source(settings, reader, *also.get(settings.kind, ()))
    return source


def clock_settings(folder: str, home: str) -> SourceSettings:
    """The settings of the clock in a project that does not say otherwise."""
    return SourceSettings(CLOCK, "clock", {}, folder, home)


def is_clock(settings: SourceSettings) -> bool:
    """Whether a source is the clock."""
    return settings.kind == "clock"


def can_rest(settings: SourceSettings) -> bool:
    """Whether an open source that nobody asks holds nothing that others could wait for: no
    transaction, no slot, no session at a server, no lease."""
    return settings.kind in ("sqlite", "files", "delta_lake", "clock")


def can_merge_commits(settings: SourceSettings) -> bool:
    """Whether what the source reports as one transaction may be several commits."""
    merging = settings.kind in ("sqlite", "files", WAREHOUSE)
    return merging or settings.options.get("capture") == "triggers"


def index_quote_of(settings: SourceSettings) -> str | None:
    """The mark around names in the CREATE INDEX of the source; None if it has no indexes."""
    return {"mariadb": "`", "postgres": '"', "sqlite": '"'}.get(settings.kind)


def position_style_of(settings: SourceSettings) -> str:
    """How the source's own tools write the positions that we know as numbers."""
    if settings.kind == "postgres" and settings.options.get("capture") != "triggers":
        return "lsn"
    return "binlog" if settings.kind == "mariadb" else "number"


def position_text_of(style: str, position: int) -> str:
    """A position as people know it; of a binlog file its number, since its name is the server's.

    >>> position_text_of("lsn", 0x16B3748), position_text_of("number", 1234)
    ('0/16B3748', '1,234')
    >>> position_text_of("binlog", 17 << 40 | 328)
    '000017:328'
    """
    if style == "lsn":
        return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
    if style == "binlog":
        return f"{position >> 40:06d}:{position & (1 << 40) - 1}"
    return f"{position:,}"


def one_state_hint_of(settings: SourceSettings) -> str | None:
    """How to let us read several tables of the source in one state, where that can be mended."""
    if settings.kind != "sqlite":
        return None
    return "`PRAGMA journal_mode = WAL` lets us read all of them in one state"


def whole_rows_remedy(table: str) -> str:
    """How a table, given as its source writes it, logs whole rows instead of keys alone."""
    return f"ALTER TABLE {table} REPLICA IDENTITY FULL and take it off delete_by_key"


_OTHER_WORDS: Mapping[str, str] = {
    "mysql": "MySQL is not supported, MariaDB 10.5 or newer is: kind: mariadb",
    "postgresql": "write kind: postgres",
    "pg": "write kind: postgres",
    "csv": "write kind: files, format: csv",
    "json": "write kind: files, format: json",
    "parquet": "write kind: files, format: parquet",
    "delta": "write kind: delta_lake",
    "sqlite3": "write kind: sqlite",
}
"""What people write for a kind, and what they can have."""


def _clause_of_kind(kind: str) -> str:
    """
    >>> _clause_of_kind("Postgresql"), _clause_of_kind("sqlit")
    ('; write kind: postgres', '; did you mean "sqlite"?')
    """
    known = _OTHER_WORDS.get(kind.lower())
    return f"; {known}" if known else suggest_nearest(kind, OPTIONS)


def check_settings(settings: SourceSettings) -> None:
    """Refuse an unknown kind, an unknown or missing option, or a value of the wrong type."""
    if settings.kind not in OPTIONS:
        raise ProjectError(
            f'source "{settings.name}": unknown kind "{settings.kind}"',
            hint=f"known kinds: {', '.join(OPTIONS)}{_clause_of_kind(settings.kind)}",
        )
    check_options(settings, OPTIONS[settings.kind])
