"""All contact with the `deltalake` library.

The library opens tables, writes checkpoints and replaces whole tables; entries that add and remove
files, or change the schema, are composed here. What the protocol asks for is little, and an entry
of ours costs the same however many files a table has, while the library reads the log again for
each (8 ms at 10 files, 113 at 300).

An entry carries our record number as application transaction; it is applied only if the table's is
smaller, and an entry that is there already means another writer. The library syncs nothing, so its
entries and checkpoints are synced here. Its own checkpoints and log clean-up are off: both come at
our moments, and a checkpoint counts only once a head names it.

Handles stay open between commits and are brought up to date when they are asked something. Most
tables never need one, because short logs are read without the library (`listed_files.py`).
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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

from viewkeeper.errors import CorruptError, RequestTroubleError, WarehouseError, reload_hint
from viewkeeper.storage import stored_files
from viewkeeper.storage.disk import Guard, no_guard
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake import delta_log
from viewkeeper.warehouse.lake.listed_files import (
    ActiveFile,
    LogEntries,
    check_list,
    listed_entries,
    read_entries,
)
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.record import DataFile

_FEATURES = {"timestamp_ntz": "timestampNtz"}


@dataclass(frozen=True, slots=True)
class LakeTableMetadata:
    """What a table says of itself: its metadata, and the features that it has declared."""

    metadata: dict[str, Any]
    reader_features: frozenset[str]
    writer_features: frozenset[str]


def encode_entry(n: int, at_ms: int, lines: Sequence[dict[str, Any]], operation: str) -> bytes:
    """The entry of record n with these lines; our application transaction comes last."""
    about = {"timestamp": at_ms, "operation": operation, delta_log.APPLICATION: n}
    last = {"txn": {"appId": delta_log.APPLICATION, "version": n, "lastUpdated": at_ms}}
    return _encode_lines([{"commitInfo": about}, *lines, last])


def _encode_lines(lines: Sequence[dict[str, Any]]) -> bytes:
    return "\n".join(json.dumps(line, separators=(",", ":")) for line in lines).encode()


def schema_lines(known: LakeTableMetadata, schema: str) -> list[dict[str, Any]]:
    """The lines that give a table another schema."""
    return [
        *_protocol_lines(known, schema),
        {"metaData": {**known.metadata, "schemaString": schema}},
    ]


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


def _add_line(file: DataFile, at_ms: int, rows_change: bool, signed: bool) -> dict[str, Any]:
    facts = {"path": file.path, "partitionValues": {}, "size": file.size}
    stats = _file_statistics(file, signed)
    return {"add": {**facts, "modificationTime": at_ms, "dataChange": rows_change, "stats": stats}}


def _remove_line(path: str, at_ms: int, rows_change: bool) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": at_ms, "dataChange": rows_change}}


ATTEMPTS = 5

_ERRORS = (DeltaError, OSError, ValueError, KeyError, TypeError, pa.ArrowException)
"""What the library raises; its panics, which Python's exceptions do not include, come on top."""

# The library has no class for a request without an answer, which says nothing of the table.
_NO_ANSWER = re.compile(r"Generic (S3|GCS|MicrosoftAzure) error")


