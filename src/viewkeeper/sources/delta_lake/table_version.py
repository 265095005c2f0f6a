"""A Delta Lake table as of one version, by the `deltalake` library: its shape and its files.

The library replays the log, with its checkpoints; the data files are read by us, with Arrow
(`read`): the library's own reading is avoided, because processes that used it did not always
end well. A table that needs what we do not read (deletion vectors) is refused,
naming the feature, instead of being read without it. In a table that maps column names, files and
statistics have the names that stay when a column is renamed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import GapError, SchemaError, SourceAwayError, ViewkeeperError, reload_hint
from viewkeeper.sources.delta_lake import log
from viewkeeper.sources.delta_lake.version_shapes import SeenShape, physical_names
from viewkeeper.sources.files.parquet import Keys, ParquetInput, can_match
from viewkeeper.updates.source_protocol import TableSize

# What a reader may find in the protocol of a table and needs nothing for.
_HARMLESS = frozenset(
    (
        *("timestampNtz", "vacuumProtocolCheck", "v2Checkpoint", "columnMapping"),
        *("typeWidening", "typeWidening-preview"),
    )
)
_MENDING = {
    "deletionVectors": (
        "SET TBLPROPERTIES ('delta.enableDeletionVectors' = false), then REORG TABLE ... APPLY"
        " (PURGE) and ALTER TABLE ... DROP FEATURE deletionVectors"
    ),
    "columnMapping": "ALTER TABLE ... SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
}
# Statistics of longer texts are cut off.
_TEXT_MAX = 31
_BOUNDED = (pa.types.is_integer, pa.types.is_string, pa.types.is_date32)
_WEEK_SECONDS = 7 * 24 * 3600.0
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


@dataclass(frozen=True, slots=True)
class VersionMetadata:
    """What a version's metadata says: which table it is, its columns, how it is partitioned."""

    seen: SeenShape
    configuration: Mapping[str, str]

    @property
    def id(self) -> str:
        return self.seen.id

    @property
    def has_feed(self) -> bool:
        return self.configuration.get("delta.enableChangeDataFeed", "").lower() == "true"

    @property
    def retention_seconds(self) -> float:
        """How long files that a version removed stay before VACUUM may delete them."""
        return seconds_of(self.configuration.get("delta.deletedFileRetentionDuration", ""))


@dataclass(frozen=True, slots=True)
class DeltaVersion:
    """A table as of one version; `files` is a table of its files with their statistics."""

    folder: log.TableFolder
    number: int
    shape: VersionMetadata
    files: pa.Table

    def data_files(self, keys: Keys | None = None) -> Iterator[ParquetInput]:
        """The files whose partition and statistics do not rule the keys out; columns are called as
        in files."""
        paths, partitions = self._file_column("path"), self._partition_values()
        wanted = self._match_keys(keys) if keys else [True] * len(paths)
        for logged, fixed, matches in zip(paths, partitions, wanted, strict=True):
            if matches:
                yield ParquetInput(self.folder.locate_logged_file(logged), logged, fixed)

    def measure_size(self) -> TableSize:
        """What the log says of the files, their rows if it says so of every one."""
        has_rows = "num_records" in self.files.column_names
        rows: list[int | None] = self._file_column("num_records") if has_rows else []
        known = [each for each in rows if each is not None]
        total = sum(known) if len(known) == self.files.num_rows else None
        return TableSize(total, sum(self._file_column("size_bytes")))

    def _partition_values(self) -> list[dict[str, Any]]:
        if "partition" not in self.files.column_names:
            return [{}] * self.files.num_rows
        stored = physical_names(self.shape.seen.schema)
        return [
            {stored.get(name, name): value for name, value in partition.items()}
            for partition in self._file_column("partition")
        ]

    def _file_column(self, name: str) -> list[Any]:
        return self.files[name].to_pylist()

    def _match_keys(self, keys: Keys) -> list[bool]:
        wanted = [True] * self.files.num_rows
        for name in keys.values:
            lows, highs = self._statistics_of("min", name), self._statistics_of("max", name)
            if lows is None or highs is None:
                continue
            nulls = self._statistics_of("null_count", name) or [None] * len(wanted)
            for row, (low, high, null) in enumerate(zip(lows, highs, nulls, strict=True)):
                if _is_telling(low, high):
                    wanted[row] &= can_match(keys, name, low, high, null)
        return wanted

    def _statistics_of(self, what: str, column: str) -> list[Any] | None:
        """Statistics of a column, one value per file, if they bound what they stand for.

        Those of times are cut to milliseconds by some writers, and those of floating-point numbers
        say nothing of NaN.
        """
        if what not in self.files.column_names:
            return None
        kind: Any = self.files.schema.field(what).type
        index = kind.get_field_index(column)
        if index < 0 or not any(holds(kind.field(index).type) for holds in _BOUNDED):
            return None
        values: list[Any] = pc.struct_field(self.files[what], [index]).to_pylist()
        return values

    def partition_of(self, logged: str) -> dict[str, Any]:
        """The partition of an active file, for entries that do not say it."""
        pairs = zip(self._file_column("path"), self._partition_values(), strict=True)
        for path, partition in pairs:
            if path == logged:
                return partition
        raise GapError(
            self.folder.source,
            f"version {self.number + 1} removes a file that version {self.number} does not have",
            hint=reload_hint(),
        )


