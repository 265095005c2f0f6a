"""The log of a Delta Lake table: one JSON file per version, read without any library.

What a version changed is in its own entry, by the rules of the format: if it lists files of the
change data feed, these are its changes; else the rows of the files that it adds came and those of
the files that it removes went, except where it says that no data changed (compaction). So the feed
is used where it is present, the difference of files where it is not, and nothing depends on the
table's settings of today.

An entry appears whole, under its final name: every writer must see to that. Paths in it are encoded
as in addresses. Whoever may write an entry can put anything into it: what is not of the format's
form is an entry that cannot be read, and a file that lies outside of the table's folder is refused
unless the source allows it.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from viewkeeper.errors import SchemaError, SourceAwayError


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A file that an entry names; `partition` is None where the entry does not say it."""

    path: str
    partition: Mapping[str, str | None] | None
    rows: int | None


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """One version: when it was committed, the files of its changes, and a new shape if it has one.

    `feed` are files of the change data feed; where there are any, they are all there is.
    """

    version: int
    committed_at: float
    added: tuple[LoggedFile, ...]
    removed: tuple[LoggedFile, ...]
    feed: tuple[LoggedFile, ...]
    metadata: Mapping[str, Any] | None
    protocol: Mapping[str, Any] | None


def log_folder_of(table: Path) -> Path:
    return table / "_delta_log"


def entry_path_of(table: Path, version: int) -> Path:
    return log_folder_of(table) / f"{version:020d}.json"


