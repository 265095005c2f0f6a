"""The messages of pgoutput (protocol 1, text) as signed rows per table.

    B begin   R relation   I insert   U update   D delete   T truncate   M message   C commit

A relation is known by its oid and a column by its number, so what is renamed stays the same;
partitions come under their own oids and count as their root. The shape that the table has at that
place of the stream says which numbers the columns of a relation have (`ShapeKeeper`). Only followed
columns are kept, as the text that PostgreSQL sent. What an update did not touch of them is no
change.

The old row of an update or delete comes complete (REPLICA IDENTITY FULL), or with the columns of
the identity; then its absence in an update says that none of those changed. An unchanged value that
is stored out of line comes with the old row only, and is taken from there. Where neither suffices,
the user must have listed the table in `delete_by_key`: the row with a key was deleted (`_count` 0)
and another one inserted. Else the change is a *trouble*: an error for whoever reads past that
position, since nothing is ever guessed.

Changes of a table before it was emptied in the same transaction do not matter.

A frame is bytes of somebody else. What it says of itself is believed only as far as it agrees with
its length: every part must end inside, and the last one where the frame ends. Anything else is a
MalformedFrameError, never a value that was cut off.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from types import MappingProxyType
from typing import Protocol

from viewkeeper.errors import SourceError
from viewkeeper.sources.postgres.decoding.slot import FollowedTable
from viewkeeper.sources.postgres.errors import (
    no_old_row_error,
    partly_emptied_error,
    unreadable_stream_error,
)
from viewkeeper.sources.postgres.shape_query import PostgresShape
from viewkeeper.sources.stream.spool import KeptRows, Row
from viewkeeper.sources.stream.stage import TransactionStage
from viewkeeper.updates.source_protocol import TableBatches

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
_NO_TROUBLES: Mapping[str, SourceError] = MappingProxyType({})
_NAMES_AT = 30

PAYLOAD = 25
"""Where the message begins in a frame."""
UNCHANGED = b"\xff\xfe"
"""In place of a large value that an update left as it was."""
ABSENT = b"\xff\xff"
"""In the spool, in place of a value that did not come; no text of PostgreSQL, which is UTF-8."""

_TEXT, _NULL, _SAME = (ord(kind) for kind in "tnu")
_long, _short, _signed = (Struct(f"!{kind}").unpack_from for kind in "IHi")
_begin, _commit = Struct("!QQI").unpack_from, Struct("!BQQQ").unpack_from
_BEGIN_SIZE, _COMMIT_SIZE = 46, 51
# Positions and times are numbers with a sign, which they never have.
_NUMBER_MAX = 1 << 63
_TIME_MAX = 1 << 58


def spooled_name(number: int, kind: int) -> str:
    """The name of a column in the spool: its number and the type that it has now, so that neither a
    rename nor another type changes what is there already.

    >>> spooled_name(3, 701)
    '3:701'
    """
    return f"{number}:{kind}"


class MalformedFrameError(ValueError):
    """A frame does not have the form of what it says to be."""


def oid_of(frame: bytes) -> int:
    """The relation that a message is about."""
    return int(_long(frame, PAYLOAD + 1)[0])


def begin_of(frame: bytes) -> tuple[int, int, int]:
    """The position, commit time and id of the transaction that begins."""
    position, at, xid = _begin(frame, PAYLOAD + 1)
    if len(frame) != _BEGIN_SIZE or position >= _NUMBER_MAX or at >= _TIME_MAX:
        raise MalformedFrameError("a transaction begins with odd numbers")
    return position, at, xid


def commit_end(frame: bytes) -> int:
    """The position in the log behind the transaction that has ended."""
    _, _, end, _ = _commit(frame, PAYLOAD + 1)
    if len(frame) != _COMMIT_SIZE or end >= _NUMBER_MAX:
        raise MalformedFrameError("a transaction ends with odd numbers")
    return int(end)


def row_at(frame: bytes, at: int, picks: tuple[int, ...], width: int) -> tuple[Row, int]:
    """The picked columns of the row of so many columns that begins at `at`, and where it ends."""
    values: Row = []
    append = values.append
    (count,) = _short(frame, at)
    if count != width:
        raise MalformedFrameError(f"a row has {count} columns, its relation {width}")
    at += 2
    for _ in range(count):
        kind = frame[at]
        if kind == _TEXT:
            start = at + 5
            at = start + _long(frame, at + 1)[0]
            append(frame[start:at])
        elif kind == _NULL:
            append(None)
            at += 1
        elif kind == _SAME:
            append(UNCHANGED)
            at += 1
        else:
            raise MalformedFrameError(f"a value of the unknown kind {kind}")
    if at > len(frame):
        raise MalformedFrameError("a value is longer than its message")
    return [values[pick] for pick in picks], at


def last_row(frame: bytes, at: int, picks: tuple[int, ...], width: int) -> Row:
    """The picked columns of a row that the frame ends with."""
    row, end = row_at(frame, at, picks, width)
    if end != len(frame):
        raise MalformedFrameError("something follows the last row of a message")
    return row


def emptied_oids(frame: bytes) -> set[int]:
    """The relations that a TRUNCATE has emptied."""
    (count,) = _long(frame, PAYLOAD + 1)
    if len(frame) != PAYLOAD + 6 + 4 * count:
        raise MalformedFrameError("a list of relations is not as long as it says")
    return {_long(frame, PAYLOAD + 6 + 4 * number)[0] for number in range(count)}


def mark_of(frame: bytes) -> tuple[bool, bytes, bytes]:
    """Whether a message is part of its transaction, its prefix, and what it says."""
    end = frame.find(b"\0", PAYLOAD + 10)
    if end < 0 or _long(frame, end + 1)[0] != len(frame) - end - 5:
        raise MalformedFrameError("a message is not as long as it says")
    return bool(frame[PAYLOAD + 1] & 1), frame[PAYLOAD + 10 : end], frame[end + 5 :]


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as a message has it; `in_old_rows` says that old rows have it too."""

    name: str
    type: int
    modifier: int
    in_old_rows: bool


