"""The messages of pgoutput (protocol 1, text) as signed rows per table.

    B begin   R relation   I insert   U update   D delete   T truncate   M message   C commit

A relation is known by its oid, so a renamed table stays the same one; partitions come under their
own oids and count as their root. Only followed columns are kept, as the text that PostgreSQL sent.
What an update did not touch of them is no change.

The old row of an update or delete comes complete (REPLICA IDENTITY FULL), or with the columns of
the identity; then its absence in an update says that none of those changed. An unchanged value that
is stored out of line comes with the old row only, and is taken from there. Where neither suffices,
the table must be one that goes *by key*: the row with a key went (`_count` 0), another came. Else
what happened is a *trouble*: an error for whoever reads past that position, since nothing is ever
guessed.

What happened to a table in a transaction before it was emptied in it is of no consequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

import pyarrow as pa

from viewkeeper.errors import SourceError
from viewkeeper.sources.postgres.stage import Stage
from viewkeeper.sources.postgres.troubles import no_old_row, other_shape, partly_emptied
from viewkeeper.updates.protocol import COUNT, POSITION

ABSENT = b"\xff\xff"
"""In place of a value that did not come; no text of PostgreSQL, which is UTF-8."""
PREFIX = b"viewkeeper"
PIECE_ROWS = 10_000
PIECE_BYTES = 16 << 20
# PostgreSQL's clock starts in 2000.
EPOCH_SECONDS = 946_684_800

_TEXT, _NULL = ord("t"), ord("n")
_long, _short, _wide = Struct("!I").unpack_from, Struct("!H").unpack_from, Struct("!Q").unpack_from
_PAYLOAD = 25
_UNCHANGED = b"\xff\xfe"
_CHANGES = frozenset(b"IUDT")

Row = list[bytes | None]


@dataclass(frozen=True, slots=True)
class Followed:
    """What is kept of a table: its columns with their types, and its key if it goes by key."""

    table: str
    types: Mapping[str, tuple[int, int]]
    key: tuple[str, ...] = ()
    leaves: frozenset[int] = frozenset()


@dataclass(slots=True)
class Decoded:
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

    @property
    def committed_at(self) -> float:
        return self.committed_us / 1e6 + EPOCH_SECONDS


@dataclass(slots=True)
class _Rows:
    """Rows of one table: those of ended transactions, and from `mark` on those of the current."""

    names: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    mark: int = 0
    bytes: int = 0

    def cut(self, start: int, stop: int) -> pa.RecordBatch:
        """Take rows out, as a batch."""
        columns = zip(*self.rows[start:stop], strict=True)
        arrays: list[Any] = [pa.array(column, pa.binary()) for column in columns]
        arrays += [pa.array(each[start:stop], pa.int64()) for each in (self.counts, self.positions)]
        self.forget(start, stop)
        return pa.RecordBatch.from_arrays(arrays, [*self.names, COUNT, POSITION])

    def forget(self, start: int, stop: int) -> None:
        del self.rows[start:stop], self.counts[start:stop], self.positions[start:stop]


@dataclass(slots=True)
class _Relation:
    """How rows of one oid are read: which of their columns are kept, and whether old rows have
    all of them."""

    followed: Followed
    kept: _Rows
    picks: tuple[int, ...] = ()
    covered: bool = False
    key: tuple[bool, ...] | None = None
    trouble: SourceError | None = None


class Decoder:
    """Takes the frames of a replication connection one by one."""

    def __init__(
        self, source: str, resolve: Callable[[int], Followed | None], stage: Stage
    ) -> None:
        self._source = source
        self._resolve = resolve
        self._stage = stage
        self._frames: dict[int, bytes] = {}
        self._relations: dict[int, _Relation | None] = {}
        self._rows: dict[str, _Rows] = {}
        self._current: Decoded | None = None
        self._position = 0
        self._skipping = False
        self._stage_ended = False
        self.skip = 0
        """Changes of transactions up to this position are passed over: they are known."""
        self.waiting = 0
        """How many rows of ended transactions have not been taken."""

    def reset(self) -> None:
        """Forget the transaction that is being read and all shapes; the stream begins anew."""
        assert not self.waiting, "what has ended is taken first"
        self._frames.clear()
        self._relations.clear()
        self._rows.clear()
        self._stage.drop()
        self._current, self._stage_ended, self._skipping = None, False, False

    def refresh(self) -> None:
        """Other columns are followed from now on."""
        assert not self.waiting, "what has ended is taken first"
        assert self._current is None, "between transactions only"
        self._rows.clear()
        for frame in tuple(self._frames.values()):
            self._relation(frame)

    def ended(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of ended transactions, in order per table; they are not kept."""
        for table, kept in self._rows.items():
            if kept.mark:
                batch = kept.cut(0, kept.mark)
                self.waiting -= kept.mark
                kept.mark = 0
                yield table, batch
        if self._stage_ended:
            self._stage_ended = False
            yield from self._stage.hand_over()

    def take(self, frame: bytes) -> Decoded | None:
        """Read a frame that carries a message; a transaction if it has ended with it."""
        kind = frame[_PAYLOAD]
        if self._skipping and kind in _CHANGES:
            return None
        if kind == 73:
            self._insert(frame)
        elif kind == 85:
            self._update(frame)
        elif kind == 68:
            self._delete(frame)
        elif kind == 66:
            (position, at), (xid,) = (_pair(frame, 26), _long(frame, 42))
            self._current, self._position = Decoded(position, xid, at), position
            self._skipping = position <= self.skip
        elif kind == 67:
            return self._commit(frame)
        elif kind == 82:
            self._relation(frame)
        elif kind == 84:
            self._truncate(frame)
        elif kind == 77:
            self._message(frame)
        return None

    def _insert(self, frame: bytes) -> None:
        relation = self._find(frame)
        if relation is not None:
            row, _ = _tuple(frame, 31, relation.picks)
            self._add(relation, row, 1, len(frame))

    def _update(self, frame: bytes) -> None:
        relation = self._find(frame)
        if relation is None:
            return
        old: Row | None = None
        at = 31
        if frame[30] != 78:
            old, at = _tuple(frame, 31, relation.picks)
            at += 1
        new, _ = _tuple(frame, at, relation.picks)
        if relation.key is not None:
            self._update_by_key(relation, old, new, len(frame))
        elif old is not None and (relation.covered or frame[30] == 79):
            if _UNCHANGED in new:
                new = [o if n is _UNCHANGED else n for o, n in zip(old, new, strict=True)]
            if old != new:
                self._add(relation, old, -1, 0)
                self._add(relation, new, 1, len(frame))
        elif not relation.covered:
            self._trouble(relation, no_old_row(self._source, relation.followed.table))

    def _delete(self, frame: bytes) -> None:
        relation = self._find(frame)
        if relation is None:
            return
        old, _ = _tuple(frame, 31, relation.picks)
        if relation.key is not None:
            self._gone(relation, old, len(frame))
        elif relation.covered or frame[30] == 79:
            self._add(relation, old, -1, len(frame))
        else:
            self._trouble(relation, no_old_row(self._source, relation.followed.table))

    def _update_by_key(self, relation: _Relation, old: Row | None, new: Row, size: int) -> None:
        new = [ABSENT if value is _UNCHANGED else value for value in new]
        self._gone(relation, new if old is None else old, 0)
        self._add(relation, new, 1, size)

    def _gone(self, relation: _Relation, row: Row, size: int) -> None:
        """The row with this key went; no other value of it is known."""
        assert relation.key is not None
        assert self._current is not None
        key = [v if kept else None for v, kept in zip(row, relation.key, strict=True)]
        self._current.keyed[relation.followed.table] = None
        self._add(relation, key, 0, size)

    def _add(self, relation: _Relation, row: Row, count: int, size: int) -> None:
        kept = relation.kept
        kept.rows.append(row)
        kept.counts.append(count)
        kept.positions.append(self._position)
        kept.bytes += size
        if len(kept.counts) - kept.mark >= PIECE_ROWS or kept.bytes >= PIECE_BYTES:
            self._set_aside(relation.followed.table, kept)

    def _set_aside(self, table: str, kept: _Rows) -> None:
        size = len(kept.counts) - kept.mark
        if size:
            assert self._current is not None, "rows are inside a transaction"
            self._stage.add(table, kept.cut(kept.mark, kept.mark + size))
            self._current.changes += size
        kept.bytes = 0

    def _commit(self, frame: bytes) -> Decoded:
        done, staged = self._current, bool(self._stage)
        assert done is not None, "a commit ends what has begun"
        for table, kept in self._rows.items():
            if staged:
                self._set_aside(table, kept)
            fresh = len(kept.counts) - kept.mark
            kept.mark += fresh
            kept.bytes = 0
            done.changes += fresh
            self.waiting += fresh
        self._current = None
        done.is_large = self._stage_ended = staged
        (done.end,) = _wide(frame, 35)
        return done

    def _truncate(self, frame: bytes) -> None:
        assert self._current is not None
        (count,) = _long(frame, 26)
        oids = {_long(frame, 31 + 4 * number)[0] for number in range(count)}
        for oid in oids:
            relation = self._relations.get(oid)
            if relation is None:
                continue
            followed = relation.followed
            if followed.leaves and not followed.leaves <= oids:
                self._trouble(relation, partly_emptied(self._source, followed.table))
                continue
            self._current.emptied[followed.table] = None
            self._current.keyed.pop(followed.table, None)
            self._current.changes -= self._stage.empty(followed.table)
            relation.kept.forget(relation.kept.mark, len(relation.kept.counts))

    def _message(self, frame: bytes) -> None:
        # One that is not part of a transaction comes on its own.
        prefix = frame.index(b"\0", 35)
        if frame[26] & 1 and frame[35:prefix] == PREFIX and self._current is not None:
            self._current.marks.append(frame[prefix + 5 :])

    def _relation(self, frame: bytes) -> None:
        (oid,) = _long(frame, 26)
        self._frames[oid] = frame
        followed = self._resolve(oid)
        self._relations[oid] = None if followed is None else self._shape(frame, followed)

    def _shape(self, frame: bytes, followed: Followed) -> _Relation:
        kept = self._rows.setdefault(followed.table, _Rows(tuple(followed.types)))
        schema_end = frame.index(b"\0", 30)
        at = frame.index(b"\0", schema_end + 1) + 1
        (count,) = _short(frame, at + 1)
        at += 3
        found: dict[str, tuple[int, bool, tuple[int, int]]] = {}
        for number in range(count):
            end = frame.index(b"\0", at + 1)
            (kind,), (modifier,) = _long(frame, end + 1), _SIGNED(frame, end + 5)
            name = frame[at + 1 : end].decode()
            found[name] = (number, bool(frame[at] & 1), (kind, modifier))
            at = end + 9
        for name, (kind, modifier) in followed.types.items():
            if name not in found or not _fits(found[name][2], (kind, modifier)):
                return _Relation(
                    followed, kept, trouble=other_shape(self._source, followed.table, name)
                )
        picks = tuple(found[name][0] for name in followed.types)
        covered = all(found[name][1] for name in followed.types)
        key = None if covered else self._key(followed, found)
        return _Relation(followed, kept, picks, covered, key)

    def _key(
        self, followed: Followed, found: Mapping[str, tuple[int, bool, tuple[int, int]]]
    ) -> tuple[bool, ...] | None:
        """Which columns are the key, if the table goes by key and its old rows have all of it."""
        if not followed.key or not all(name in found and found[name][1] for name in followed.key):
            return None
        return tuple(name in followed.key for name in followed.types)

    def _find(self, frame: bytes) -> _Relation | None:
        relation = self._relations.get(_long(frame, 26)[0])
        if relation is not None and relation.trouble is not None:
            self._trouble(relation, relation.trouble)
            return None
        return relation

    def _trouble(self, relation: _Relation, error: SourceError) -> None:
        assert self._current is not None
        self._current.troubles.setdefault(relation.followed.table, error)


_SIGNED = Struct("!i").unpack_from
_NUMERIC = 1700


def _fits(found: tuple[int, int], wanted: tuple[int, int]) -> bool:
    """Whether values of the found type are kept like those of the wanted one: a longer varchar is,
    a numeric with other digits is not."""
    return found[0] == wanted[0] and (found[0] != _NUMERIC or found[1] == wanted[1])


def _pair(frame: bytes, at: int) -> tuple[int, int]:
    return _wide(frame, at)[0], _wide(frame, at + 8)[0]


def _tuple(frame: bytes, at: int, picks: tuple[int, ...]) -> tuple[Row, int]:
    """The picked columns of the row that begins at `at`, and where it ends."""
    values: Row = []
    append = values.append
    (count,) = _short(frame, at)
    at += 2
    for _ in range(count):
        kind = frame[at]
        if kind == _TEXT:
            start = at + 5
            at = start + _long(frame, at + 1)[0]
            append(frame[start:at])
        else:
            append(None if kind == _NULL else _UNCHANGED)
            at += 1
    return [values[pick] for pick in picks], at
