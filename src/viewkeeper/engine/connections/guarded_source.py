"""Sources as the engine calls them: every exception in one is an error of that source.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from viewkeeper.errors import (
    PASSING,
    CorruptError,
    DamagedSourceError,
    SourceAwayError,
    UnexpectedSourceError,
    ViewkeeperError,
)
from viewkeeper.updates.source_protocol import (
    Answer,
    Boundary,
    DetachResult,
    Finding,
    Health,
    HintedSource,
    KeyRange,
    Lookup,
    Opener,
    Scan,
    SizedSource,
    Snapshot,
    Source,
    TableBatches,
    TableDescription,
    Tables,
    TableSize,
)
from viewkeeper.view.definition import Relation

T = TypeVar("T")


@contextmanager
def contain_errors(source: str) -> Iterator[None]:
    """Inside, every exception becomes an error of ours that names the source."""
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
        """Errors that spoil nothing are passed to `trouble`."""
        self.name = inner.name
        self.inner = inner
        self._trouble = trouble
        # The protocol is compared by names each time, which costs more than most hints.
        self._hinted = inner if isinstance(inner, HintedSource) else None

    def describe_source(self) -> str:
        with contain_errors(self.name):
            return self.inner.describe_source()

    def handle_of(self, name: str) -> str:
        with contain_errors(self.name):
            return self.inner.handle_of(name)

    def describe_table(self, handle: str) -> TableDescription:
        with contain_errors(self.name):
            return self.inner.describe_table(handle)

    def follow_tables(self, tables: Tables) -> int:
        with contain_errors(self.name):
            return self.inner.follow_tables(tables)

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        with contain_errors(self.name):
            return self.inner.look_for_transactions(after)

    def has_news(self) -> bool | None:
        """Whether a look may be worthwhile; None if the source cannot tell."""
        if self._hinted is None:
            return None
        try:
            with contain_errors(self.name):
                return self._hinted.has_news()
        except ViewkeeperError:
            # The look that follows says what is wrong.
            return True

    def estimate_size(self, table: str) -> TableSize:
        """About how large a table is; nothing is known of sources that cannot tell at once."""
        if not isinstance(self.inner, SizedSource):
            return TableSize()
        with contain_errors(self.name):
            return self.inner.estimate_size(table)

    def has_passed(self, position: int) -> bool:
        with contain_errors(self.name):
            return self.inner.has_passed(position)

    def read_changes(self, tables: Tables, after: int, until: int) -> TableBatches:
        with contain_errors(self.name):
            yield from self.inner.read_changes(tables, after, until)

    @contextmanager
    def prepare_snapshots(self, after: int, tables: Tables) -> Iterator[Opener]:
        with contain_errors(self.name):
            context = self.inner.prepare_snapshots(after, tables)
            opener = context.__enter__()
        try:
            yield GuardedOpener(self.name, opener)
        except BaseException as error:
            self._leave_context(context, error)
            raise
        self._leave_context(context, None)

    def _leave_context(
        self, context: AbstractContextManager[Opener], error: BaseException | None
    ) -> None:
        """End a context; what was done in it stays done, or failed for its own reason."""
        try:
            with contain_errors(self.name):
                context.__exit__(type(error) if error else None, error, None)
        except ViewkeeperError as trouble:
            if trouble is not error:
                self._trouble(trouble)

    def acknowledge_position(self, position: int) -> None:
        with contain_errors(self.name):
            self.inner.acknowledge_position(position)

    def begin_hold(self, name: str, seconds: float) -> None:
        with contain_errors(self.name):
            self.inner.begin_hold(name, seconds)

    def end_hold(self, name: str) -> None:
        with contain_errors(self.name):
            self.inner.end_hold(name)

    def read_health(self, positions: Iterable[int]) -> Health:
        with contain_errors(self.name):
            return self.inner.read_health(positions)

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        with contain_errors(self.name):
            return self.inner.diagnose_source(tables)

    def detach_source(self, force: bool = False) -> DetachResult:
        with contain_errors(self.name):
            return self.inner.detach_source(force)

    def close(self) -> None:
        """Close the source; a source that cannot be closed is no reason to stop."""
        try:
            with contain_errors(self.name):
                self.inner.close()
        except ViewkeeperError as trouble:
            self._trouble(trouble)


@dataclass(frozen=True, slots=True)
class GuardedOpener:
    """An opener of guarded snapshots; may be sent to tasks."""

    source: str
    inner: Opener

    def __call__(self) -> Snapshot:
        with contain_errors(self.source):
            return GuardedSnapshot(self.source, self.inner())


class GuardedSnapshot:
    """A snapshot, with all its calls contained; used by one task."""

    def __init__(self, source: str, inner: Snapshot) -> None:
        self._source = source
        self._inner = inner

    def answer_lookup(self, lookup: Lookup, after: int) -> Answer:
        with contain_errors(self._source):
            return self._inner.answer_lookup(lookup, after)

    def scan_relation(
        self,
        relation: Relation,
        columns: Sequence[str],
        after: int,
        part: KeyRange | None = None,
    ) -> Scan:
        with contain_errors(self._source):
            found = self._inner.scan_relation(relation, columns, after, part)
        return Scan(
            found.cut, self._contain_batches(found.batches), self._contain_batches(found.tail)
        )

    def find_key_range(self, relation: Relation, columns: Sequence[str]) -> KeyRange | None:
        with contain_errors(self._source):
            return self._inner.find_key_range(relation, columns)

    def _contain_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with contain_errors(self._source):
            yield from batches

    def close(self) -> None:
        """What was read is right, whatever closing says; who asks next finds a source that is away.

        A task can tell nobody but its log.
        """
        try:
            with contain_errors(self._source):
                self._inner.close()
        except ViewkeeperError as error:
            logging.getLogger(__name__).warning("closing a snapshot: %s", error)


def unwrap_opener(opener: Opener) -> Opener:
    """The opener that the source itself prepared."""
    return opener.inner if isinstance(opener, GuardedOpener) else opener
