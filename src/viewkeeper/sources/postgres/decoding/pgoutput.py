"""The messages of pgoutput (protocol 1, text) as signed rows per table.

    B begin   R relation   I insert   U update   D delete   T truncate   M message   C commit

A relation is known by its oid and a column by its number, so what is renamed stays the same;
partitions come under their own oids and count as their root. Which numbers the columns of a
relation have is told by the shape that the table has at that place of the stream (`relation`).
Only followed columns are kept, as the text that PostgreSQL sent. What an update did not touch of
them is no change.

The old row of an update or delete comes complete (REPLICA IDENTITY FULL), or with the columns of
the identity; then its absence in an update says that none of those changed. An unchanged value that
is stored out of line comes with the old row only, and is taken from there. Where neither suffices,
the table must be one that goes *by key*: the row with a key went (`_count` 0), another came. Else
what happened is a *trouble*: an error for whoever reads past that position, since nothing is ever
guessed.

What happened to a table in a transaction before it was emptied in it is of no consequence.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from viewkeeper.errors import SourceError
from viewkeeper.sources.postgres.decoding.pgoutput_frame import (
    PAYLOAD,
    UNCHANGED,
    MalformedFrameError,
    begin_of,
    commit_end,
    emptied_oids,
    last_row,
    mark_of,
    oid_of,
    row_at,
)
from viewkeeper.sources.postgres.decoding.relation_message import RelationColumn, relation_columns
from viewkeeper.sources.postgres.decoding.spooled_columns import spooled_name
from viewkeeper.sources.postgres.errors import (
    no_old_row_error,
    partly_emptied_error,
    unreadable_stream_error,
)
from viewkeeper.sources.postgres.shape_query import PostgresShape
from viewkeeper.sources.stream.kept_rows import KeptRows, Row
from viewkeeper.sources.stream.stage import TransactionStage

ABSENT = b"\xff\xff"
"""In place of a value that did not come; no text of PostgreSQL, which is UTF-8."""
PREFIX = b"viewkeeper"
PIECE_ROWS = 10_000
PIECE_BYTES = 16 << 20
# PostgreSQL's clock starts in 2000.
EPOCH_SECONDS = 946_684_800

_CHANGES = frozenset(b"IUDT")
# Origins and types, which say nothing of rows.
_PASSED_OVER = frozenset(b"OY")
_OLD = frozenset(b"KO")
_SHAPE = b"shape "


@dataclass(frozen=True, slots=True)
class FollowedRelation:
    """What is kept of a table: its columns by number, and its key if it goes by key."""

    table: str
    oid: int
    columns: tuple[int, ...]
    key: tuple[int, ...] = ()
    leaves: frozenset[int] = frozenset()


class ShapeKeeper(Protocol):
    """The shapes of followed tables at the place of the stream that is being read."""

    def added_columns(self, oid: int) -> Collection[int]:
        """The columns of a table that came since what was acknowledged."""
        ...

    def take_shape_message(self, position: int, message: bytes) -> Collection[int]:
        """Take what a message tells; the tables that have another shape from here on."""
        ...

    def take_relation(
        self, position: int, xid: int, oid: int, columns: Sequence[RelationColumn], is_root: bool
    ) -> tuple[PostgresShape, bool]:
        """Take what a relation says of its table: the shape, and whether that is a new one."""
        ...


@dataclass(slots=True)
class DecodedTransaction:
    """A transaction, ended: where and when, what it did, and the marks of ours that it carries."""

    position: int
    id: int
    committed_us: int
    changes: int = 0
    end: int = 0
    is_large: bool = False
    emptied: dict[str, None] = field(default_factory=dict)
    keyed: dict[str, None] = field(default_factory=dict)
    marks: list[bytes] = field(default_factory=list)
    troubles: dict[str, SourceError] = field(default_factory=dict)
    reshaped: bool = False

    @property
    def committed_at(self) -> float:
        return self.committed_us / 1e6 + EPOCH_SECONDS


@dataclass(slots=True)
class _Relation:
    """How rows of one oid are read: which of their columns are kept, and whether old rows have
    all of them."""

    followed: FollowedRelation
    called: str
    kept: KeptRows
    width: int = 0
    picks: tuple[int, ...] = ()
    covered: bool = False
    key: tuple[bool, ...] | None = None


class PgoutputDecoder:
    """Takes the frames of a replication connection one by one."""

    def __init__(
        self,
        source: str,
        resolve: Callable[[int], FollowedRelation | None],
        shapes: ShapeKeeper,
        stage: TransactionStage,
    ) -> None:
        self._source = source
        self._resolve = resolve
        self._shapes = shapes
        self._stage = stage
        self._frames: dict[int, bytes] = {}
        # What is not here is read from its frame when the first row of it comes.
        self._relations: dict[int, _Relation | None] = {}
        self._rows: dict[tuple[str, tuple[str, ...]], KeptRows] = {}
        self._current: DecodedTransaction | None = None
        self._position = 0
        self._skipping = False
        self._stage_ended = False
        self.skip = 0
        """What transactions up to this position changed is passed over: it is known."""
        self.waiting = 0
        """How many rows of ended transactions have not been taken."""

    def reset_stream(self) -> None:
        """Forget the transaction that is being read and all shapes; the stream begins anew."""
        assert not self.waiting, "what has ended is taken first"
        self._frames.clear()
        self._relations.clear()
        self._rows.clear()
        self._stage.drop_all()
        self._current, self._stage_ended, self._skipping = None, False, False

    def forget_relations(self) -> None:
        """Other columns are followed from now on."""
        assert not self.waiting, "what has ended is taken first"
        assert self._current is None, "between transactions only"
        self._rows.clear()
        self._relations.clear()

    def take_ended(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of ended transactions, in order per table; they are not kept."""
        for (table, _), kept in self._rows.items():
            if kept.mark:
                batch = kept.cut_batch(0, kept.mark)
                self.waiting -= kept.mark
                kept.mark = 0
                yield table, batch
        if self._stage_ended:
            self._stage_ended = False
            yield from self._stage.hand_over()

    def take_frame(self, frame: bytes) -> DecodedTransaction | None:
        """Read a frame that carries a message; a transaction if it has ended with it."""
        try:
            return self._decode_frame(frame)
        except (MalformedFrameError, struct.error, IndexError, UnicodeDecodeError) as error:
            raise unreadable_stream_error(self._source, str(error)) from error

    def _decode_frame(self, frame: bytes) -> DecodedTransaction | None:
        kind = frame[PAYLOAD]
        if self._skipping and kind in _CHANGES:
            return None
        if kind == 73:
            self._decode_insert(frame)
        elif kind == 85:
            self._decode_update(frame)
        elif kind == 68:
            self._decode_delete(frame)
        elif kind == 66:
            if self._current is not None:
                raise MalformedFrameError("a transaction begins inside another one")
            position, at, xid = begin_of(frame)
            self._current, self._position = DecodedTransaction(position, xid, at), position
            self._skipping = position <= self.skip
        elif kind == 67:
            return self._decode_commit(frame)
        elif kind == 82:
            oid = oid_of(frame)
            self._frames[oid] = frame
            self._relations.pop(oid, None)
        elif kind == 84:
            self._decode_truncate(frame)
        elif kind == 77:
            self._decode_message(frame)
        elif kind not in _PASSED_OVER:
            raise MalformedFrameError(f"a message of the unknown kind {kind}")
        return None

    def _decode_insert(self, frame: bytes) -> None:
        relation = self._find_relation(oid_of(frame))
        if relation is not None:
            row = last_row(frame, 31, relation.picks, relation.width)
            self._add_row(relation, row, 1, len(frame))

    def _decode_update(self, frame: bytes) -> None:
        relation = self._find_relation(oid_of(frame))
        if relation is None:
            return
        old: Row | None = None
        at = 31
        if frame[30] in _OLD:
            old, at = row_at(frame, 31, relation.picks, relation.width)
            at += 1
        if frame[at - 1] != 78:
            raise MalformedFrameError("an update has no new row")
        new = last_row(frame, at, relation.picks, relation.width)
        if relation.key is not None:
            self._update_by_key(relation, old, new, len(frame))
        elif old is not None and (relation.covered or frame[30] == 79):
            if UNCHANGED in new:
                new = [o if n is UNCHANGED else n for o, n in zip(old, new, strict=True)]
            if old != new:
                self._add_row(relation, old, -1, 0)
                self._add_row(relation, new, 1, len(frame))
        elif not relation.covered:
            self._add_trouble(relation, no_old_row_error(self._source, relation.called))

    def _decode_delete(self, frame: bytes) -> None:
        relation = self._find_relation(oid_of(frame))
        if relation is None:
            return
        if frame[30] not in _OLD:
            raise MalformedFrameError("a deletion has no old row")
        old = last_row(frame, 31, relation.picks, relation.width)
        if relation.key is not None:
            self._add_deleted_key(relation, old, len(frame))
        elif relation.covered or frame[30] == 79:
            self._add_row(relation, old, -1, len(frame))
        else:
            self._add_trouble(relation, no_old_row_error(self._source, relation.called))

    def _update_by_key(self, relation: _Relation, old: Row | None, new: Row, size: int) -> None:
        new = [ABSENT if value is UNCHANGED else value for value in new]
        self._add_deleted_key(relation, new if old is None else old, 0)
        self._add_row(relation, new, 1, size)

    def _add_deleted_key(self, relation: _Relation, row: Row, size: int) -> None:
        """The row with this key went; no other value of it is known."""
        assert relation.key is not None
        assert self._current is not None
        key = [v if kept else None for v, kept in zip(row, relation.key, strict=True)]
        self._current.keyed[relation.followed.table] = None
        self._add_row(relation, key, 0, size)

    def _add_row(self, relation: _Relation, row: Row, count: int, size: int) -> None:
        kept = relation.kept
        kept.rows.append(row)
        kept.counts.append(count)
        kept.positions.append(self._position)
        kept.bytes += size
        if len(kept.counts) - kept.mark >= PIECE_ROWS or kept.bytes >= PIECE_BYTES:
            self._set_aside(relation.followed.table, kept)

    def _set_aside(self, table: str, kept: KeptRows) -> None:
        size = len(kept.counts) - kept.mark
        if size:
            assert self._current is not None, "rows are inside a transaction"
            self._stage.add_batch(table, kept.cut_batch(kept.mark, kept.mark + size))
            self._current.changes += size
        kept.bytes = 0

    def _decode_commit(self, frame: bytes) -> DecodedTransaction:
        done, staged = self._current, bool(self._stage)
        if done is None:
            raise MalformedFrameError("a transaction ends that has not begun")
        done.end = commit_end(frame)
        for (table, _), kept in self._rows.items():
            if staged:
                self._set_aside(table, kept)
            fresh = len(kept.counts) - kept.mark
            kept.mark += fresh
            kept.bytes = 0
            done.changes += fresh
            self.waiting += fresh
        self._current = None
        done.is_large = self._stage_ended = staged
        return done

    def _decode_truncate(self, frame: bytes) -> None:
        oids = emptied_oids(frame)
        for oid in oids:
            relation = self._find_relation(oid)
            if relation is None or self._current is None:
                continue
            followed = relation.followed
            if followed.leaves and not followed.leaves <= oids:
                self._add_trouble(relation, partly_emptied_error(self._source, relation.called))
                continue
            self._current.emptied[followed.table] = None
            self._current.keyed.pop(followed.table, None)
            self._current.changes -= self._stage.empty_table(followed.table)
            for kept in self._kept_rows_of(followed.table):
                kept.drop_rows(kept.mark, len(kept.counts))

    def _decode_message(self, frame: bytes) -> None:
        # One that is not part of a transaction comes on its own.
        is_inside, prefix, content = mark_of(frame)
        if not is_inside or prefix != PREFIX or self._current is None:
            return
        if not content.startswith(_SHAPE):
            self._current.marks.append(content)
        elif not self._skipping:
            changed = set(self._shapes.take_shape_message(self._position, content[len(_SHAPE) :]))
            self._current.reshaped |= bool(changed)
            for oid, relation in tuple(self._relations.items()):
                if relation is not None and relation.followed.oid in changed:
                    del self._relations[oid]

    def _find_relation(self, oid: int) -> _Relation | None:
        if self._current is None:
            raise MalformedFrameError("a row comes outside of any transaction")
        try:
            return self._relations[oid]
        except KeyError:
            pass
        followed = self._resolve(oid)
        relation = None if followed is None else self._describe_relation(oid, followed)
        self._relations[oid] = relation
        return relation

    def _describe_relation(self, oid: int, followed: FollowedRelation) -> _Relation:
        assert self._current is not None, "rows are inside a transaction"
        if oid not in self._frames:
            raise MalformedFrameError("a row comes before its relation was described")
        columns, is_root = relation_columns(self._frames[oid]), oid == followed.oid
        shape, is_new = self._shapes.take_relation(
            self._position, self._current.id, followed.oid, columns, is_root
        )
        self._current.reshaped |= is_new
        places = {column.name: place for place, column in enumerate(columns)}
        by_number = {n: c for n, c in shape.by_number.items() if c.sure and c.name in places}
        # A view may still want a column that was added: it is kept before anybody follows it.
        added = [
            number
            for number in sorted(self._shapes.added_columns(followed.oid))
            if number in by_number and columns[places[by_number[number].name]].told
        ]
        wanted = dict.fromkeys((*followed.columns, *added))
        numbers = [number for number in wanted if number in by_number]
        picks = tuple(places[by_number[number].name] for number in numbers)
        names = tuple(spooled_name(number, by_number[number].type) for number in numbers)
        covered = all(columns[place].told for place in picks)
        told = {number for number, c in by_number.items() if columns[places[c.name]].told}
        # A table goes by key if its old rows have all of it.
        by_key = not covered and bool(followed.key) and told.issuperset(followed.key)
        key = tuple(number in followed.key for number in numbers) if by_key else None
        called = f"{shape.schema}.{shape.name}"
        rows = self._rows_of(followed, names)
        return _Relation(followed, called, rows, len(columns), picks, covered, key)

    def _rows_of(self, followed: FollowedRelation, names: tuple[str, ...]) -> KeptRows:
        """Where rows with these columns go; those with others in this transaction come before."""
        rows = self._rows.setdefault((followed.table, names), KeptRows(names))
        for kept in self._kept_rows_of(followed.table):
            if kept is not rows:
                self._set_aside(followed.table, kept)
        return rows

    def _kept_rows_of(self, table: str) -> list[KeptRows]:
        return [kept for (name, _), kept in self._rows.items() if name == table]

    def _add_trouble(self, relation: _Relation, error: SourceError) -> None:
        assert self._current is not None
        self._current.troubles.setdefault(relation.followed.table, error)