def digest_entry(table: Path, version: int) -> str | None:
    """What tells the entry of a version from any other; None if it is gone."""
    try:
        return hashlib.sha256(entry_path_of(table, version).read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class TableFolder:
    """The folder of a table, and whether its log may name files outside of it."""

    source: str
    path: Path
    allow_outside: bool = False
    _inside: dict[Path, bool] = field(default_factory=dict, repr=False, compare=False)

    def locate_logged_file(self, logged: str) -> Path:
        """Where a file that the log names lies; a SchemaError if it may not lie there."""
        path = self.path / urllib.parse.unquote(
            urllib.parse.urlparse(logged).path if logged.startswith("file:") else logged
        )
        if "\0" in str(path) or not (self.allow_outside or self._is_inside(path)):
            raise SchemaError(
                self.source,
                "its log names a file outside of the table's folder",
                detail=repr(logged[:200]),
                hint="if it is a clone that shares files with another table, or whoever writes it"
                " may show you any file of this machine, set `allow_outside: true`",
            )
        return path

    def _is_inside(self, path: Path) -> bool:
        """Whether it lies in the folder however links lead; folders are followed once."""
        if ".." in path.parts or os.path.islink(path):
            return self._leads_inside(path)
        if path.parent not in self._inside:
            self._inside[path.parent] = self._leads_inside(path.parent)
        return self._inside[path.parent]

    def _leads_inside(self, path: Path) -> bool:
        try:
            return path.resolve().is_relative_to(self.path.resolve())
        except (OSError, RuntimeError):
            # Links in a circle, or a name that no file can have.
            return False


class _FormError(ValueError):
    """An entry of the log is not of the format's form."""


def read_commit(source: str, table: Path, version: int) -> DeltaCommit:
    """An entry of the log; FileNotFoundError if there is none."""
    path = entry_path_of(table, version)
    try:
        actions = [json.loads(line, object_pairs_hook=_build_object) for line in _read_lines(path)]
        if not actions:
            raise _FormError("it is empty")
        return _decode_commit(version, actions, path.stat().st_mtime)
    except _FormError as error:
        raise _unreadable_entry(source, version, str(error)) from error
    except RecursionError as error:
        raise _unreadable_entry(source, version, "it is nested too deeply") from error
    except ValueError as error:
        raise _unreadable_entry(source, version, "it is cut off, or still being written") from error


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; other readers take the first of two equal keys, or the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _FormError("a key occurs twice in one object")
    return found


def _read_lines(path: Path) -> list[str]:
    # Not splitlines(), which also ends a line at separators that stand inside a text.
    return [line for line in path.read_text("utf-8").split("\n") if line.strip()]


def _unreadable_entry(source: str, version: int, detail: str) -> SourceAwayError:
    return SourceAwayError(
        source,
        f"the log entry of version {version} cannot be read",
        detail=detail,
        hint="if no writer is at work, remove that entry or restore the table",
    )


def _decode_commit(version: int, actions: list[Any], written_at: float) -> DeltaCommit:
    found: dict[str, list[dict[str, Any]]] = {}
    for action in actions:
        said = {w: c for w, c in _require_mapping(action, "an action").items() if c is not None}
        if len(said) > 1:
            raise _FormError("one line has several actions")
        for word, content in said.items():
            if word in _ACTIONS:
                found.setdefault(word, []).append(_require_mapping(content, word))
    info: dict[str, Any] = next(iter(found.get("commitInfo", ())), {})
    stamp = info.get("inCommitTimestamp") or info.get("timestamp")
    return DeltaCommit(
        version,
        written_at if stamp is None else _decode_seconds(stamp),
        _decode_changing_files(found.get("add", ())),
        _decode_changing_files(found.get("remove", ())),
        _decode_files(found.get("cdc", ())),
        _check_metadata(next(iter(found.get("metaData", ())), None)),
        _check_protocol(next(iter(found.get("protocol", ())), None)),
    )


_ACTIONS = ("add", "remove", "cdc", "commitInfo", "metaData", "protocol")
# The end of the year 9999, in milliseconds: no clock that is right is later.
_LAST_MS = 253_402_300_800_000


def _require_mapping(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _FormError(f"{what} is no object")
    return value


def _require_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise _FormError(f"{what} is no text")
    return value


def _require_texts(value: object, what: str) -> list[str]:
    if not isinstance(value, list):
        raise _FormError(f"{what} is no list")
    return [_require_text(each, f"one of {what}") for each in value]


def _decode_seconds(stamp: object) -> float:
    if isinstance(stamp, int | float) and 0 <= stamp < _LAST_MS:
        return stamp / 1000
    raise _FormError("its time is no time")


def _decode_files(actions: Iterable[dict[str, Any]]) -> tuple[LoggedFile, ...]:
    files = tuple(map(_decode_file, actions))
    if len({file.path for file in files}) < len(files):
        raise _FormError("it names a file twice")
    return files


def _decode_changing_files(actions: Iterable[dict[str, Any]]) -> tuple[LoggedFile, ...]:
    """The files of actions that do not say that no data changed."""
    return _decode_files(action for action in actions if action.get("dataChange") is not False)


def _decode_file(action: dict[str, Any]) -> LoggedFile:
    partition = action.get("partitionValues")
    if partition is not None:
        texts = _require_mapping(partition, "partitionValues").values()
        for text in texts:
            _require_text("" if text is None else text, "the value of a partition")
    if action.get("deletionVector") is not None:
        raise _FormError("a file has a deletion vector, which its protocol does not announce")
    return LoggedFile(
        _require_text(action.get("path"), "a path"), partition, _row_count_of(action.get("stats"))
    )


def _row_count_of(statistics: object) -> int | None:
    """How many rows a file has, if its statistics say so."""
    if not statistics:
        return None
    rows = _require_mapping(json.loads(_require_text(statistics, "stats")), "stats").get(
        "numRecords"
    )
    return rows if isinstance(rows, int) and 0 <= rows < 2**63 else None


def _check_metadata(action: dict[str, Any] | None) -> dict[str, Any] | None:
    if action is None:
        return None
    _require_text(action.get("id"), "the id of the table")
    _require_texts(action.get("partitionColumns", []), "partitionColumns")
    _require_mapping(action.get("configuration") or {}, "configuration")
    check_schema(_require_text(action.get("schemaString"), "schemaString"))
    return action


def _check_protocol(action: dict[str, Any] | None) -> dict[str, Any] | None:
    if action is not None:
        _require_texts(action.get("readerFeatures") or [], "readerFeatures")
    return action


def check_schema(schema: str) -> None:
    """Refuse what is no schema: columns with names, each its own, and types."""
    fields = _require_mapping(json.loads(schema), "the schema").get("fields")
    if not isinstance(fields, list):
        raise _FormError("the schema has no columns")
    names = set()
    for column in fields:
        names.add(
            _require_text(_require_mapping(column, "a column").get("name"), "a column's name")
        )
        if not isinstance(column.get("type"), str | dict):
            raise _FormError("a column has no type")
        _require_mapping(column.get("metadata") or {}, "the metadata of a column")
    if len(names) < len(fields):
        raise _FormError("two columns have one name")