class LakeTable:
    """A Delta Lake table that we alone write; `guard` is asked before an entry gets its name.

    It is at a version, which holds a record; `handle` is the library's, if it was needed.
    """

    def __init__(
        self,
        folder: StoragePath,
        stored: pa.Schema,
        opened: DeltaTable | LogEntries,
        guard: Guard = no_guard,
    ) -> None:
        self.folder = folder
        self.stored = stored
        self._guard = guard
        if isinstance(opened, LogEntries):
            self._opened = None
            self.version, self._applied = opened.version, opened.applied
        else:
            self._opened = opened
            self.version, self._applied = int(opened.version()), _transaction_of(opened)

    @property
    def _handle(self) -> DeltaTable:
        if self._opened is None:
            with _translate_errors(self.folder, "open"):
                self._opened = _open_handle(self.folder, None)
        return self._opened

    @property
    def _schema(self) -> Schema:
        return Schema.from_arrow(self.stored)

    @staticmethod
    def open(
        folder: StoragePath, stored: pa.Schema, guard: Guard = no_guard, version: int | None = None
    ) -> LakeTable:
        """A table at its newest version, or at one; what is beyond that is written again."""
        with _translate_errors(folder, "open"):
            return LakeTable(folder, stored, _open_handle(folder, version), guard)

    @staticmethod
    def open_listed(
        folder: StoragePath, stored: pa.Schema, guard: Guard, view: ViewHead
    ) -> LakeTable | None:
        """A table whose log says what the head says, and no more; None if that is in doubt."""
        entries = listed_entries(folder, view)
        if entries is None or delta_log.entry_path(folder, entries.version + 1).is_file():
            return None
        return LakeTable(folder, stored, entries, guard)

    @staticmethod
    def create(
        folder: StoragePath, stored: pa.Schema, name: str, at: float, guard: Guard = no_guard
    ) -> LakeTable:
        """A table without files: version 0, durable. Its entry is our own: the same however often
        it is written at that time, and at a twentieth of what the library takes."""
        at_ms, schema = int(at * 1000), Schema.from_arrow(stored).to_json()
        stored_files.make_folder(folder / delta_log.LOG)
        # A folder may be emptied and used again, for another table.
        lasts = storage_of(folder).has_lasting_journal
        named = str(folder) if lasts else f"{folder} {at_ms}"
        plain = LakeTableMetadata({}, frozenset(), frozenset())
        protocol = _protocol_lines(plain, schema) or [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
        ]
        facts = {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, named)),
            "name": name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "configuration": {"delta.enableExpiredLogCleanup": "false"},
            "createdTime": at_ms,
        }
        about = {"timestamp": at_ms, "operation": "CREATE TABLE", delta_log.APPLICATION: 0}
        lines = [{"commitInfo": about}, *protocol, {"metaData": facts}]
        delta_log.write_entry(folder, 0, _encode_lines(lines), guard)
        if lasts:
            return LakeTable.open(folder, stored, guard, 0)
        stored_files.sync_folder(folder)
        return LakeTable(folder, stored, LogEntries(0, (), 0), guard)

    def applied_record(self) -> int:
        """The newest record that this table holds by its log; 0 for none."""
        if self._is_current():
            return self._applied
        with _translate_errors(self.folder, "update"):
            if not storage_of(self.folder).has_lasting_journal:
                self._handle.update_incremental()
            elif self._handle.version() != self.version:
                # Entries beyond it are those that redo is about to write.
                self._handle.load_as_version(self.version)
            refuse_other_version(self.folder, int(self._handle.version()), self.version)
        self._applied = _transaction_of(self._handle)
        return self._applied

    def _is_current(self) -> bool:
        """Whether the library is not needed to know that nobody else has written to the table."""
        following = delta_log.entry_path(self.folder, self.version + 1)
        return self._opened is None and not following.is_file()

    def commit(
        self,
        n: int,
        at: float,
        adds: Sequence[DataFile],
        removes: Sequence[str] = (),
        *,
        rows_change: bool = True,
    ) -> int:
        """Apply record n of time `at` once; the version that holds it."""
        at_ms, signed = int(at * 1000), COUNT in self.stored.names
        lines = [_add_line(file, at_ms, rows_change, signed) for file in adds]
        lines += [_remove_line(path, at_ms, rows_change) for path in removes]
        return self._commit_lines(n, at_ms, lines, "WRITE" if rows_change else "OPTIMIZE")

    def commit_schema(self, n: int, at: float, stored: pa.Schema, adds: Sequence[DataFile]) -> int:
        """Apply record n once: from now on the table has the schema `stored`; its version."""
        at_ms = int(at * 1000)
        lines = schema_lines(self._own_metadata(), Schema.from_arrow(stored).to_json())
        lines += [_add_line(file, at_ms, rows_change=True, signed=True) for file in adds]
        return self._commit_lines(n, at_ms, lines, "CHANGE SCHEMA")

    def _commit_lines(
        self, n: int, at_ms: int, lines: Sequence[dict[str, Any]], operation: str
    ) -> int:
        if self._applied < n:
            entry = encode_entry(n, at_ms, lines, operation)
            delta_log.write_entry(self.folder, self.version + 1, entry, self._guard)
            self.version += 1
            self._applied = n
        return self.version

    def replace_files(
        self, n: int, at: float, files: Sequence[DataFile], facts: Mapping[str, Any]
    ) -> int:
        """Replace all files, and the schema if it is another one; the version that holds n."""
        if self.applied_record() >= n:
            return self.version
        at_ms, signed = int(at * 1000), COUNT in self.stored.names
        actions: list[AddAction | RemoveAction] = [
            AddAction(f.path, f.size, {}, at_ms, True, _file_statistics(f, signed)) for f in files
        ]
        with _translate_errors(self.folder, "commit to"):
            self._handle.create_write_transaction(
                actions,
                mode="overwrite",
                schema=self._schema,
                commit_properties=_commit_properties(n, facts),
                post_commithook_properties=_commit_hooks(),
            )
        # Without retries it can only be the next one.
        self.version += 1
        delta_log.sync_entry(self.folder, self.version)
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
        if self._is_current() and (entries := read_entries(self.folder, self.version)):
            return entries.files
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


