"""The commit record: what a batch did to each view, as data.

Writing `records/<n>.json` is the commit. Everything it names was synced before, and everything that
follows (Delta Lake logs, head) is redo that can be repeated from the record alone. A record names
only the views that it changes, each once, by one of eight changes.

A record may finish a plan (`plan` is its number) or none: compaction, stopping and dropping a view
are records of their own and may come while a plan is still open.

**In the journal.** What the journal holds beyond the head: the small commits that no table has yet.

A small commit is frames of one durable write: the plan that gave its transactions their ts, unless
that was written before; the rows of every table that it changes; its record. The record names its
rows as it would name data files, by names that only the journal has.

Everything that the journal holds beyond `head.json` is brought into the tables by a *flush*: one
data file per table, and a frame that says through which record it reaches and what these files are.
That frame is durable before any table's log is written, so a flush that dies is finished with the
very same files, and a version of a Delta Lake table never changes once it was there.

`JournalPlace` is where reading goes on, as `head.json` says it: every row is in exactly one of the
data files that the head names and the frames behind that place.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from viewkeeper.errors import reload_hint
from viewkeeper.storage.journal_file import Frame, Mark, damaged_error
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
class Refresh:
    """A view is to be loaded again; what is stored of it is shown, as it is, until a `Create`
    replaces it."""

    view: str


@dataclass(frozen=True, slots=True)
class Drop:
    """A view ends; its table is removed after the retention."""

    view: str
    table: str


ViewChange = Create | Advance | Rewrite | Redefine | Stop | Resume | Refresh | Drop

_KINDS: dict[str, type[ViewChange]] = {
    "create": Create,
    "advance": Advance,
    "rewrite": Rewrite,
    "redefine": Redefine,
    "stop": Stop,
    "resume": Resume,
    "refresh": Refresh,
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


# -- in the journal --------------------------------------------------------------------------------


FOLDER = "journal"
PLAN, ROWS, RECORD, FLUSH, KEPT = 1, 2, 3, 4, 5
"""The kinds of frames; what is kept is written elsewhere by others, and only they can read it."""

KEPT_NAME = "kept"
"""What a process that died has left of that; others take it from there."""

_NAME_END = b"\n"
_LENGTH = struct.Struct("<Q")
_MEND = "restore the warehouse from a backup; without one, load all views again"


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """A place in a segment of the journal: the frame with this sequence number begins there."""

    segment: str
    offset: int
    sequence: int

    @property
    def mark(self) -> Mark:
        return Mark(self.offset, self.sequence)

    def moved_to(self, mark: Mark) -> JournalPlace:
        return JournalPlace(self.segment, mark.offset, mark.sequence)

    def path_below(self, root: StoragePath) -> StoragePath:
        """The file of the segment."""
        return root / FOLDER / self.segment


JOURNAL_BEGIN = JournalPlace("objects", 1, 1)
"""Where a lasting journal begins; its parts are numbered, and a place is the number of one."""


@dataclass(frozen=True, slots=True)
class TableFlush:
    """Through record `record`, everything is in these data files, by view; of time `at`."""

    record: int
    at: float
    files: Mapping[str, DataFile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """A record of the journal, the rows that it names, and where the frame behind it begins."""

    record: Record
    rows: Mapping[str, pa.Table]
    end: Mark

    @property
    def is_beside(self) -> bool:
        """Whether tables change with it, so that it counts only when they have; all others are
        rows in the journal. There are such records in a lasting journal only."""
        return not is_small(self.record)


@dataclass(frozen=True, slots=True)
class JournalTail:
    """What frames stand for; plans as they are encoded, and where each of them ends."""

    plans: tuple[bytes, ...] = ()
    records: tuple[JournalRecord, ...] = ()
    flushes: tuple[TableFlush, ...] = ()
    kept: tuple[bytes, ...] = ()

    def has_all_after(self, record: int) -> bool:
        """Whether its records follow a record, and one another, without a gap."""
        return all(n == each.record.n for n, each in enumerate(self.records, record + 1))


def new_rows_name(record: int, number: int) -> str:
    """The name of rows that only the journal has.

    >>> new_rows_name(7, 0)
    'j00000000000000000007-0'
    """
    return f"j{record:020d}-{number}"


def is_rows_name(path: str) -> bool:
    """Whether a record names rows of the journal, not a data file."""
    return path.startswith("j")


def encode_rows(name: str, rows: pa.Table) -> bytes:
    """The data of a frame of rows: its name, then Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return name.encode() + _NAME_END + sink.getvalue().to_pybytes()


