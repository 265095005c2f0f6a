"""What the source keeps of its files, inside the warehouse: the last accepted states.

    followed.json           the tables and columns that views read
    states/N.json           state N: the files that it consisted of, and its changes
    copies/HASH-DIGESTS.parquet      what was in a file, typed; HASH is of its content and types
    changes/N-TABLE-DIGESTS.parquet  the signed rows by which state N differs from the one before
    leases/NAME.json        a reader beside the maintainer, and until when it needs what is kept
    problem.json            why the newest state could not be accepted

A state is there when its file in `states` has its name; everything that it refers to is on disk
before. What no state refers to is left over from a crash and is removed. Only the maintainer writes
here, except leases; others read.

The number of a state is the millisecond in which it was accepted, so a number is given once, also
if what is kept was lost and begun anew. Each state names the one before, so a missing one is found.
"""

from __future__ import annotations

import os
import re
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.errors import GapError, SourceError, reload_hint
from viewkeeper.sources.files.settings import type_of_word, type_word_of
from viewkeeper.sources.files.table_files import FileStamp, Listing
from viewkeeper.sources.state_files import read_state_file
from viewkeeper.sources.tables.column_type import TableColumns
from viewkeeper.storage import disk
from viewkeeper.storage.named_digest import DigestNamedFile, digest_name
from viewkeeper.storage.sealed_json import write_sealed
from viewkeeper.storage.typed_json import read_typed
from viewkeeper.view.definition import Field

_TEMPORARY = ".tmp"
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

    def __init__(self, folder: Path, list_numbers: Callable[[], list[int]]) -> None:
        """`list_numbers` gives the states that are there, in order."""
        self._folder = folder
        self._list_numbers = list_numbers

    def write_lease(self, name: str, until: float) -> None:
        lease = StateLease(name, until, self._oldest_number())
        write_sealed(self._lease_path(name), "lease", asdict(lease))

    def _oldest_number(self) -> int:
        return next(iter(self._list_numbers()), 0)

    def end_lease(self, name: str) -> None:
        self._lease_path(name).unlink(missing_ok=True)

    def read_leases(self) -> list[StateLease]:
        """Those that have not run out; the others are removed."""
        found = []
        for path in sorted((self._folder).glob("*.json")):
            try:
                lease = read_state_file(path, "lease", partial(read_typed, StateLease))
            except SourceError:
                # Nothing is removed on a guess; as long as a lease may last, it counts.
                lease = self._damaged_lease(path)
            if lease is not None and lease.until > time.time():
                found.append(lease)
            else:
                path.unlink(missing_ok=True)
        return found

    def _damaged_lease(self, path: Path) -> StateLease:
        until = path.stat().st_mtime + _LEASE_SECONDS_MAX
        return StateLease(path.stem, until, self._oldest_number())

    def _lease_path(self, name: str) -> Path:
        return self._folder / f"{urllib.parse.quote(name, safe='')}.json"


