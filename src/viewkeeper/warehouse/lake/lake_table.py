"""All contact with the `deltalake` library.

The library checks little, so the rules are ours. An entry carries our record number as application
transaction; it is applied only if the table's is smaller, and without retries: a conflict means
another writer. The library syncs nothing, so entries and checkpoints are synced here. Its own
checkpoints and log clean-up are off: both come at our moments, and a checkpoint counts only once a
head names it.

Handles stay open between commits; an update reads only the new entries.

The Delta Lake log entry that gives a table another schema and, perhaps, more files.

The `deltalake` library changes a schema only when it replaces all files, so this entry is composed
here: the table's metadata with another schema, the added files, and our application transaction,
last, as in every entry of ours. What the protocol asks for is little.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema, TableFeatures
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
)

from viewkeeper.errors import CorruptError, WarehouseError, reload_hint
from viewkeeper.storage import disk
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake import delta_log
from viewkeeper.warehouse.lake.data_files import list_digest
from viewkeeper.warehouse.lake.verified_files import is_data_file_name, restore_hint
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.record import DataFile

_FEATURES = {"timestamp_ntz": "timestampNtz"}


@dataclass(frozen=True, slots=True)
class LakeTableMetadata:
    """What a table says of itself: its metadata, and the features that it has declared."""

    metadata: dict[str, Any]
    reader_features: frozenset[str]
    writer_features: frozenset[str]


def encode_schema_entry(
    n: int, at_ms: int, known: LakeTableMetadata, schema: str, adds: Sequence[tuple[DataFile, str]]
) -> bytes:
    """The entry of record n; `adds` are files with their statistics."""
    lines: list[dict[str, Any]] = [_commit_info(n, at_ms), *_protocol_lines(known, schema)]
    lines.append({"metaData": {**known.metadata, "schemaString": schema}})
    lines += [_add_line(file, stats, at_ms) for file, stats in adds]
    lines.append({"txn": {"appId": delta_log.APPLICATION, "version": n, "lastUpdated": at_ms}})
    return "\n".join(json.dumps(line, separators=(",", ":")) for line in lines).encode()


def _commit_info(n: int, at_ms: int) -> dict[str, Any]:
    return {
        "commitInfo": {"timestamp": at_ms, "operation": "CHANGE SCHEMA", delta_log.APPLICATION: n}
    }


def _protocol_lines(known: LakeTableMetadata, schema: str) -> list[dict[str, Any]]:
    """The features that a type of the new schema needs and the table has not declared yet."""
    needed = {feature for kind, feature in _FEATURES.items() if f'"{kind}"' in schema}
    if needed <= known.reader_features & known.writer_features:
        return []
    features = {
        "readerFeatures": sorted(known.reader_features | needed),
        "writerFeatures": sorted(known.writer_features | needed),
    }
    return [{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}]


def _add_line(file: DataFile, stats: str, at_ms: int) -> dict[str, Any]:
    facts = {"path": file.path, "partitionValues": {}, "size": file.size}
    return {"add": {**facts, "modificationTime": at_ms, "dataChange": True, "stats": stats}}


ATTEMPTS = 5

_ERRORS = (DeltaError, OSError, ValueError, KeyError, TypeError, pa.ArrowException)
"""What the library raises; its panics, which Python's exceptions do not include, come on top."""


@dataclass(frozen=True, slots=True)
class ActiveFile:
    """A file of a table's version, with the statistics that readers prune by."""

    path: str
    size: int
    rows: int
    count_min: int
    count_max: int
    ts_min: int
    ts_max: int