def encode_commit(record: Record, rows: Mapping[str, pa.Table]) -> list[tuple[int, bytes]]:
    """The frames of a small commit; `rows` has those that its record names."""
    frames = [(ROWS, encode_rows(name, rows[name])) for name in rows_names_of(record)]
    return [*frames, (RECORD, encode_record(record))]


def is_small(record: Record) -> bool:
    """Whether a record changes no table: all its rows are in the journal."""
    return all(_is_small_change(change) for change in record.changes)


def _is_small_change(change: ViewChange) -> bool:
    if isinstance(change, Advance):
        return all(is_rows_name(file.path) for file in change.files)
    return isinstance(change, Stop | Resume)


def rows_names_of(record: Record) -> list[str]:
    """The rows of the journal that a record names."""
    advances = [change for change in record.changes if isinstance(change, Advance)]
    return [f.path for change in advances for f in change.files if is_rows_name(f.path)]


def encode_flush(flush: TableFlush) -> bytes:
    files = {view: asdict(file) for view, file in flush.files.items()}
    return seal_body("flush", {"record": flush.record, "at": flush.at, "files": files})


def encode_kept(found: Iterable[bytes]) -> bytes:
    """Pieces of bytes as one, with a checksum."""
    data = b"".join(_LENGTH.pack(len(piece)) + piece for piece in found)
    return _LENGTH.pack(zlib.crc32(data)) + data


def read_kept(root: StoragePath) -> list[bytes]:
    """What a start has found in the journal and nobody has taken yet; nothing if it is damaged,
    since no view depends on it."""
    try:
        data = (root / FOLDER / KEPT_NAME).read_bytes()
    except FileNotFoundError:
        return []
    if data[: _LENGTH.size] != _LENGTH.pack(zlib.crc32(data[_LENGTH.size :])):
        return []
    found, at = [], _LENGTH.size
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        found.append(data[at + _LENGTH.size : at + _LENGTH.size + length])
        at += _LENGTH.size + length
    return found


def decode_tail(frames: Iterable[Frame], path: StoragePath) -> JournalTail:
    """What frames stand for; a CorruptError if they make no sense. `path` is what errors name."""
    plans: list[bytes] = []
    records: list[JournalRecord] = []
    flushes: list[TableFlush] = []
    kept: list[bytes] = []
    rows: dict[str, pa.Table] = {}
    with translate_decode_errors(path, "journal", _MEND):
        for frame in frames:
            match frame.kind:
                case 1:
                    plans.append(frame.data)
                case 2:
                    name, table = _decode_rows(frame.data)
                    rows[name] = table
                case 3:
                    record = decode_record(frame.data, path)
                    found = {name: rows.pop(name) for name in rows_names_of(record)}
                    mark = Mark(frame.end, frame.sequence + 1)
                    records.append(JournalRecord(record, found, mark))
                    rows.clear()
                case 4:
                    flushes.append(_decode_flush(frame.data, path))
                case 5:
                    kept.append(frame.data)
                case _:
                    raise ValueError(f"a frame of kind {frame.kind}")
    _check_numbers(records, path)
    return JournalTail(tuple(plans), tuple(records), tuple(flushes), tuple(kept))


def _check_numbers(records: Sequence[JournalRecord], path: StoragePath) -> None:
    numbers = [each.record.n for each in records]
    if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise damaged_error(path, f"its records are {numbers[:10]}")


def _decode_rows(data: bytes) -> tuple[str, pa.Table]:
    at = data.index(_NAME_END)
    # A copy: Arrow wants its buffers aligned, and the name is of any length.
    rows = pa.ipc.open_stream(data[at + 1 :]).read_all()
    return data[:at].decode(), rows


def _decode_flush(data: bytes, path: StoragePath) -> TableFlush:
    return read_typed(TableFlush, unseal_data(data, path, "flush", _MEND))