def relation_columns(frame: bytes) -> tuple[RelationColumn, ...]:
    """The columns of a Relation message."""
    at = _name_end(frame, _name_end(frame, _NAMES_AT) + 1) + 1
    (count,) = _short(frame, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        end = _name_end(frame, at + 1)
        (kind,), (modifier,) = _long(frame, end + 1), _signed(frame, end + 5)
        name = frame[at + 1 : end].decode()
        columns.append(RelationColumn(name, kind, modifier, bool(frame[at] & 1)))
        at = end + 9
    if at != len(frame) or len({column.name for column in columns}) != count:
        raise MalformedFrameError("a relation is not described as it says")
    return tuple(columns)


def _name_end(frame: bytes, start: int) -> int:
    end = frame.find(b"\0", start)
    if end < 0:
        raise MalformedFrameError("a name does not end")
    return end


class ShapeKeeper(Protocol):
    """The shapes of followed tables at the place of the stream that is being read."""

    def added_columns(self, oid: int) -> Collection[int]:
        """The columns of a table that came since what was acknowledged."""
        ...

    def take_shape_message(self, position: int, message: bytes) -> Collection[int]:
        """Take a message of `ddl_watch`; the tables that have another shape from here on."""
        ...

    def take_relation(
        self, position: int, xid: int, oid: int, columns: Sequence[RelationColumn], is_root: bool
    ) -> tuple[PostgresShape, bool]:
        """Take a Relation message: the shape of its table, and whether that is a new one."""
        ...


@dataclass(slots=True)
class DecodedTransaction:
    """A transaction: where and when it was committed, and what it did.

    `end` is where the log goes on after it. `emptied` and `keyed` are the tables that it truncated,
    and those of which it deleted rows by key. `marks` are the messages of ours that it carries, and
    `troubles` the errors for those who read one of its tables. Once it has ended it does not change
    any more, and the spool keeps it as it is.
    """

    position: int
    id: int
    committed_us: int
    changes: int = 0
    end: int = 0
    is_large: bool = False
    emptied: tuple[str, ...] = ()
    keyed: tuple[str, ...] = ()
    marks: tuple[bytes, ...] = ()
    troubles: Mapping[str, SourceError] = field(default_factory=lambda: _NO_TROUBLES)
    is_reshaped: bool = False

    @property
    def committed_at(self) -> float:
        return self.committed_us / 1e6 + EPOCH_SECONDS


@dataclass(slots=True)
class _Relation:
    """How rows of one oid are read: which of their columns are kept, and whether old rows have
    all of them."""

    table: str
    followed: FollowedTable
    qualified_name: str
    kept: KeptRows
    width: int = 0
    picks: tuple[int, ...] = ()
    is_covered: bool = False
    key: tuple[bool, ...] | None = None


class PgoutputDecoder:
    """Takes the frames of a replication connection one by one."""

    def __init__(
        self,
        source: str,
        resolve: Callable[[int], FollowedTable | None],
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
        self.known_until = 0
        """The changes of transactions up to this position are known, and passed over."""
        self.waiting = 0
        """How many rows of ended transactions have not been taken."""

    def reset_stream(self, known_until: int) -> None:
        """Forget the transaction that is being read and all relations: the stream begins again.

        The changes of transactions up to `known_until` are passed over.
        """
        assert not self.waiting, "what has ended is taken first"
        self._frames.clear()
        self._relations.clear()
        self._rows.clear()
        self._stage.drop_all()
        self._current, self._skipping, self.known_until = None, False, known_until

    def forget_relations(self) -> None:
        """Other columns are followed from now on."""
        assert not self.waiting, "what has ended is taken first"
        assert self._current is None, "between transactions only"
        self._rows.clear()
        self._relations.clear()

    def take_ended(self) -> TableBatches:
        """The rows of ended transactions, in order per table; they are not kept."""
        for (table, _), kept in self._rows.items():
            if kept.mark:
                self.waiting -= kept.mark
                yield table, kept.take_ended()
        if self._current is None:
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
            self._skipping = position <= self.known_until
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
        elif old is not None and (relation.is_covered or frame[30] == 79):
            if UNCHANGED in new:
                new = [o if n is UNCHANGED else n for o, n in zip(old, new, strict=True)]
            if old != new:
                self._add_row(relation, old, -1, 0)
                self._add_row(relation, new, 1, len(frame))
        elif not relation.is_covered:
            self._add_trouble(relation, no_old_row_error(self._source, relation.qualified_name))

    def _decode_delete(self, frame: bytes) -> None:
        relation = self._find_relation(oid_of(frame))
        if relation is None:
            return
        if frame[30] not in _OLD:
            raise MalformedFrameError("a deletion has no old row")
        old = last_row(frame, 31, relation.picks, relation.width)
        if relation.key is not None:
            self._add_deleted_key(relation, old, len(frame))
        elif relation.is_covered or frame[30] == 79:
            self._add_row(relation, old, -1, len(frame))
        else:
            self._add_trouble(relation, no_old_row_error(self._source, relation.qualified_name))

    def _update_by_key(self, relation: _Relation, old: Row | None, new: Row, size: int) -> None:
        new = [ABSENT if value is UNCHANGED else value for value in new]
        self._add_deleted_key(relation, new if old is None else old, 0)
        self._add_row(relation, new, 1, size)

    def _add_deleted_key(self, relation: _Relation, row: Row, size: int) -> None:
        """The row with this key was deleted; no other value of it is known."""
        assert relation.key is not None
        assert self._current is not None
        key = [v if kept else None for v, kept in zip(row, relation.key, strict=True)]
        if relation.table not in self._current.keyed:
            self._current.keyed += (relation.table,)
        self._add_row(relation, key, 0, size)

    def _add_row(self, relation: _Relation, row: Row, count: int, size: int) -> None:
        kept = relation.kept
        kept.add_row(row, count, self._position, size)
        if len(kept.counts) - kept.mark >= PIECE_ROWS or kept.bytes >= PIECE_BYTES:
            self._set_aside(relation.table, kept)

    def _set_aside(self, table: str, kept: KeptRows) -> None:
        """Move the rows of the current transaction to the stage."""
        batch = kept.take_current()
        if batch is not None:
            assert self._current is not None, "rows are inside a transaction"
            self._stage.add_batch(table, batch)
            self._current.changes += batch.num_rows

    def _decode_commit(self, frame: bytes) -> DecodedTransaction:
        done, staged = self._current, bool(self._stage)
        if done is None:
            raise MalformedFrameError("a transaction ends that has not begun")
        done.end = commit_end(frame)
        for (table, _), kept in self._rows.items():
            if staged:
                self._set_aside(table, kept)
            fresh = kept.end_transaction()
            done.changes += fresh
            self.waiting += fresh
        self._current = None
        done.is_large = staged
        # A trouble counts as a change: whoever reads the table must come upon it.
        done.changes = max(done.changes, len(done.troubles))
        return done

    def _decode_truncate(self, frame: bytes) -> None:
        oids = emptied_oids(frame)
        for oid in oids:
            relation = self._find_relation(oid)
            if relation is None or self._current is None:
                continue
            table, leaves = relation.table, relation.followed.leaves
            if leaves and not oids.issuperset(leaves):
                self._add_trouble(
                    relation, partly_emptied_error(self._source, relation.qualified_name)
                )
                continue
            current = self._current
            current.emptied = tuple(dict.fromkeys((*current.emptied, table)))
            current.keyed = tuple(name for name in current.keyed if name != table)
            current.changes -= self._stage.empty_table(table)
            for kept in self._kept_rows_of(table):
                kept.drop_current()

    def _decode_message(self, frame: bytes) -> None:
        # One that is not part of a transaction comes on its own.
        is_inside, prefix, content = mark_of(frame)
        if not is_inside or prefix != PREFIX or self._current is None:
            return
        if not content.startswith(_SHAPE):
            self._current.marks += (content,)
        elif not self._skipping:
            changed = set(self._shapes.take_shape_message(self._position, content[len(_SHAPE) :]))
            self._current.is_reshaped |= bool(changed)
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

    def _describe_relation(self, oid: int, followed: FollowedTable) -> _Relation:
        assert self._current is not None, "rows are inside a transaction"
        if oid not in self._frames:
            raise MalformedFrameError("a row comes before its relation was described")
        columns, is_root = relation_columns(self._frames[oid]), oid == followed.oid
        shape, is_new = self._shapes.take_relation(
            self._position, self._current.id, followed.oid, columns, is_root
        )
        self._current.is_reshaped |= is_new
        places = {column.name: place for place, column in enumerate(columns)}
        by_number = {n: c for n, c in shape.by_number.items() if c.sure and c.name in places}
        # A view may still want a column that was added: it is kept before anybody follows it.
        added = [
            number
            for number in sorted(self._shapes.added_columns(followed.oid))
            if number in by_number and columns[places[by_number[number].name]].in_old_rows
        ]
        wanted = dict.fromkeys((*followed.columns, *added))
        numbers = [number for number in wanted if number in by_number]
        picks = tuple(places[by_number[number].name] for number in numbers)
        names = tuple(spooled_name(number, by_number[number].type) for number in numbers)
        is_covered = all(columns[place].in_old_rows for place in picks)
        logged = {number for number, c in by_number.items() if columns[places[c.name]].in_old_rows}
        # Rows are deleted by key if old rows have the whole key, and not everything else.
        by_key = not is_covered and bool(followed.key) and logged.issuperset(followed.key)
        key = tuple(number in followed.key for number in numbers) if by_key else None
        name, table = f"{shape.schema}.{shape.name}", str(followed.oid)
        rows = self._rows_of(table, names)
        return _Relation(table, followed, name, rows, len(columns), picks, is_covered, key)

    def _rows_of(self, table: str, names: tuple[str, ...]) -> KeptRows:
        """Where rows with these columns go; those with others in this transaction come before."""
        rows = self._rows.setdefault((table, names), KeptRows(names))
        for kept in self._kept_rows_of(table):
            if kept is not rows:
                self._set_aside(table, kept)
        return rows

    def _kept_rows_of(self, table: str) -> list[KeptRows]:
        return [kept for (name, _), kept in self._rows.items() if name == table]

    def _add_trouble(self, relation: _Relation, error: SourceError) -> None:
        assert self._current is not None
        self._current.troubles = {relation.table: error, **self._current.troubles}
