"""Answers of a database that is captured by logical decoding, and their tails.

The tail was computed by the driver from the change stream, which it had read past everything that
the snapshot can contain. A cut has holes where a commit was decoded and is not visible yet, so the
tail of an answer has both signs: what the cut includes after the asked position, and, reversed,
what it lacks up to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import BarrierError
from viewkeeper.sources.postgres.shared import SharedSnapshot
from viewkeeper.sources.postgres.table import Table
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.protocol import COUNT, POSITION


@dataclass(frozen=True, slots=True)
class Told:
    """What the stream tells of one table around a cut: all its changes after the oldest position
    that may be asked for, those that the cut lacks, and where rows went that were not listed."""

    changes: bytes | Path
    barriers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PostgresOpener:
    """Opens the shared snapshot; can be pickled, and holds no secret."""

    settings: SourceSettings
    exported: str
    snapshot: str
    newest: int
    lacking: frozenset[int]
    after: int
    tables: Mapping[str, Table]
    told: Mapping[str, Told]

    def __call__(self) -> PostgresSnapshot:
        return PostgresSnapshot(self)


class PostgresSnapshot(SharedSnapshot):
    """The shared snapshot, and what the stream tells around it."""

    def __init__(self, opener: PostgresOpener) -> None:
        super().__init__(opener)
        self._opener = opener
        self._tails: dict[str, pa.Table] = {}

    def _check(self, table: str, after: int) -> None:
        """A BarrierError if rows of the table went after the position without being listed."""
        assert after >= self._opener.after, "the snapshot was opened for a later position"
        met = [at for at in self._opener.told[table].barriers if at > after]
        if met:
            raise BarrierError(self._server.source, table, max(met))

    def _cut(self, after: int) -> Cut:
        """What rows and tail stand for: the tail brings back what the snapshot lacks up to
        `after`."""
        newest = max(self._opener.newest, after)
        holes = (at for at in self._opener.lacking if after < at < newest)
        return Cut(newest, frozenset(holes))

    def _tail(self, table: str, columns: Sequence[str], after: int) -> pa.Table:
        told = self._told(table).select([*columns, COUNT, POSITION])
        holes = pa.array(sorted(self._opener.lacking), pa.int64())
        lacks = pc.is_in(told[POSITION], value_set=holes)
        later = pc.greater(told[POSITION], pa.scalar(after, pa.int64()))
        early = told.filter(pc.and_not(later, lacks))
        lacking = told.filter(pc.and_not(lacks, later))
        reverse = pc.negate(lacking[COUNT])
        lacking = lacking.set_column(len(columns), COUNT, reverse)
        return pa.concat_tables([early, lacking])

    def _told(self, table: str) -> pa.Table:
        if table not in self._tails:
            changes = self._opener.told[table].changes
            if isinstance(changes, Path):
                with pa.memory_map(str(changes)) as file:
                    self._tails[table] = pa.ipc.open_stream(file).read_all()
            else:
                self._tails[table] = pa.ipc.open_stream(pa.py_buffer(changes)).read_all()
        return self._tails[table]
