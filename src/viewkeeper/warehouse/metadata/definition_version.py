"""The versions of a view's definition: what its SQL was, and which tables it meant.

A version is the SQL together with what its names stood for when it was bound: for every table its
handle and all its columns. From that the definition can be bound again at any time, whatever the
tables are called by then, and without asking a source. A view begins with the version that the user
wrote; each schema change that it follows makes the next one.

Arrow schemas are kept as text, Arrow's own serialization, so that a schema comes back exactly as it
was: names with any characters, decimals with their scale, timestamps with or without a zone.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from viewkeeper.storage.sealed_json import Body
from viewkeeper.storage.typed_json import Readers, read_typed


def schema_text(schema: pa.Schema) -> str:
    """An Arrow schema as text, exactly."""
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


@lru_cache(maxsize=4096)
def schema_of(text: str) -> pa.Schema:
    """The inverse of `schema_text`; a ValueError if the text is not of a schema.

    The head names the schemas of every view, and is read again after each commit: what was read
    once is not decoded again.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (OSError, TypeError, pa.ArrowException) as error:
        raise ValueError(f"not a schema: {error}") from error


@dataclass(frozen=True, slots=True)
class DefinitionTable:
    """A table as the SQL names it, its handle, and the columns that it had; those of its key are
    not nullable."""

    source: str
    table: str
    handle: str
    fields: pa.Schema

    @property
    def unique_keys(self) -> frozenset[tuple[str, ...]]:
        """The columns that the source lets no two rows share."""
        key = tuple(field.name for field in self.fields if not field.nullable)
        return frozenset([key] if key else [])


@dataclass(frozen=True, slots=True)
class FollowedName:
    """What a table of a report, or a column of it, is called since: its SQL has the old name.

    `table` is a handle, `column` is called as the handle calls it, and empty for the table itself.
    """

    source: str
    table: str
    column: str
    now: str


@dataclass(frozen=True, slots=True)
class DefinitionVersion:
    """A definition from a ts on, why it came, and how its rows relate to those of the one before.

    `extent` is equal, subset, superset or any; `causes` are sentences. `columns` are the view's.
    `graph` is what a report was compiled into, as JSON; `behind` are the sources behind the views
    of the project that it reads, `parents` the tables of those views that its rows were made from:
    a view that was loaded again has another one. `followed` are the renames that a report followed
    by its handles alone.
    """

    text: str
    bound: tuple[DefinitionTable, ...]
    columns: tuple[str, ...]
    ts: int
    at: float
    causes: tuple[str, ...] = ()
    extent: str = "equal"
    graph: str | None = None
    behind: tuple[str, ...] = ()
    parents: Mapping[str, str] = field(default_factory=dict)
    followed: tuple[FollowedName, ...] = ()


def encode_versions(versions: Iterable[DefinitionVersion]) -> list[Body]:
    return [_encode_version(version) for version in versions]


def _encode_version(version: DefinitionVersion) -> Body:
    body: Body = {name: getattr(version, name) for name in version.__dataclass_fields__}
    bound = [[b.source, b.table, b.handle, schema_text(b.fields)] for b in version.bound]
    return {**body, "bound": bound, "followed": [asdict(each) for each in version.followed]}


def _decode_bound(facts: Any) -> DefinitionTable:
    source, table, handle, fields = read_typed(tuple[str, str, str, str], facts)
    return DefinitionTable(source, table, handle, schema_of(fields))


READERS: Readers = {pa.Schema: schema_of, DefinitionTable: _decode_bound}
"""How what a definition consists of is read from JSON."""
