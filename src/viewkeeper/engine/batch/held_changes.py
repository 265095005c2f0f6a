"""Changes to be kept that wait for the next flush, and how the journal has them meanwhile.

A small commit takes the changes that led to it along into the journal, so they are as durable as
it is, and no file is written for them. The flush writes one file per relation for all commits since
the last one. What a process has left in the journal when it died is found by the next start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.updates.queue import BatchChanges, RelationChanges
from viewkeeper.updates.source_protocol import TS
from viewkeeper.view.definition import Relation

HELD_BYTES = 8 << 20
"""Beyond so much, changes are written at once."""

_HEAD_END = b"\n"


@dataclass(frozen=True, slots=True)
class ChangeSpan:
    """The changes of a relation with `after` < ts <= `until`, and perhaps older ones."""

    relation: Relation
    changes: RelationChanges
    after: int
    until: int

    def join_following(self, following: ChangeSpan) -> ChangeSpan | None:
        """Both together; None if there is a gap between them, or they have other columns."""
        if following.until <= self.until:
            return self
        one, other = self.changes.table, following.changes.table
        if following.after != self.until or one.schema != other.schema:
            return None
        joined = pa.concat_tables([one, other.filter(pc.greater(other[TS], pa.scalar(self.until)))])
        rows = RelationChanges(joined.num_rows, joined)
        return ChangeSpan(self.relation, rows, self.after, following.until)


def spans_of(changes: BatchChanges, after: int, until: int) -> list[ChangeSpan]:
    """The changes of a batch, by relation."""
    return [ChangeSpan(r, found, after, until) for r, found in changes.relations.items()]


def can_be_held(spans: Iterable[ChangeSpan]) -> bool:
    """Whether changes are in memory, and few."""
    changes = [span.changes for span in spans]
    return all(each.file is None for each in changes) and (
        sum(each.table.nbytes for each in changes) < HELD_BYTES // 8
    )


def encode_span(span: ChangeSpan) -> bytes:
    """A line of JSON that says what it is, then Arrow's stream format."""
    facts = [span.relation.source, span.relation.table, span.after, span.until]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, span.changes.table.schema) as stream:
        stream.write_table(span.changes.table)
    return json.dumps(facts).encode() + _HEAD_END + sink.getvalue().to_pybytes()


def decode_span(data: bytes) -> ChangeSpan:
    """What `encode_span` has made."""
    at = data.index(_HEAD_END)
    source, table, after, until = json.loads(data[:at])
    rows = pa.ipc.open_stream(data[at + 1 :]).read_all()
    return ChangeSpan(Relation(source, table), RelationChanges(rows.num_rows, rows), after, until)


class HeldChanges:
    """What waits for the next flush, by relation."""

    def __init__(self) -> None:
        self._spans: dict[Relation, ChangeSpan] = {}

    @property
    def size(self) -> int:
        """How many bytes they take."""
        return sum(span.changes.table.nbytes for span in self._spans.values())

    def add_spans(self, spans: Sequence[ChangeSpan]) -> bool:
        """Hold more; False, and nothing more is held, where they do not follow what is there."""
        joined = dict(self._spans)
        for span in spans:
            known = joined.get(span.relation)
            both = span if known is None else known.join_following(span)
            if both is None:
                return False
            joined[span.relation] = both
        self._spans = joined
        return True

    def take_spans(self) -> list[ChangeSpan]:
        """Everything; nothing is held any more."""
        found, self._spans = list(self._spans.values()), {}
        return found
