"""The log of a Delta Lake table: one JSON file per version, read without any library.

What a version changed is in its own entry, by the rules of the format: if it lists files of the
change data feed, these are its changes; else the rows of the files that it adds came and those of
the files that it removes went, except where it says that no data changed (compaction). So the feed
is used where it is present, the difference of files where it is not, and nothing depends on the
table's settings of today.

An entry appears whole, under its final name: every writer must see to that. Paths in it are encoded
as in addresses.
"""

from __future__ import annotations

import hashlib
import json
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewkeeper.errors import SourceAwayError

_ENTRY = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A file that an entry names; `partition` is None where the entry does not say it."""

    path: str
    partition: Mapping[str, str | None] | None
    rows: int | None


@dataclass(frozen=True, slots=True)
class Commit:
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


def folder_of(table: Path) -> Path:
    return table / "_delta_log"


def entry(table: Path, version: int) -> Path:
    return folder_of(table) / f"{version:020d}.json"


def versions(table: Path) -> list[int]:
    """The versions whose entries are still there, in order."""
    names = (_ENTRY.fullmatch(path.name) for path in folder_of(table).iterdir())
    return sorted(int(found[1]) for found in names if found)


def digest(table: Path, version: int) -> str | None:
    """What tells the entry of a version from any other; None if it is gone."""
    try:
        return hashlib.sha256(entry(table, version).read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def file_path(table: Path, logged: str) -> Path:
    """Where a file that the log names lies; a copied table may name files elsewhere."""
    if logged.startswith("file:"):
        return Path(urllib.parse.unquote(urllib.parse.urlparse(logged).path))
    return table / urllib.parse.unquote(logged)


def read_commit(source: str, table: Path, version: int) -> Commit:
    """An entry of the log; FileNotFoundError if there is none."""
    path = entry(table, version)
    try:
        actions = [json.loads(line) for line in _lines(path)]
    except ValueError as error:
        raise _unreadable(source, version) from error
    if not actions:
        raise _unreadable(source, version)
    return _commit(version, actions, path.stat().st_mtime)


def _lines(path: Path) -> list[str]:
    # Not splitlines(), which also ends a line at separators that stand inside a text.
    return [line for line in path.read_text("utf-8").split("\n") if line.strip()]


def _unreadable(source: str, version: int) -> SourceAwayError:
    return SourceAwayError(
        source,
        f"the log entry of version {version} cannot be read",
        detail="it is cut off, or still being written",
        hint="if no writer is at work, remove that entry or restore the table",
    )


def _commit(version: int, actions: list[dict[str, Any]], written_at: float) -> Commit:
    found: dict[str, list[Any]] = {}
    for action in actions:
        for word, content in action.items():
            found.setdefault(word, []).append(content)
    info: dict[str, Any] = next(iter(found.get("commitInfo", ())), {})
    stamp = info.get("inCommitTimestamp") or info.get("timestamp")
    return Commit(
        version,
        written_at if stamp is None else float(stamp) / 1000,
        tuple(_logged(a) for a in found.get("add", ()) if a.get("dataChange", True)),
        tuple(_logged(a) for a in found.get("remove", ()) if a.get("dataChange", True)),
        tuple(_logged(a) for a in found.get("cdc", ())),
        next(iter(found.get("metaData", ())), None),
        next(iter(found.get("protocol", ())), None),
    )


def _logged(action: Mapping[str, Any]) -> LoggedFile:
    statistics = json.loads(action.get("stats") or "{}")
    rows = statistics.get("numRecords")
    return LoggedFile(str(action["path"]), action.get("partitionValues"), rows)
