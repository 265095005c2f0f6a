"""Sources as the engine calls them: whatever goes wrong in one is an error of that source.

Every source that the engine uses is a `GuardedSource` around the one of its kind, and so are the
snapshots that its openers open, here and in tasks. There is no other way to a source, so this is
the one place which sees to it that

1. every exception of a source's code, or of a library that it uses, is an error that names the
   source: one that we did not expect is an `UnexpectedSourceError` with its traceback;
2. what is only closed cannot spoil what was done before: an error of closing a snapshot is told,
   and what was read in it stays;
3. an interrupt by the user, and the end of the interpreter, are nobody's error and pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from viewkeeper.errors import (
    CorruptError,
    DamagedSourceError,
    SourceAwayError,
    UnexpectedSourceError,
    ViewkeeperError,
)
from viewkeeper.updates.source_protocol import (
    Answer,
    Became,
    Boundary,
    Detached,
    Finding,
    Health,
    Lookup,
    Opener,
    Scan,
    Snapshot,
    Source,
    Tables,
)
from viewkeeper.view.definition import Field, Relation

T = TypeVar("T")
K = TypeVar("K")

PASSING = (KeyboardInterrupt, SystemExit, GeneratorExit)


@contextmanager
def contained(source: str) -> Iterator[None]:
    """Inside, everything that goes wrong is an error of ours that names the source."""
    try:
        yield
    except CorruptError as error:
        # A file that we keep for this source, or that it reads: the others do not need it.
        text = {"detail": error.detail, "hint": error.hint}
        raise DamagedSourceError(source, error.message, **text) from error
    except (ViewkeeperError, *PASSING):
        raise
    except (ConnectionError, TimeoutError) as error:
        raise SourceAwayError(source, "it does not answer", detail=str(error)) from error
    except BaseException as error:
        # Not only Exception: a panic of a library in Rust derives from BaseException.
        raise UnexpectedSourceError(source, error) from error


class GuardedSource:
    """A source of any kind, with all its calls contained."""

    def __init__(self, inner: Source, trouble: Callable[[ViewkeeperError], None]) -> None:
        """`trouble` is told of errors that spoil nothing."""
        self.name = inner.name
        self.inner = inner
        self._trouble = trouble

    def describe(self) -> str:
        with contained(self.name):
            return self.inner.describe()

    def advice(self) -> str | None:
        with contained(self.name):
            return self.inner.advice()

    def handle(self, name: str) -> str:
        with contained(self.name):
            return self.inner.handle(name)

    def became(self, handle: str) -> Became | None:
        with contained(self.name):
            return self.inner.became(handle)

    def schema(self, table: str) -> tuple[Field, ...]:
        with contained(self.name):
            return self.inner.schema(table)

    def refused(self, table: str) -> Mapping[str, str]:
        with contained(self.name):
            return self.inner.refused(table)

    def key(self, table: str) -> tuple[str, ...]:
        with contained(self.name):
            return self.inner.key(table)

    def indexed(self, table: str, columns: Sequence[str]) -> bool:
        with contained(self.name):
            return self.inner.indexed(table, columns)

    def finds_by_key(self, table: str, columns: Sequence[str]) -> bool:
        with contained(self.name):
            return self.inner.finds_by_key(table, columns)

    def follow(self, tables: Tables) -> int:
        with contained(self.name):
            return self.inner.follow(tables)

    def look(self, after: int) -> tuple[Boundary, ...]:
        with contained(self.name):
            return self.inner.look(after)

    def passed(self, position: int) -> bool:
        with contained(self.name):
            return self.inner.passed(position)

    def changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        with contained(self.name):
            yield from self.inner.changes(tables, after, until)

    @contextmanager
    def snapshots(self, after: int, tables: Tables) -> Iterator[Opener]:
        with contained(self.name):
            context = self.inner.snapshots(after, tables)
            opener = context.__enter__()
        try:
            yield GuardedOpener(self.name, opener)
        except BaseException as error:
            self._leave(context, error)
            raise
        self._leave(context, None)

    def _leave(self, context: AbstractContextManager[Opener], error: BaseException | None) -> None:
        """End a context; what was done in it stays done, or failed for its own reason."""
        try:
            with contained(self.name):
                context.__exit__(type(error) if error else None, error, None)
        except ViewkeeperError as trouble:
            if trouble is not error:
                self._trouble(trouble)

    def acknowledge(self, position: int) -> None:
        with contained(self.name):
            self.inner.acknowledge(position)

    def hold(self, name: str, seconds: float) -> None:
        with contained(self.name):
            self.inner.hold(name, seconds)

    def release(self, name: str) -> None:
        with contained(self.name):
            self.inner.release(name)

    def health(self, positions: Iterable[int]) -> Health:
        with contained(self.name):
            return self.inner.health(positions)

    def diagnose(self, tables: Tables) -> list[Finding]:
        with contained(self.name):
            return self.inner.diagnose(tables)

    def detach(self, force: bool = False) -> Detached:
        with contained(self.name):
            return self.inner.detach(force)

    def close(self) -> None:
        """Let go of it; that it could not be told so is no reason to stop."""
        try:
            with contained(self.name):
                self.inner.close()
        except ViewkeeperError as trouble:
            self._trouble(trouble)


@dataclass(frozen=True, slots=True)
class GuardedOpener:
    """An opener of guarded snapshots; may be sent to tasks."""

    source: str
    inner: Opener

    def __call__(self) -> Snapshot:
        with contained(self.source):
            return GuardedSnapshot(self.source, self.inner())


class GuardedSnapshot:
    """A snapshot, with all its calls contained; used by one task."""

    def __init__(self, source: str, inner: Snapshot) -> None:
        self._source = source
        self._inner = inner

    def ask(self, lookup: Lookup, after: int) -> Answer:
        with contained(self._source):
            return self._inner.ask(lookup, after)

    def scan(self, relation: Relation, columns: Sequence[str], after: int) -> Scan:
        with contained(self._source):
            found = self._inner.scan(relation, columns, after)
        return Scan(found.cut, self._contained(found.batches), self._contained(found.tail))

    def _contained(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with contained(self._source):
            yield from batches

    def close(self) -> None:
        """What was read is right, whatever closing says; who asks next finds a source that is away.

        A task can tell nobody but its log.
        """
        try:
            with contained(self._source):
                self._inner.close()
        except ViewkeeperError as error:
            logging.getLogger(__name__).warning("closing a snapshot: %s", error)


def kind_of(source: Source, kind: type[K]) -> K | None:
    """The source itself, if it is of this kind."""
    inner = source.inner if isinstance(source, GuardedSource) else source
    return inner if isinstance(inner, kind) else None


def plain_opener(opener: Opener) -> Opener:
    """The opener that the source itself prepared."""
    return opener.inner if isinstance(opener, GuardedOpener) else opener
