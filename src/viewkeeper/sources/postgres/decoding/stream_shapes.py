"""The shapes of followed tables at the place of the stream that is being read.

They come from messages in the stream, or are inferred from what it says of a relation. Either way
they become steps of the history, which is written down before anything is reported of it. Where
event triggers watch, the messages say everything. Where they do not, what a relation says is
checked against the catalogue, once: when the stream is read again, the steps are believed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from viewkeeper.sources.postgres.decoding.relation_message import (
    RelationColumn,
    is_described_by,
    is_untouched,
    shape_of_message,
)
from viewkeeper.sources.postgres.decoding.shape_comparison import shape_after, steps_of_message
from viewkeeper.sources.postgres.decoding.state import read_steps, write_steps
from viewkeeper.sources.postgres.postgres_server import PostgresServer
from viewkeeper.sources.postgres.shape_differences import ShapeCause
from viewkeeper.sources.postgres.shape_query import PostgresShape, is_sound
from viewkeeper.sources.postgres.shape_steps import PostgresShapeHistory, ShapeStep

_MALFORMED = (
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
)


class StreamShapes:
    """The history of one stream; used under its source's lock."""

    def __init__(self, server: PostgresServer, home: Path) -> None:
        self._server = server
        self._home = home
        self._control: psycopg.Connection[Any] | None = None
        self._is_saved = True
        self._believed = 0
        self.is_watched = False
        """Whether event triggers tell of every schema change."""
        self.history = PostgresShapeHistory(with_generated=False)

    def reopen_history(
        self, control: psycopg.Connection[Any], start: int, believed: int, is_resumed: bool
    ) -> None:
        """The stream is read again from behind a position on; up to `believed` it was read before,
        and what was found is written down."""
        self._control, self._believed = control, believed
        if not is_resumed:
            self.history.restore_steps(read_steps(self._home))
            self.history.fold_until(start)
        self.history.rewind_to(start)

    def begin_tables(self, shapes: Iterable[PostgresShape]) -> None:
        """Follow tables that are new from these shapes on."""
        for shape in shapes:
            if shape.oid not in self.history:
                self.history.begin_table(shape)
                self._is_saved = False

    def save_steps(self) -> None:
        if not self._is_saved:
            write_steps(self._home, self.history.encode_steps())
            self._is_saved = True

    def clear_steps(self) -> None:
        self.history.clear_steps()

    def latest_shape(self, oid: int) -> PostgresShape:
        return self.history.latest_shape(oid)

    def added_columns(self, oid: int) -> Collection[int]:
        return self.history.added_columns(oid)

    def take_shape_message(self, position: int, message: bytes) -> Collection[int]:
        """Add the steps that a message in the stream tells.

        Every role may write messages. One that is not of our making tells nothing, and what it
        may have stood for is found by looking.
        """
        try:
            steps = list(steps_of_message(self.history, position, json.loads(message)))
        except _MALFORMED:
            return ()
        return {step.shape.oid for step in steps if is_sound(step.shape) and self._add_step(step)}

    def take_relation(
        self, position: int, xid: int, oid: int, columns: Sequence[RelationColumn], is_root: bool
    ) -> tuple[PostgresShape, bool]:
        """Compare what the stream says of a relation with what is known of its table.

        Whatever that does not explain is inferred, with the help of the catalogue.
        """
        known = self.history.latest_shape(oid)
        step = self.history.take_inferred(position, oid)
        if step is None:
            is_same = is_described_by(known, columns, is_root)
            if is_same and (self.is_watched or position <= self._believed):
                return known, False
            now = self._shape_in_catalogue(xid, oid)
            if is_same and (now is None or is_untouched(known, now)):
                return known, False
            shape = shape_of_message(known, now, columns, is_root)
            moved = now is None or now.file != known.file
            step = ShapeStep(position, shape, ShapeCause(moved=moved), inferred=True)
        is_new = self._add_step(step)
        return self.history.latest_shape(oid), is_new

    def _shape_in_catalogue(self, xid: int, oid: int) -> PostgresShape | None:
        assert self._control is not None, "rows come after the opening"
        with self._server.translate_errors():
            seconds = self._server.statement_seconds
            return shape_after(self._control, self._server.source, xid, oid, seconds)

    def _add_step(self, step: ShapeStep) -> bool:
        is_new = self.history.add_step(step)
        self._is_saved = self._is_saved and not is_new
        return is_new
