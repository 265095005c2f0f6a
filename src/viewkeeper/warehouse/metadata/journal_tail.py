"""What the journal holds beyond the head: the small commits that no table has yet.

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
from dataclasses import asdict, dataclass, field

import pyarrow as pa

from viewkeeper.storage.journal_file import Frame, Mark, damaged_error
from viewkeeper.storage.sealed_json import seal_body, translate_decode_errors, unseal_data
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.typed_json import read_typed
from viewkeeper.warehouse.metadata.record import (
    Advance,
    DataFile,
    Record,
    Resume,
    Stop,
    ViewChange,
    decode_record,
    encode_record,
)

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
