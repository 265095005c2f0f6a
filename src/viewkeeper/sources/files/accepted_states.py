"""What the source keeps of its files, with the warehouse: the last accepted states.

    followed.json           the tables and columns that views read
    states/N.json           state N: the files that it consisted of, and its changes
    copies/HASH-DIGESTS.parquet      what was in a file, typed; HASH is of its content and types
    changes/N-TABLE-DIGESTS.parquet  the signed rows by which state N differs from the one before
    leases/NAME.json        a reader beside the maintainer, and until when it needs what is kept
    problem.json            why the newest state could not be accepted

A state is there when its file in `states` has its name; everything that it refers to is durable
before. What no state refers to is left over from a crash and is removed. Only the maintainer writes
here, except leases; others read. Where the copies and changes are, and how they are written and
removed there, is in `state_rows`.

The number of a state is the millisecond in which it was accepted, so a number is given once, also
if what is kept was lost and begun anew. Each state names the one before, so a missing one is found.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import pyarrow as pa

from viewkeeper.errors import GapError, SourceError, reload_hint
from viewkeeper.sources.files.settings import type_of_word, type_word_of
from viewkeeper.sources.files.state_rows import open_state_rows
from viewkeeper.sources.files.table_files import FileStamp, Listing
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.sources.tables.column_type import TableColumns
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.storage.typed_json import read_typed
from viewkeeper.view.definition import Field

_FOLLOWED, _PROBLEM = "followed.json", "problem.json"
_STATES, _LEASES = "states", "leases"
_LEASE_SECONDS_MAX = 3600.0


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A data file as it was accepted, and the copy that was made of it."""

    stamp: FileStamp
    copy: str
    rows: int


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A table in an accepted state.

    `declared` is what it was read by; `changes` is how many there are against the state
    before. `made` and `since` are the numbers of the states from which on the table and each of its
    columns have been there; `filled` are columns that this state added, with values in them.
    """

    declared: str
    columns: Mapping[str, str]
    refused: Mapping[str, str]
    files: Mapping[str, KeptFile]
    done_ns: int | None
    changes: int
    made: int = 0
    since: Mapping[str, int] = field(default_factory=dict)
    filled: Sequence[str] = ()
    key: Sequence[str] = ()
    gone: bool = False

    def kept_columns(self) -> TableColumns:
        return TableColumns(
            tuple(Field(n, _type_of_kept(w)) for n, w in self.columns.items()), {**self.refused}
        )

    def has_same_files(self, listing: Listing, declared: str) -> bool:
        """Whether a listing shows the very files of this state, to be read in the same way."""
        stamps = {name: file.stamp for name, file in self.files.items()}
        if self.gone or listing.gone:
            return self.gone and listing.gone
        return stamps == listing.files and declared == self.declared


def _type_of_kept(word: str) -> pa.DataType:
    kind = type_of_word(word)
    assert kind is not None, f"{word} was written by us"
    return kind


@dataclass(frozen=True, slots=True)
class AcceptedState:
    """An accepted state of all followed tables; `before` is the number of the one before it."""

    number: int
    before: int | None
    committed_at: float
    tables: Mapping[str, KeptTable]

    @property
    def change_count(self) -> int:
        return sum(table.changes for table in self.tables.values())


@dataclass(frozen=True, slots=True)
class StateLease:
    """A reader beside the maintainer needs the states from the oldest one on, until a time."""

    name: str
    until: float
    oldest: int


class StateLeases:
    """The leases by which readers keep accepted states that they still need."""

    def __init__(self, files: StateFiles, list_numbers: Callable[[], list[int]]) -> None:
        """`list_numbers` gives the states that are there, in order."""
        self._files = files
        self._list_numbers = list_numbers

    def write_lease(self, name: str, until: float) -> None:
        lease = StateLease(name, until, self._oldest_number())
        self._files.write_file(_lease_file(name), "lease", asdict(lease))

    def _oldest_number(self) -> int:
        return next(iter(self._list_numbers()), 0)

    def end_lease(self, name: str) -> None:
        self._files.remove_files([_lease_file(name)])

    def read_leases(self) -> list[StateLease]:
        """Those that have not run out; the others are removed."""
        found = []
        self._files.reload_files()
        for name in sorted(self._files.list_files(_LEASES)):
            file = f"{_LEASES}/{name}"
            try:
                lease = self._files.read_file(file, "lease", partial(read_typed, StateLease))
            except SourceError:
                # Nothing is removed on a guess; as long as a lease may last, it counts.
                lease = self._damaged_lease(name)
            if lease is not None and lease.until > time.time():
                found.append(lease)
            else:
                self._files.remove_files([file])
        return found

    def _damaged_lease(self, name: str) -> StateLease:
        path = self._files.place / _LEASES / name
        facts = storage_of(path).file_facts(path)
        until = (time.time() if facts is None else facts.changed_at) + _LEASE_SECONDS_MAX
        return StateLease(path.stem, until, self._oldest_number())


def _lease_file(name: str) -> str:
    return f"{_LEASES}/{urllib.parse.quote(name, safe='')}.json"


def _state_file(number: int) -> str:
    return f"{_STATES}/{number}.json"


class StateFolder:
    """The accepted states of one source."""

    def __init__(self, source: str, files: StateFiles) -> None:
        self._source = source
        self.files = files
        self.leases = StateLeases(files, self.list_numbers)
        self.rows = open_state_rows(files.place)

    def read_followed(self) -> dict[str, list[str]]:
        read = partial(read_typed, dict[str, list[str]])
        return self.files.read_file(_FOLLOWED, "followed", read) or {}

    def write_followed(self, tables: Mapping[str, list[str]]) -> None:
        self.files.write_file(_FOLLOWED, "followed", dict(tables))

    def list_numbers(self) -> list[int]:
        """The states that are there, in order."""
        names = (name.removesuffix(".json") for name in self.files.list_files(_STATES))
        return sorted(int(name) for name in names if name.isdigit())

    def read_state(self, number: int) -> AcceptedState:
        """An accepted state; a GapError if it is not there any more."""
        try:
            read = partial(read_typed, AcceptedState)
            stored = self.files.read_file(_state_file(number), "state", read)
        except SourceError as error:
            raise self.gap_error(number, f"it was damaged: {error.detail}") from error
        if stored is None:
            raise self.gap_error(number, "it was removed")
        return replace(stored, number=number)

    def read_between(
        self, after: int, until: int | None = None, limit: int | None = None
    ) -> list[AcceptedState]:
        """The states after one and up to another, none missing; a GapError if one is."""
        numbers = self.list_numbers()
        wanted = [n for n in numbers if n > after and (until is None or n <= until)][:limit]
        states = [self.read_state(number) for number in wanted]
        for state, before in zip(states, [after, *wanted], strict=False):
            if state.before != before or after not in numbers:
                raise self.gap_error(before, "it is missing among those that are kept")
        if until is not None and [after, *wanted][-1] != until:
            raise self.gap_error(until, "it was removed or damaged")
        return states

    def read_newest(self) -> AcceptedState | None:
        numbers = self.list_numbers()
        return self.read_state(numbers[-1]) if numbers else None

    def newest_table(self, name: str) -> KeptTable | None:
        """A table as it was accepted last; None if it was not followed, or that is lost."""
        try:
            newest = self.read_newest()
        except GapError:
            return None
        return newest.tables.get(name) if newest else None

    def write_state(self, state: AcceptedState) -> None:
        """The moment at which a state is accepted."""
        self.files.write_file(_state_file(state.number), "state", asdict(state))

    def copies_of(self, states: Iterable[AcceptedState]) -> set[str]:
        """The copies that states refer to."""
        tables = (table for state in states for table in state.tables.values())
        return {file.copy for table in tables for file in table.files.values()}

    def find_copy(self, content: str) -> str | None:
        """The copy that was made of some content, if there is one."""
        return self.rows.find_copy(content, lambda: self.copies_of(self._all_states()))

    def _all_states(self) -> list[AcceptedState]:
        return [self.read_state(number) for number in self.list_numbers()]

    def gap_error(self, number: int, detail: str) -> GapError:
        return GapError(
            self._source,
            f"state {number} of the files is not kept any more",
            detail=detail,
            hint=reload_hint(),
        )

    def read_problem(self) -> str | None:
        try:
            return self.files.read_file(_PROBLEM, "problem", lambda body: str(body["text"]))
        except SourceError as error:
            return str(error)

    def write_problem(self, text: str | None) -> None:
        if text is None:
            self.files.remove_files([_PROBLEM])
        else:
            self.files.write_file(_PROBLEM, "problem", {"text": text})

    def forget_before(self, position: int) -> None:
        """Remove what only states before `position` need; leases keep it."""
        held = (lease.oldest for lease in self.leases.read_leases())
        self.remove_before(min([position, *held]))
        self.remove_unnamed()

    def remove_before(self, position: int) -> None:
        gone = [number for number in self.list_numbers() if number < position]
        self.files.remove_files(_state_file(number) for number in gone)

    def remove_unnamed(self) -> None:
        """Remove what no state refers to: outlived, or left over from a crash."""
        states = self._all_states()
        # The oldest state's own changes lead to it from one that is gone.
        changes = [(state.number, name) for state in states[1:] for name in state.tables]
        self.rows.remove_others(self.copies_of(states), changes)


def type_words_of(columns: TableColumns) -> dict[str, str]:
    return {field.name: type_word_of(field.type) for field in columns.fields}
