"""What a load that dies leaves for the next start: its ts, its positions and its finished parts.

A load is divided into parts: ranges of a key, or whole relations. Each part is written to files by
a task, and its descriptor afterwards, so that a descriptor that is there names files that are
whole. `loads/<table>/load.json` says which view as of which ts and positions it is of; beside it
lie `division.json`, the ranges, and one `part-<relation>-<range>.json` for each part that is done.

Why a part of a killed load is right in another: its files hold what a range of a relation was *as
of a position*, rows minus tail, whatever cut they were read under. That is a function of the
relation, the columns, the position and the range, and of nothing else; so it is the same whoever
reads it when, as long as the definition, the position and the division are those of the load. The
parts that are missing need a source that can still answer as of the position. Its log is therefore
held back at that position until the load is committed or given up, and a source that has lost it
refuses to answer: then the load is given up and begins again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TypeVar

from viewkeeper.errors import CorruptError
from viewkeeper.storage import stored_files
from viewkeeper.storage.sealed_json import seal_body, translate_decode_errors, unseal_file
from viewkeeper.storage.storage_path import StoragePath, name_of
from viewkeeper.storage.typed_json import read_typed
from viewkeeper.updates.source_protocol import KeyRange
from viewkeeper.warehouse.metadata.record import DataFile

T = TypeVar("T")

FOLDER = "loads"
LOAD = "load.json"
_DIVISION = "division.json"
_WAY_OUT = "remove its folder: the load then begins again"


@dataclass(frozen=True, slots=True)
class UnfinishedLoad:
    """The load of a view into a table as of a ts, where its sources are at `positions`.

    `definition` is a digest of all that decides what its parts hold.
    """

    view: str
    table: str
    definition: str
    ts: int
    positions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LoadDivision:
    """The ranges that each relation of a load is read in; None where it is read whole."""

    ranges: tuple[tuple[KeyRange | None, ...], ...]


@dataclass(frozen=True, slots=True)
class LoadPart:
    """What a part of a load has written: files of the view's table, or of the load's own folder."""

    files: tuple[DataFile, ...]


def list_unfinished(root: StoragePath) -> list[UnfinishedLoad]:
    """The loads that a process has left; one that cannot be read is none."""
    found = []
    for path in _list_places(root / FOLDER):
        with suppress(FileNotFoundError, CorruptError):
            found.append(_read_load(path / LOAD))
    return found


def unfinished_tables(root: StoragePath) -> set[str]:
    """The tables that unfinished loads write: what is in them is not unknown."""
    return {load.table for load in list_unfinished(root)}


def load_folder(root: StoragePath, table: str) -> StoragePath:
    """Where a load keeps what it has."""
    return root / FOLDER / table


def begin_keeping(root: StoragePath, load: UnfinishedLoad) -> StoragePath:
    """Say what is loaded, before its first part is written; the folder for the parts."""
    folder = load_folder(root, load.table)
    stored_files.make_folder(folder)
    with suppress(FileExistsError):
        stored_files.create_new(folder / LOAD, seal_body("load", asdict(load)))
    return folder


def remove_load(root: StoragePath, table: str) -> None:
    """Forget a load that was committed or given up; its table is not touched."""
    folder = load_folder(root, table)
    # Without this file the folder is nobody's; what is left of it goes with the next removal.
    stored_files.remove_file(folder / LOAD)
    if folder.is_dir():
        stored_files.remove_tree(folder)


def remove_strangers(root: StoragePath) -> None:
    """Remove what is in the folder of loads and belongs to none; under the lock."""
    known = unfinished_tables(root)
    for place in _list_places(root / FOLDER):
        if place.name not in known:
            stored_files.remove_tree(place)


def find_division(folder: StoragePath) -> LoadDivision | None:
    """How a load was divided; None if it was not yet."""
    return _read_if_there(folder / _DIVISION, "division", LoadDivision)


def keep_division(folder: StoragePath, division: LoadDivision) -> None:
    """Write down how a load is divided; its parts are of no use without that."""
    stored_files.replace_file(folder / _DIVISION, seal_body("division", asdict(division)))


def find_part(folder: StoragePath, relation: int, number: int) -> LoadPart | None:
    """What a part has written; None if it is not done."""
    return _read_if_there(folder / _part_name(relation, number), "part", LoadPart)


def keep_part(folder: StoragePath, relation: int, number: int, part: LoadPart) -> LoadPart:
    """Write down that a part is done; of two attempts the first one counts, which is returned."""
    try:
        stored_files.create_new(
            folder / _part_name(relation, number), seal_body("part", asdict(part))
        )
    except FileExistsError:
        return find_part(folder, relation, number) or part
    return part


def forget_part(folder: StoragePath, relation: int, number: int) -> None:
    """Begin a part again."""
    stored_files.remove_file(folder / _part_name(relation, number))


def forget_parts(folder: StoragePath) -> None:
    """Begin all parts of a load again."""
    for place in _part_files(folder):
        stored_files.remove_file(place)


def count_parts(folder: StoragePath) -> int:
    """How many parts of a load are done."""
    return len(_part_files(folder))


def _part_files(folder: StoragePath) -> list[StoragePath]:
    return [place for place in _list_places(folder) if place.name.startswith("part-")]


def _list_places(folder: StoragePath) -> list[StoragePath]:
    """What is in a folder, in the order of the names; nothing in one that is not there."""
    try:
        return sorted(folder.iterdir(), key=name_of)
    except FileNotFoundError:
        return []


def _part_name(relation: int, number: int) -> str:
    return f"part-{relation}-{number}.json"


def _read_load(path: StoragePath) -> UnfinishedLoad:
    with translate_decode_errors(path, "load", _WAY_OUT):
        return read_typed(UnfinishedLoad, unseal_file(path, "load", _WAY_OUT))


def _read_if_there(path: StoragePath, kind: str, wanted: type[T]) -> T | None:
    """The content of a file; None if there is none, or it is damaged: then it is made again."""
    try:
        with translate_decode_errors(path, kind, _WAY_OUT):
            return read_typed(wanted, unseal_file(path, kind, _WAY_OUT))
    except FileNotFoundError:
        return None
    except CorruptError:
        stored_files.remove_file(path)
        return None
