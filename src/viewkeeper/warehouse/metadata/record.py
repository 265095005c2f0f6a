"""The commit record: what a batch did to each view, as data.

Writing `records/<n>.json` is the commit. Everything it names was synced before, and everything that
follows (Delta Lake logs, head) is redo that can be repeated from the record alone. A record names
only the views that it changes, each once, by one of seven changes.

A record may finish a plan (`plan` is its number) or none: compaction, stopping and dropping a view
are records of their own and may come while a plan is still open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from viewkeeper.errors import reload_hint
from viewkeeper.storage.sealed_json import (
    Body,
    corrupt_error,
    seal_body,
    translate_decode_errors,
    unseal_data,
)
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.typed_json import read_typed
from viewkeeper.warehouse.metadata.definition_version import (
    READERS,
    DefinitionVersion,
    encode_versions,
    schema_text,
)

_MEND = (
    f"restore the file from a backup; without one, drop the views, then {reload_hint()}: "
    "the batch was promised and cannot be guessed"
)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of signed rows; `path` is relative to the table's folder."""

    path: str
    size: int
    rows: int
    count_sum: int
    count_min: int
    count_max: int
    ts_min: int
    ts_max: int


@dataclass(frozen=True, slots=True)
class Create:
    """A view begins, with its initial load; `replaces` is the table of the view it takes over from.

    `distinct` says that the load has one row per tuple, which lets readers merge without a shuffle.
    `hidden` are columns that are stored and not shown: keys that the user did not ask for.
    `versions` are those of its definition, the one that was loaded last.
    """

    view: str
    table: str
    definition: str
    schema: pa.Schema
    ts: int
    positions: Mapping[str, int]
    files: tuple[DataFile, ...]
    distinct: bool = False
    replaces: str | None = None
    hidden: tuple[str, ...] = ()
    versions: tuple[DefinitionVersion, ...] = ()


@dataclass(frozen=True, slots=True)
class Advance:
    """A view moves to a ts, its mark; without files, nothing changed in it.

    `ahead` are all ts above the mark whose rows are in the view too: commits out of order. `exact`:
    every ts on the way has a state of its own; otherwise they share the one that is reached.
    """

    view: str
    ts: int
    positions: Mapping[str, int]
    files: tuple[DataFile, ...] = ()
    ahead: tuple[int, ...] = ()
    exact: bool = True

    def __post_init__(self) -> None:
        assert list(self.ahead) == sorted({*self.ahead}), "what is ahead is in ts order"
        assert not self.ahead or self.ahead[0] > self.ts, "what is ahead is above the mark"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The same rows in other files; a `horizon` says that everything up to it is now folded."""

    view: str
    files: tuple[DataFile, ...]
    removes: tuple[str, ...]
    horizon: int | None = None


@dataclass(frozen=True, slots=True)
class Redefine:
    """A view's definition becomes another one, with the rows repaired by these files.

    Without files the stored rows are right as they are, under the columns of `schema`: what is not
    among them any more is left out, what is new is NULL. `distinct`: no two stored rows became the
    same by that. A ts beyond the view's says that it has moved there, as one state.
    """

    view: str
    definition: str
    version: DefinitionVersion
    schema: pa.Schema
    ts: int
    positions: Mapping[str, int]
    files: tuple[DataFile, ...] = ()
    hidden: tuple[str, ...] = ()
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """A view stays where it is, for a reason that the user must act on."""

    view: str
    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """A stopped view is maintained again."""

    view: str


@dataclass(frozen=True, slots=True)
class Drop:
    """A view ends; its table is removed after the retention."""

    view: str
    table: str


ViewChange = Create | Advance | Rewrite | Redefine | Stop | Resume | Drop

_KINDS: dict[str, type[ViewChange]] = {
    "create": Create,
    "advance": Advance,
    "rewrite": Rewrite,
    "redefine": Redefine,
    "stop": Stop,
    "resume": Resume,
    "drop": Drop,
}


_NAMES = {change: name for name, change in _KINDS.items()}


def kind_of_change(change: ViewChange) -> str:
    """What a change is called on stored_files."""
    return _NAMES[type(change)]


@dataclass(frozen=True, slots=True)
class Record:
    """Commit n; `committed_at` is in seconds since the epoch."""

    n: int
    committed_at: float
    changes: tuple[ViewChange, ...]
    plan: int | None = None

    def __post_init__(self) -> None:
        views = [change.view for change in self.changes]
        assert len(set(views)) == len(views), "a record changes a view once"


def encode_record(record: Record) -> bytes:
    body: Body = {
        "n": record.n,
        "committed_at": record.committed_at,
        "plan": record.plan,
        "changes": [_encode_change(change) for change in record.changes],
    }
    return seal_body("record", body)


def read_record(path: StoragePath) -> Record:
    """The record in a file; CorruptError if it cannot be believed."""
    read = decode_record(path.read_bytes(), path)
    if path.stem.isdigit() and int(path.stem) != read.n:
        raise corrupt_error(path, "record", f"it is record {read.n}", _MEND)
    return read


def decode_record(data: bytes, path: StoragePath) -> Record:
    """The record in some bytes; `path` is what errors name."""
    body = unseal_data(data, path, "record", _MEND)
    with translate_decode_errors(path, "record", _MEND):
        changes = tuple(_decode_change(change) for change in body["changes"])
        read = read_typed(Record, {**body, "plan": body["plan"], "changes": []})
        return replace(read, changes=changes)


def _encode_change(change: ViewChange) -> Body:
    # asdict copies deeply, which an Arrow schema need not be.
    body: Body = {name: getattr(change, name) for name in change.__dataclass_fields__}
    if isinstance(change, Create | Redefine):
        body["schema"] = schema_text(change.schema)
    if isinstance(change, Create):
        body["versions"] = encode_versions(change.versions)
    if isinstance(change, Redefine):
        (body["version"],) = encode_versions([change.version])
    if "files" in body:
        body["files"] = [asdict(file) for file in body["files"]]
    if "positions" in body:
        body["positions"] = dict(body["positions"])
    return {"kind": kind_of_change(change), **body}


def _decode_change(body: Any) -> ViewChange:
    kinds: type[ViewChange] = _KINDS[body.pop("kind")]
    return read_typed(kinds, body, READERS)
