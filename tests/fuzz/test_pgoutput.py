"""Fuzzing what a PostgreSQL server sends: its change stream, and the texts beside it.

`pgoutput.txt` was recorded from a server: the shape of a table, then one frame per line, as it was
written, filled, updated, emptied, renamed. A damaged frame is read between sound ones, up to typed
rows; a damaged stream as a whole.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from tests.fuzz.mutation import fuzz, fuzz_text
from viewkeeper.errors import SourceError
from viewkeeper.sources.postgres.answers.lookup import PostgresLayout
from viewkeeper.sources.postgres.answers.snapshot import VisibleTransactions
from viewkeeper.sources.postgres.decoding.ddl_watch import plain_columns
from viewkeeper.sources.postgres.decoding.pgoutput import PgoutputDecoder, RelationColumn
from viewkeeper.sources.postgres.decoding.slot import FollowedTable
from viewkeeper.sources.postgres.decoding.spool_reader import select_spooled
from viewkeeper.sources.postgres.decoding.stream import identity_of
from viewkeeper.sources.postgres.decoding.stream_shapes import (
    StreamShapes,
    is_described_by,
    shape_of_message,
)
from viewkeeper.sources.postgres.postgres_server import PostgresServer
from viewkeeper.sources.postgres.shape_query import PostgresShape, decode_shape
from viewkeeper.sources.postgres.types import PostgresKind
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.state_files import FolderStateFiles
from viewkeeper.sources.stream.stage import TransactionStage

_LINES = Path(__file__).with_name("pgoutput.txt").read_text().splitlines()
SHAPE = decode_shape(json.loads(_LINES[0]))
FRAMES = [bytes.fromhex(line) for line in _LINES[1:]]
BEGIN, RELATION, INSERT = FRAMES[0], FRAMES[1], FRAMES[2]
COMMIT = FRAMES[4]
_HOME = Path("/nonexistent")


class Catalogue:
    """The shapes of a table whose catalogue says what it said in the beginning."""

    def __init__(self) -> None:
        settings = SourceSettings("shop", "postgres", {}, str(_HOME), str(_HOME))
        self._shapes = StreamShapes(PostgresServer(settings), FolderStateFiles(_HOME))
        self._shapes.begin_tables([SHAPE])

    def added_columns(self, oid: int) -> Collection[int]:
        return self._shapes.added_columns(oid)

    def take_shape_message(self, position: int, message: bytes) -> Collection[int]:
        return self._shapes.take_shape_message(position, message)

    def take_relation(
        self, position: int, xid: int, oid: int, columns: Sequence[RelationColumn], is_root: bool
    ) -> tuple[PostgresShape, bool]:
        known = self._shapes.history.latest_shape(oid)
        if is_described_by(known, columns, is_root):
            return known, False
        return shape_of_message(known, known, columns, is_root), True


def decoded(frames: Sequence[bytes], catalogue: Catalogue | None = None) -> int:
    """Read frames up to typed rows; how many rows there are."""
    numbers = tuple(column.number for column in SHAPE.columns)
    followed = FollowedTable(SHAPE.oid, numbers)
    decoder = PgoutputDecoder(
        "shop",
        {SHAPE.oid: followed}.get,
        catalogue or Catalogue(),
        TransactionStage(_HOME, memory_bytes=1 << 40),
    )
    rows = 0
    try:
        for frame in frames:
            done = decoder.take_frame(frame)
            if done is not None:
                assert done.committed_at < 1e12
                assert done.position < 1 << 63
    finally:
        kinds = tuple(
            column.kind for column in SHAPE.columns if isinstance(column.kind, PostgresKind)
        )
        names = tuple(column.name for column in SHAPE.columns)
        layout = PostgresLayout("shop", "t", names, kinds)
        texts = {column.name: (column.number, column.type) for column in SHAPE.columns}
        for _, batch in decoder.take_ended():
            rows += layout.from_spool(select_spooled(batch, texts)).num_rows
    return rows


def split(stream: bytes) -> list[bytes]:
    """Frames that come each behind its length, as far as there are any."""
    frames, at = [], 0
    while at + 4 <= len(stream):
        (size,) = struct.unpack_from("!I", stream, at)
        frames.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return frames


def test_what_was_recorded_is_read() -> None:
    assert decoded(FRAMES[:5]) == 2
    assert decoded(FRAMES) > 5


def test_a_damaged_frame_between_sound_ones() -> None:
    def read(frame: bytes) -> None:
        decoded([BEGIN, RELATION, INSERT, frame, INSERT, COMMIT])

    fuzz(read, FRAMES, inputs=2000)


def test_a_damaged_stream() -> None:
    joined = b"".join(struct.pack("!I", len(frame)) + frame for frame in FRAMES)
    fuzz(lambda data: decoded(split(data)), [joined], inputs=2000)


def test_every_frame_that_is_cut_off_is_refused() -> None:
    """Never a value that lacks its end."""
    for frame in (INSERT, RELATION, *(f for f in FRAMES if f[25] in b"UDTMBC")):
        for size in {0, 10, 26, 30, 31, 33, len(frame) // 2, len(frame) - 1}:
            if size < len(frame):
                before = [] if frame[25] in b"B" else [BEGIN, RELATION]
                with pytest.raises(SourceError, match="what it sends cannot be read"):
                    decoded([*before, frame[:size], INSERT])


def test_messages_of_schema_changes() -> None:
    messages = [f[f.index(b"shape ") + 6 :] for f in FRAMES if b"shape {" in f]
    words = [str(SHAPE.oid).encode(), b'{"gone": ', b'{"found": ', b'"watched": true', b"null"]

    def read(message: bytes) -> None:
        catalogue = Catalogue()
        for oid in catalogue.take_shape_message(1, message):
            assert oid == SHAPE.oid
        # What comes after is read with what the message said, whatever that was.
        decoded([BEGIN, RELATION, INSERT, COMMIT], catalogue)

    found = json.dumps({"found": json.loads(_LINES[0]), "watched": True}).encode()
    gone = json.dumps({"gone": SHAPE.oid}).encode()
    fuzz(read, [*messages, found, gone], words=words)


def test_statements_that_changed_a_table() -> None:
    columns = {1: frozenset({"a"}), 2: frozenset({'b"c'})}
    good = [
        "ALTER TABLE t ALTER a TYPE int USING a * 2, ALTER b TYPE text",
        'ALTER TABLE "s"."t" ALTER "b""c" TYPE bigint USING "b""c"::bigint; DROP TABLE x',
        "DO $$ BEGIN EXECUTE 'ALTER TABLE t DROP a'; END $$",
    ]
    fuzz_text(lambda text: plain_columns(text, columns), good, inputs=2000)
    assert plain_columns("ALTER TABLE t ALTER a TYPE int USING " + "(" * 5000, columns) == ()


def test_names_of_snapshots_and_positions() -> None:
    def snapshot(text: str) -> None:
        VisibleTransactions.parse_snapshot("shop", text).has_transaction(7)

    fuzz_text(snapshot, ["741:743:741", "10:20:11,12,13", "4294967296:4294967300:"])

    def identity(data: bytes) -> None:
        values = data.split(b" ")
        identity_of("shop", [*values, b"", b"", b""][:3])

    fuzz(identity, [b"7301234567890 1 1/A0", b"7301234567890 12 FFFFFFFF/FFFFFFFF"])
