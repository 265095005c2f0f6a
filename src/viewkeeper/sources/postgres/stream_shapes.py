"""The shapes of followed tables at the place of the stream that is being read.

They come from messages in the stream, or are inferred from what it says of a relation. Either way
they become steps of the history, which is written down before anything is reported of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from viewkeeper.sources.postgres.compare import shape_after, steps_told
from viewkeeper.sources.postgres.differences import Cause
from viewkeeper.sources.postgres.history import History, Step
from viewkeeper.sources.postgres.open import Server
from viewkeeper.sources.postgres.relation import RelationColumn, shape_told
from viewkeeper.sources.postgres.shape import Shape
from viewkeeper.sources.postgres.state import read_steps, write_steps


class StreamShapes:
    """The history of one stream; used under its source's lock."""

    def __init__(self, server: Server, home: Path) -> None:
        self._server = server
        self._home = home
        self._control: psycopg.Connection[Any] | None = None
        self._is_saved = True
        self.history = History(with_generated=False)

    def open(self, control: psycopg.Connection[Any], start: int, is_resumed: bool) -> None:
        """The stream is read again from behind a position on."""
        self._control = control
        if not is_resumed:
            self.history.restore(read_steps(self._home))
            self.history.fold(start)
        self.history.rewind(start)

    def begin(self, shapes: Iterable[Shape]) -> None:
        """Follow tables that are new from these shapes on."""
        for shape in shapes:
            if shape.oid not in self.history:
                self.history.begin(shape)
                self._is_saved = False

    def save(self) -> None:
        if not self._is_saved:
            write_steps(self._home, self.history.stored())
            self._is_saved = True

    def clear(self) -> None:
        self.history.clear()

    def shape(self, oid: int) -> Shape:
        return self.history.now(oid)

    def told(self, position: int, message: bytes) -> Collection[int]:
        """Add the steps that a message in the stream tells."""
        steps = steps_told(self.history, position, json.loads(message))
        return {step.shape.oid for step in steps if self._add(step)}

    def described(
        self, position: int, xid: int, oid: int, columns: Sequence[RelationColumn], is_root: bool
    ) -> Shape:
        """Infer a step from what the stream says of a relation, and the catalogue of its table."""
        self._add(
            self.history.inferred(position, oid)
            or self._inferred(position, xid, oid, columns, is_root)
        )
        return self.history.now(oid)

    def _inferred(
        self, position: int, xid: int, oid: int, columns: Sequence[RelationColumn], is_root: bool
    ) -> Step:
        assert self._control is not None, "rows come after the opening"
        with self._server.errors():
            seconds = self._server.statement_seconds
            now = shape_after(self._control, self._server.source, xid, oid, seconds)
        known = self.history.now(oid)
        shape = shape_told(known, now, columns, is_root)
        moved = now is None or now.file != known.file
        return Step(position, shape, Cause(moved=moved), inferred=True)

    def _add(self, step: Step) -> bool:
        is_new = self.history.add(step)
        self._is_saved = self._is_saved and not is_new
        return is_new
