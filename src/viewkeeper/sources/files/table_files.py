"""What lies in the folder of a table now, and whether it is complete.

Nobody tells us when a writer is done, so it is a matter of convention:

- A folder with a file `_SUCCESS`, written anew as the last thing, is complete when that file is not
  older than any data file. What else happens in it counts when `_SUCCESS` is written again.
- Otherwise a state counts once nothing has moved for some seconds: names, sizes and times of change
  were the same over two looks so far apart, or the file system says that neither folder nor files
  were touched since. A writer that gives a file its final name only when it is whole (write under a
  temporary name in the same file system, then rename) is never caught in the middle.

Names that begin with `_` or `.`, or end in `.tmp` or `.part`, are never data.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.errors import ConversionError, SchemaError, SourceAwayError, suggest_nearest
from viewkeeper.sources.files.file_parser import EXTENSIONS
from viewkeeper.sources.files.settings import FolderSettings

_DONE = "_SUCCESS"
_UNFINISHED = (".tmp", ".part")


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What tells a file from itself before it was written again, without reading it."""

    size: int
    changed_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The data files of one table, by their names below the source's folder.

    `done_ns` is when `_SUCCESS` was written; None if there is none. `changed_ns` is when names were
    changed, `touched_ns` when anything was, also by who sets a file's time of change himself.
    `gone`: there is neither folder nor file of that name.
    """

    files: Mapping[str, FileStamp]
    done_ns: int | None
    changed_ns: int
    touched_ns: int
    gone: bool = False

    @property
    def is_open(self) -> bool:
        """Whether `_SUCCESS` is there and some file is younger."""
        newest = max((stamp.changed_ns for stamp in self.files.values()), default=0)
        return self.done_ns is not None and self.done_ns < newest


def list_table(settings: FolderSettings, table: str) -> Listing:
    """The files of a table; SourceAwayError if there is neither folder nor file of that name."""
    settings.settings_of(table)
    extensions = EXTENSIONS[settings.format]
    folder = settings.folder / table
    try:
        if folder.is_dir():
            return _list_folder(folder, table, extensions)
        for extension in extensions:
            single = settings.folder / f"{table}{extension}"
            if single.is_file():
                found = single.stat()
                files = {single.name: _stamp_from(found)}
                return Listing(files, None, found.st_mtime_ns, found.st_ctime_ns)
    except OSError as error:
        raise _missing_files_error(settings, table, str(error)) from error
    raise _missing_files_error(
        settings, table, f"neither {folder} nor {folder}{extensions[0]} is there"
    )


def list_gone_table(settings: FolderSettings) -> Listing:
    """What is there of a table that is gone for good, while the source's own folder is there."""
    require_folder(settings)
    found = settings.folder.stat()
    return Listing({}, None, found.st_mtime_ns, found.st_ctime_ns, gone=True)


def _list_folder(folder: Path, table: str, extensions: tuple[str, ...]) -> Listing:
    files, done, own = {}, None, folder.stat()
    touched = own.st_ctime_ns
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == _DONE:
                done = entry.stat().st_mtime_ns
            elif _is_data(entry.name, extensions) and entry.is_file():
                found = entry.stat()
                files[f"{table}/{entry.name}"] = _stamp_from(found)
                touched = max(touched, found.st_ctime_ns)
    return Listing(files, done, own.st_mtime_ns, touched)


def _is_data(name: str, extensions: tuple[str, ...]) -> bool:
    hidden = name.startswith(("_", ".")) or name.endswith(_UNFINISHED)
    return not hidden and name.lower().endswith(extensions)


def locate_file(settings: FolderSettings, name: str) -> Path:
    """Where a listed file lies; a ConversionError if a link leads out of the source's folder.

    Whoever may write into the folder shall not have us read what else this machine has.
    """
    path = settings.folder / name
    if not settings.allow_outside and not path.resolve().is_relative_to(settings.folder.resolve()):
        raise ConversionError(
            settings.source,
            f"the file {name} is a link that leads out of the source's folder",
            hint="put the file itself there; or, where whoever writes there may show you any file"
            " of this machine, set `allow_outside: true`",
        )
    return path


def stamp_of(path: Path) -> FileStamp:
    return _stamp_from(path.stat())


def _stamp_from(found: os.stat_result) -> FileStamp:
    return FileStamp(found.st_size, found.st_mtime_ns, found.st_ino)


def _missing_files_error(settings: FolderSettings, table: str, detail: str) -> SourceAwayError:
    return SourceAwayError(
        settings.source,
        f'the files of table "{table}" are not there',
        detail=detail,
        hint="put them back; the views go on from the last state that was accepted",
    )


def require_folder(settings: FolderSettings) -> None:
    """Where the whole folder is missing nothing is known of its tables: it is away."""
    if not settings.folder.is_dir():
        raise SourceAwayError(
            settings.source,
            f"its folder {settings.folder} is not there",
            hint="mount it or put it back, or mend `path`",
        )


def require_table(settings: FolderSettings, table: str) -> Listing:
    """The files of a table that is to be followed; a SchemaError if the folder has none."""
    require_folder(settings)
    try:
        return list_table(settings, table)
    except SourceAwayError as error:
        known = sorted(_table_names(settings))
        raise SchemaError(
            settings.source,
            f'there is no table "{table}"',
            detail=error.detail,
            hint=f"tables: {', '.join(known) or 'none'}{suggest_nearest(table, known)}",
        ) from error


def _table_names(settings: FolderSettings) -> Iterable[str]:
    for path in settings.folder.iterdir():
        if path.is_dir() and not path.name.startswith(("_", ".")):
            yield path.name
        elif _is_data(path.name, EXTENSIONS[settings.format]):
            yield path.stem