def library_files_of(folder: StoragePath, view: ViewHead) -> tuple[ActiveFile, ...]:
    """The same as the library, and with it everybody else, reads them.

    A writer may remove what replaced entries and checkpoints are made of while they are read, so
    everything is read again before anything is called damaged.
    """
    for attempt in range(ATTEMPTS):
        try:
            with _translate_errors(folder, "read"):
                files = _active_files(_open_handle(folder, view.location.version))
            check_list(folder, view, files)
        except (CorruptError, RequestTroubleError):
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return files
    raise AssertionError("the last attempt returns or raises")


def refuse_other_version(folder: StoragePath, found: int, expected: int) -> None:
    """A CorruptError unless a table has the version that we gave it."""
    if found != expected:
        raise CorruptError(
            f'Delta Lake table "{folder}": its log is at version {found}, not at {expected}',
            detail="an entry is missing, or another writer added one",
            hint="views are written by one Viewkeeper process only: delete entries above "
            f"{expected} in {folder / '_delta_log'}; one that is missing comes from a backup, or "
            + reload_hint(),
        )


def _open_handle(folder: StoragePath, version: int | None) -> DeltaTable:
    address = storage_of(folder).table_address(folder)
    for _ in range(ATTEMPTS - 1):
        try:
            return DeltaTable(address.url, version=version, storage_options=address.options)
        except _ERRORS as error:
            if not _has_no_answer(folder, error):
                raise
    return DeltaTable(address.url, version=version, storage_options=address.options)


def _has_no_answer(folder: StoragePath, error: BaseException) -> bool:
    """Whether the storage gave none, after the library's own repetitions."""
    return storage_of(folder).has_lasting_journal and bool(_NO_ANSWER.search(str(error)))


def _transaction_of(handle: DeltaTable) -> int:
    return handle.transaction_version(delta_log.APPLICATION) or 0


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
def _translate_errors(folder: StoragePath, doing: str) -> Iterator[None]:
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
        if _has_no_answer(folder, error):
            raise RequestTroubleError(
                f'Delta Lake table "{folder}": the storage gives no answer',
                detail=_first_line(error),
                hint="nothing is lost: check the endpoint and the network, then run again",
            ) from error
        kind = CorruptError if doing in ("open", "read") else WarehouseError
        raise kind(
            f'Delta Lake table "{folder}": cannot {doing} it',
            detail=_first_line(error),
            hint="what was committed is in the records and is finished at the next start: look at "
            "the disk, then run again",
        ) from error