class LakeTable:
    """A Delta Lake table that we alone write."""

    def __init__(self, folder: Path, stored: pa.Schema, handle: DeltaTable) -> None:
        self.folder = folder
        self.stored = stored
        self._schema = Schema.from_arrow(stored)
        self._handle = handle
        self.version = int(handle.version())

    @staticmethod
    def open(folder: Path, stored: pa.Schema) -> LakeTable:
        with _translate_errors(folder, "open"):
            return LakeTable(folder, stored, DeltaTable(str(folder)))

    @staticmethod
    def create(folder: Path, stored: pa.Schema, name: str) -> LakeTable:
        """A table without files: version 0, synced."""
        with _translate_errors(folder, "create"):
            handle = DeltaTable.create(
                str(folder),
                schema=stored,
                name=name,
                configuration={"delta.enableExpiredLogCleanup": "false"},
                commit_properties=CommitProperties(custom_metadata={delta_log.APPLICATION: 0}),
                post_commithook_properties=_commit_hooks(),
            )
        disk.protect_folder(folder / "_delta_log")
        delta_log.sync_entry(folder, 0)
        disk.sync_folder(folder)
        return LakeTable(folder, stored, handle)

    def applied_record(self) -> int:
        """The newest record that this table holds; 0 for none."""
        with _translate_errors(self.folder, "update"):
            self._handle.update_incremental()
            refuse_other_version(self.folder, int(self._handle.version()), self.version)
            return self._handle.transaction_version(delta_log.APPLICATION) or 0

    def commit(
        self,
        n: int,
        at: float,
        adds: Sequence[DataFile],
        removes: Sequence[str] = (),
        *,
        rows_change: bool = True,
        overwrite: bool = False,
        facts: Mapping[str, Any] | None = None,
    ) -> int:
        """Apply record n of time `at` once; the version that holds it.

        `overwrite` replaces all files, and the schema if it is another one.
        """
        if self.applied_record() >= n:
            return self.version
        at_ms = int(at * 1000)
        signed = COUNT in self.stored.names
        actions: list[AddAction | RemoveAction] = [
            AddAction(f.path, f.size, {}, at_ms, rows_change, _file_statistics(f, signed))
            for f in adds
        ]
        actions += [RemoveAction(path, rows_change, at_ms) for path in removes]
        with _translate_errors(self.folder, "commit to"):
            self._handle.create_write_transaction(
                actions,
                mode="overwrite" if overwrite else "append",
                schema=self._schema,
                commit_properties=_commit_properties(n, facts or {}),
                post_commithook_properties=_commit_hooks(),
            )
        # Without retries it can only be the next one; the handle itself learns of it at the next
        # update, which then reads one entry instead of two.
        self.version += 1
        delta_log.sync_entry(self.folder, self.version)
        return self.version

    def commit_schema(self, n: int, at: float, stored: pa.Schema, adds: Sequence[DataFile]) -> int:
        """Apply record n once: from now on the table has the schema `stored`; its version."""
        if self.applied_record() >= n:
            return self.version
        schema = Schema.from_arrow(stored).to_json()
        described = [(file, _file_statistics(file, signed=True)) for file in adds]
        entry = encode_schema_entry(n, int(at * 1000), self._own_metadata(), schema, described)
        delta_log.write_entry(self.folder, self.version + 1, entry)
        self.version += 1
        return self.version

    def _own_metadata(self) -> LakeTableMetadata:
        protocol, metadata = self._handle.protocol(), self._handle.metadata()
        return LakeTableMetadata(
            {
                "id": str(metadata.id),
                "name": metadata.name,
                "description": metadata.description,
                "format": {"provider": "parquet", "options": {}},
                "partitionColumns": [],
                "createdTime": metadata.created_time,
                "configuration": metadata.configuration,
            },
            frozenset(protocol.reader_features or ()),
            frozenset(protocol.writer_features or ()),
        )

    def write_checkpoint(self) -> int:
        """Write a checkpoint of the newest version, synced; opening reads from there on."""
        self.applied_record()
        with _translate_errors(self.folder, "checkpoint"):
            self._handle.create_checkpoint()
        delta_log.sync_checkpoint(self.folder, self.version)
        return self.version

    def active_files(self) -> tuple[ActiveFile, ...]:
        """The files of the newest version."""
        self.applied_record()
        return _active_files(self._handle)

    def allow_naive_timestamps(self) -> None:
        """Let an older table take a schema with naive timestamps: a feature of its own."""
        features = self._handle.protocol().writer_features or []
        if "timestampNtz" in features or "timestamp_ntz" not in self._schema.to_json():
            return
        with _translate_errors(self.folder, "change the protocol of"):
            self._handle.alter.add_feature(
                TableFeatures.TimestampWithoutTimezone,
                allow_protocol_versions_increase=True,
                commit_properties=_commit_properties(max(1, self.applied_record()), {}),
                post_commithook_properties=_commit_hooks(),
            )
        self.version += 1
        self.applied_record()
        delta_log.sync_entry(self.folder, self.version)