def _is_telling(low: object, high: object) -> bool:
    """Whether there are bounds at all; those of long texts are cut off."""
    if low is None or high is None:
        return False
    return not isinstance(high, str) or len(high) <= _TEXT_MAX


def open_version(folder: log.TableFolder, number: int | None = None) -> DeltaVersion:
    """The table as of a version, or as it is now."""
    with translate_library_errors(folder, number):
        handle = DeltaTable(str(folder.path), version=number)
        check_features(folder.source, handle)
        files = pa.table(handle.get_add_actions(flatten=False))
        found = int(handle.version())
        return DeltaVersion(folder, found, _read_metadata(handle, found), files)


def open_shape(folder: log.TableFolder) -> tuple[int, VersionMetadata]:
    """The newest version and its shape, without the list of its files."""
    with translate_library_errors(folder, None):
        handle = DeltaTable(str(folder.path))
        check_features(folder.source, handle)
        version = int(handle.version())
        return version, _read_metadata(handle, version)


def _read_metadata(handle: DeltaTable, version: int) -> VersionMetadata:
    metadata = handle.metadata()
    partitioned = tuple(metadata.partition_columns)
    seen = SeenShape(version, str(metadata.id), handle.schema().to_json(), partitioned)
    return VersionMetadata(seen, {k: v for k, v in metadata.configuration.items() if v is not None})


def check_features(source: str, handle: DeltaTable) -> None:
    """Refuse a table that needs what we do not read."""
    protocol = {"readerFeatures": handle.protocol().reader_features}
    metadata = {"configuration": handle.metadata().configuration}
    refuse_features(source, unsupported_features_of(protocol, metadata))


def unsupported_features_of(protocol: Mapping[str, Any], metadata: Mapping[str, Any]) -> set[str]:
    """The features that a protocol and metadata ask readers for and that we do not have."""
    needed = set(protocol.get("readerFeatures") or ()) - _HARMLESS
    mapping = (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none")
    return needed if mapping in ("none", "name") else needed | {"columnMapping"}


def refuse_features(source: str, needed: set[str]) -> None:
    for feature in sorted(needed):
        raise SchemaError(
            source,
            f"the table uses the feature {feature}, which is not read here",
            hint=_MENDING.get(feature, f"ALTER TABLE ... DROP FEATURE {feature}"),
            is_unreadable=True,
        )


@contextmanager
def translate_library_errors(folder: log.TableFolder, number: int | None) -> Iterator[None]:
    """What the library says about a table, in our terms.

    At a log that it did not expect it raises errors of many kinds, or panics: that is an exception
    of the Rust language, which Python's own do not include.
    """
    try:
        yield
    except ViewkeeperError:
        raise
    except TableNotFoundError as error:
        raise missing_table_error(folder.source, folder.path) from error
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if not log.log_folder_of(folder.path).is_dir():
            raise missing_table_error(folder.source, folder.path) from error
        detail = (str(error) or type(error).__name__).partition("\n")[0]
        if number is not None:
            raise gone_version_error(folder.source, number, detail) from error
        raise SourceAwayError(
            folder.source,
            "the table cannot be opened",
            detail=detail,
            hint="restore the table if its log is damaged; its views go on by themselves",
        ) from error


def missing_table_error(source: str, folder: Path) -> SourceAwayError:
    return SourceAwayError(
        source,
        f"there is no Delta Lake table in {folder}",
        hint="check the path, or create the table first",
    )


def gone_version_error(source: str, number: int, detail: str) -> GapError:
    return GapError(
        source,
        f"version {number} of the table cannot be read any more",
        detail=detail,
        hint=f"{reload_hint()}; and keep versions longer:"
        " delta.deletedFileRetentionDuration, delta.logRetentionDuration",
    )


def seconds_of(interval: str) -> float:
    """
    >>> seconds_of("interval 2 days")
    172800.0
    """
    found = re.fullmatch(r"(?:interval\s+)?(\d+)\s+([a-z]+?)s?", interval.strip().lower())
    if found is None or found[2] not in _UNITS:
        return _WEEK_SECONDS
    return float(int(found[1]) * _UNITS[found[2]])
