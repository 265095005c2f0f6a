"""What a source remembers: small sealed files, which say which database was followed, up to where.

One that is damaged must not be taken for one that is not there: the source would begin anew over a
gap. It is an error of that source, and the views over other sources go on.

They lie in the source's own folder of the warehouse, or, where the warehouse is in object storage,
beside it there (`bucket_state`), so that a process on another machine goes on from them. The folder
of this machine has what can be lost: spools, scratch files.

A file is *written* where losing it would lose something: it is durable when that returns. What only
follows from what was reported since, and can be found again from what is written, is *noted*. On a
disk that is a file at once. In object storage it would be a request for every look, so it is kept
in memory until the source is acknowledged, at most once a second. Acknowledging saves it first:
what a source was told to forget is never more than what is remembered of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from viewkeeper.errors import CorruptError, SourceError, reload_hint
from viewkeeper.storage.sealed_json import translate_decode_errors, unseal_or_plain, write_sealed
from viewkeeper.storage.storage_path import StoragePath

T = TypeVar("T")


class StateFiles(Protocol):
    """The files of one source, by their names; those in folders have a slash in it."""

    @property
    def local(self) -> Path:
        """The folder of this machine for what can be lost; it need not be there."""

    @property
    def place(self) -> StoragePath:
        """Where larger files belong that the small ones name."""

    @property
    def is_one_object(self) -> bool:
        """Whether all files are one object, so that none of them can be lost alone."""

    def read_file(self, name: str, kind: str, decode: Callable[[Any], T]) -> T | None:
        """What a file holds; None if there is none, a SourceError if it cannot be believed."""

    def has_file(self, name: str) -> bool: ...

    def list_files(self, folder: str) -> list[str]:
        """The names of the JSON files in a folder, without it."""

    def write_file(self, name: str, kind: str, body: object) -> None:
        """Give a file new content, durably."""

    def note_file(self, name: str, kind: str, body: object, *, durable: bool) -> None:
        """Give a file content that can be lost with the process; `durable` is for a disk."""

    def save_noted(self) -> None:
        """Make durable what was noted; called before a source is acknowledged."""

    def remove_files(self, names: Iterable[str]) -> bool:
        """Remove files; whether any of them was there."""

    def forget_all(self) -> None:
        """Remove everything of this source, here and there."""

    def reload_files(self) -> None:
        """Read again what another process may have written."""


class FolderStateFiles:
    """The files in a folder on a disk."""

    is_one_object = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def local(self) -> Path:
        return self._folder

    @property
    def place(self) -> Path:
        return self._folder

    def read_file(self, name: str, kind: str, decode: Callable[[Any], T]) -> T | None:
        path = self._folder / name
        try:
            # Files that were written before they were sealed are read too.
            return believe_file(
                self._folder.name,
                path,
                kind,
                lambda mend: decode(unseal_or_plain(path, kind, mend)),
            )
        except FileNotFoundError:
            return None

    def has_file(self, name: str) -> bool:
        return (self._folder / name).exists()

    def list_files(self, folder: str) -> list[str]:
        return [path.name for path in (self._folder / folder).glob("*.json")]

    def write_file(self, name: str, kind: str, body: object) -> None:
        write_sealed(self._folder / name, kind, body)

    def note_file(self, name: str, kind: str, body: object, *, durable: bool) -> None:
        write_sealed(self._folder / name, kind, body, durable=durable)

    def save_noted(self) -> None:
        """A file has it already."""

    def remove_files(self, names: Iterable[str]) -> bool:
        there = [path for name in names if (path := self._folder / name).exists()]
        for path in there:
            path.unlink(missing_ok=True)
        return bool(there)

    def forget_all(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def reload_files(self) -> None:
        """Every reading opens the file."""


def believe_file(source: str, path: object, kind: str, read: Callable[[str], T]) -> T:
    """What is read of a file, given what to do about one that is damaged; a SourceError if it
    cannot be believed, FileNotFoundError if it is not there."""
    mend = f"restore {path} from a backup; without one, remove it, then {reload_hint()}"
    try:
        with translate_decode_errors(path, kind, mend):
            return read(mend)
    except FileNotFoundError:
        raise
    except (CorruptError, OSError) as error:
        raise SourceError(
            source,
            f"what it keeps in {path} cannot be believed (its {kind})",
            detail=error.detail if isinstance(error, CorruptError) else str(error),
            hint=mend,
        ) from error