class StateFolder:
    """The folder of one source."""

    def __init__(self, source: str, home: Path) -> None:
        self._source = source
        self.home = home
        self.leases = StateLeases(home / "leases", self.list_numbers)
        self._copies: dict[str, str] | None = None

    def read_followed(self) -> dict[str, list[str]]:
        read = partial(read_typed, dict[str, list[str]])
        return read_state_file(self.home / "followed.json", "followed", read) or {}

    def write_followed(self, tables: Mapping[str, list[str]]) -> None:
        write_sealed(self.home / "followed.json", "followed", dict(tables))

    def list_numbers(self) -> list[int]:
        """The states that are there, in order."""
        names = (path.stem for path in (self.home / "states").glob("*.json"))
        return sorted(int(name) for name in names if name.isdigit())

    def read_state(self, number: int) -> AcceptedState:
        """An accepted state; a GapError if it is not there any more."""
        try:
            stored = read_state_file(
                self.home / "states" / f"{number}.json", "state", partial(read_typed, AcceptedState)
            )
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
        write_sealed(self.home / "states" / f"{state.number}.json", "state", asdict(state))

    def copy_path(self, copy: str) -> Path:
        return self.home / "copies" / f"{copy}.parquet"

    def find_copy(self, content: str) -> str | None:
        """The copy that was made of some content, if there is one."""
        if self._copies is None:
            found = sorted((self.home / "copies").glob("*.parquet"))
            self._copies = {path.stem.partition("-")[0]: path.stem for path in found}
        copy = self._copies.get(content)
        return copy if copy is not None and self.copy_path(copy).exists() else None

    def note_copy(self, content: str, copy: str) -> None:
        """A copy was made of some content."""
        if self._copies is not None:
            self._copies[content] = copy

    def changes_path(self, number: int, table: str) -> Path:
        """Where the changes of a state are; where they will be, but for their digests, if not."""
        name = f"{number}-{urllib.parse.quote(table, safe='')}.parquet"
        path = self.home / "changes" / name
        return next(_files_named(path), path)

    def set_aside(self, path: Path) -> None:
        """Let a damaged file count as lost; what no state refers to is removed in time."""
        with suppress(OSError):
            os.replace(path, path.with_name(f"{path.name}.damaged"))

    def gap_error(self, number: int, detail: str) -> GapError:
        return GapError(
            self._source,
            f"state {number} of the files is not kept any more",
            detail=detail,
            hint=reload_hint(),
        )

    def read_problem(self) -> str | None:
        try:
            return read_state_file(
                self.home / "problem.json", "problem", lambda body: str(body["text"])
            )
        except SourceError as error:
            return str(error)

    def write_problem(self, text: str | None) -> None:
        path = self.home / "problem.json"
        if text is None:
            path.unlink(missing_ok=True)
        else:
            write_sealed(path, "problem", {"text": text})

    def forget_before(self, position: int) -> None:
        """Remove what only states before `position` need; leases keep it."""
        held = (lease.oldest for lease in self.leases.read_leases())
        self.remove_before(min([position, *held]))
        self.remove_unnamed()

    def remove_before(self, position: int) -> None:
        for number in self.list_numbers():
            if number < position:
                (self.home / "states" / f"{number}.json").unlink(missing_ok=True)

    def remove_unnamed(self) -> None:
        """Remove what no state refers to: outlived, or left over from a crash."""
        states = [self.read_state(number) for number in self.list_numbers()]
        files = [file for s in states for t in s.tables.values() for file in t.files.values()]
        named = {self.copy_path(file.copy) for file in files}
        # The oldest state's own changes lead to it from one that is gone.
        named |= {self.changes_path(s.number, name) for s in states[1:] for name in s.tables}
        for folder in (self.home / "copies", self.home / "changes"):
            for path in folder.glob("*"):
                if path not in named:
                    path.unlink(missing_ok=True)

    def measure_bytes(self) -> int:
        """How much disk the copies and changes take."""
        found = (path for name in ("copies", "changes") for path in (self.home / name).glob("*"))
        return sum(path.stat().st_size for path in found)

    @contextmanager
    def write_parquet(self, path: Path, schema: pa.Schema) -> Iterator[DigestNamedFile]:
        """Write a Parquet file that gets its name, with digests, when it is whole and on disk."""
        disk.make_folder(path.parent)
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_TEMPORARY}")
        try:
            with disk.translate_os_errors("write", path):
                writer = pq.ParquetWriter(
                    temporary, schema, compression="zstd", write_page_checksum=True
                )
            try:
                written = DigestNamedFile(writer, path)
                yield written
            except BaseException:
                with suppress(OSError):
                    writer.close()
                raise
            with disk.translate_os_errors("write", path):
                writer.close()
                disk.protect_file(temporary)
                disk.sync_file(temporary)
                named = path.with_name(digest_name(temporary, path.stem))
                written.take_name(named)
                os.replace(temporary, named)
                disk.sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def _files_named(path: Path) -> Iterator[Path]:
    """The files that have a name, with digests or, if they were written before, without."""
    if path.parent.is_dir():
        pattern = re.compile(rf"{re.escape(path.stem)}(-[0-9a-f]{{36}})?\.parquet")
        found = (each for each in path.parent.iterdir() if pattern.fullmatch(each.name))
        yield from sorted(found)


def type_words_of(columns: TableColumns) -> dict[str, str]:
    return {field.name: type_word_of(field.type) for field in columns.fields}