def files_of(folder: Path, view: ViewHead) -> tuple[ActiveFile, ...]:
    """The files that a head names; for readers, who hold no lock.

    A writer may remove what replaced entries and checkpoints are made of while they are read, so
    everything is read again before anything is called damaged.
    """
    for attempt in range(ATTEMPTS):
        try:
            with _translate_errors(folder, "read"):
                files = _active_files(DeltaTable(str(folder), version=view.location.version))
            check_list(folder, view, files)
        except CorruptError:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return files
    raise AssertionError("the last attempt returns or raises")


def check_list(folder: Path, view: ViewHead, files: Sequence[ActiveFile]) -> None:
    """A CorruptError unless these are the files that the head names."""
    if not all(is_data_file_name(file.path) and _is_measured(file) for file in files):
        raise _other_list(folder, view, "it names files that are none of ours")
    if len(files) != view.files:
        raise _other_list(folder, view, f"it names {len(files)} files, the head {view.files}")
    listed = view.location.listed
    if listed is not None and list_digest(files) != listed:
        raise _other_list(folder, view, "it names other files than the head, or others of them")


def _is_measured(file: ActiveFile) -> bool:
    return all(isinstance(getattr(file, name), int) for name in ActiveFile.__slots__[1:])


def _other_list(folder: Path, view: ViewHead, detail: str) -> CorruptError:
    return CorruptError(
        f'Delta Lake log "{folder / "_delta_log"}": not the log of view "{view.view}" at record '
        "and version that the head names",
        detail=f"version {view.location.version}: {detail}",
        hint=restore_hint("folder _delta_log", view.view),
    )


def refuse_other_version(folder: Path, found: int, expected: int) -> None:
    """A CorruptError unless a table has the version that we gave it."""
    if found != expected:
        raise CorruptError(
            f'Delta Lake table "{folder}": its log is at version {found}, not at {expected}',
            detail="an entry is missing, or another writer added one",
            hint="views are written by one Viewkeeper process only: delete entries above "
            f"{expected} in {folder / '_delta_log'}; one that is missing comes from a backup, or "
            + reload_hint(),
        )


def _active_files(handle: DeltaTable) -> tuple[ActiveFile, ...]:
    actions = pa.table(handle.get_add_actions(flatten=True))
    plain = [actions[name].to_pylist() for name in ("path", "size_bytes", "num_records")]
    if f"max.{COUNT}" in actions.column_names:
        names = (f"min.{COUNT}", f"max.{COUNT}", f"min.{TS}", f"max.{TS}")
        measured = [actions[name].to_pylist() for name in names]
    else:
        measured = [[fixed] * actions.num_rows for fixed in (1, 1, 0, 0)]
    return tuple(ActiveFile(*facts) for facts in zip(*plain, *measured, strict=True))


def _file_statistics(file: DataFile, signed: bool) -> str:
    facts: dict[str, Any] = {"numRecords": file.rows}
    if signed:
        facts["minValues"] = {COUNT: file.count_min, TS: file.ts_min}
        facts["maxValues"] = {COUNT: file.count_max, TS: file.ts_max}
        facts["nullCount"] = {COUNT: 0, TS: 0}
    return json.dumps(facts)


def _commit_properties(n: int, facts: Mapping[str, Any]) -> CommitProperties:
    return CommitProperties(
        custom_metadata={delta_log.APPLICATION: n, **facts},
        max_commit_retries=0,
        app_transactions=[Transaction(delta_log.APPLICATION, n)],
    )


def _commit_hooks() -> PostCommitHookProperties:
    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:500]


@contextmanager
def _translate_errors(folder: Path, doing: str) -> Iterator[None]:
    """Turn the library's errors into ours."""
    try:
        yield
    except CommitFailedError as error:
        raise WarehouseError(
            f'Delta Lake table "{folder}": another writer committed to it',
            detail=str(error).splitlines()[0],
            hint="views are written by one Viewkeeper process only; stop the other, then run again",
        ) from error
    except BaseException as error:
        if not isinstance(error, _ERRORS) and type(error).__name__ != "PanicException":
            raise
        kind = CorruptError if doing in ("open", "read") else WarehouseError
        raise kind(
            f'Delta Lake table "{folder}": cannot {doing} it',
            detail=_first_line(error),
            hint="what was committed is in the records and is finished at the next start: look at "
            "the disk, then run again",
        ) from error
