"""How a Delta Lake table is, for `status` and `doctor`.

The danger is particular to this kind: nothing can be held, so a view that lags behind longer than
the table keeps what it removed loses its way. Both commands say so before it happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from viewkeeper.errors import SourceError
from viewkeeper.sources.delta_lake import log
from viewkeeper.sources.delta_lake.snapshot import ChangeReader
from viewkeeper.sources.delta_lake.state import DeltaState
from viewkeeper.sources.delta_lake.table_version import DeltaVersion, VersionMetadata, open_version
from viewkeeper.sources.tables.column_type import TableColumns
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import ChangesBehind, Finding, Health, RetainedLog, Tables

# So many versions are counted for `status`; a view that is further behind is shown with those.
_COUNTED = 1_000
_SHORT_SECONDS = 24 * 3600.0


def health_of(
    reader: ChangeReader,
    state: DeltaState | None,
    version: int,
    shape: VersionMetadata,
    positions: tuple[int, ...],
) -> Health:
    if state is None:
        return Health(followed=False, position=version, unit="versions", advice=_feed_advice(shape))
    behind = {
        p: found for p in positions if (found := _measure_behind(reader, p, version)) is not None
    }
    oldest = min(positions, default=version)
    warnings = tuple(
        _vacuum_warnings(behind[oldest].oldest_at if oldest in behind else None, shape, oldest)
    )
    retained = max(version - oldest, 0)
    ours = (RetainedLog("this project", True, oldest, retained),)
    advice = _feed_advice(shape)
    return Health(True, version, retained, "versions", ours, behind, warnings, advice)


def _feed_advice(shape: VersionMetadata) -> str | None:
    if shape.has_feed:
        return None
    return (
        "it has no change data feed, so an update costs reading the files that it rewrote;"
        " SET TBLPROPERTIES ('delta.enableChangeDataFeed' = true) makes that cheap"
    )


def _measure_behind(reader: ChangeReader, position: int, version: int) -> ChangesBehind | None:
    changes, oldest_at = 0, None
    for number in range(position + 1, min(version, position + _COUNTED) + 1):
        try:
            commit = log.read_commit(reader.source, reader.folder.path, number)
            changes += reader.count_changes(commit)
        except (FileNotFoundError, SourceError):
            break
        oldest_at = commit.committed_at if oldest_at is None else oldest_at
    return None if oldest_at is None else ChangesBehind(changes, oldest_at)


def _vacuum_warnings(
    oldest_at: float | None, shape: VersionMetadata, position: int
) -> Iterator[str]:
    """Files that version p + 1 removed may be vacuumed one retention after it was committed."""
    if oldest_at is None:
        return
    left = oldest_at + shape.retention_seconds - time.time()
    if left < shape.retention_seconds / 2:
        when = "now" if left <= 0 else f"in {left / 3600:.1f} hours"
        yield (
            f"a view still needs version {position}, and VACUUM may delete its files {when};"
            " run viewkeeper, or raise delta.deletedFileRetentionDuration"
        )


def diagnose_table(
    folder: log.TableFolder, columns: Callable[[str], TableColumns], tables: Tables
) -> list[Finding]:
    """`columns` are those of a handle; a SchemaError if it stands for none."""
    try:
        version = open_version(folder)
        lost = list(_find_lost_files(version))
    except SourceError as error:
        return [Finding("table", "bad", error.message, error.hint)]
    return [
        Finding("table", "good", f"version {version.number} of {folder.path}"),
        *_check_columns(folder.source, columns, tables),
        *lost,
        _check_feed(version.shape),
        _check_retention(version.shape),
        *_check_clock(folder, version),
    ]


def _check_columns(
    source: str, columns: Callable[[str], TableColumns], tables: Tables
) -> Iterator[Finding]:
    for handle, names in tables.items():
        table = name_of_handle(handle)
        try:
            columns(handle).require_types(source, table, names)
        except SourceError as error:
            yield Finding("columns", "bad", error.message, error.hint)
        else:
            yield Finding("columns", "good", f'all columns of "{table}" that views read are there')


def _find_lost_files(version: DeltaVersion) -> Iterator[Finding]:
    lost = [file.name for file in version.data_files() if not file.path.is_file()]
    if lost:
        text = f"{len(lost)} data files of the newest version are missing, such as {lost[0]}"
        yield Finding("files", "bad", text, "restore the table, or run FSCK REPAIR TABLE")


def _check_feed(shape: VersionMetadata) -> Finding:
    if shape.has_feed:
        return Finding("change data feed", "good", "on")
    return Finding(
        "change data feed",
        "warning",
        "off: changes are found by comparing the files that each version rewrote",
        "ALTER TABLE ... SET TBLPROPERTIES ('delta.enableChangeDataFeed' = true)",
    )


def _check_retention(shape: VersionMetadata) -> Finding:
    hours = shape.retention_seconds / 3600
    text = f"removed files are kept {hours:.0f} hours"
    if shape.retention_seconds >= _SHORT_SECONDS:
        return Finding("retention", "good", text)
    mend = (
        "ALTER TABLE ... SET TBLPROPERTIES"
        " ('delta.deletedFileRetentionDuration' = 'interval 7 days')"
    )
    text += "; a view that is stopped longer than that must be loaded anew"
    return Finding("retention", "warning", text, mend)


def _check_clock(folder: log.TableFolder, version: DeltaVersion) -> Iterator[Finding]:
    try:
        commit = log.read_commit(folder.source, folder.path, version.number)
    except (FileNotFoundError, SourceError):
        return
    ahead = commit.committed_at - time.time()
    if ahead > 60:
        text = f"its newest commit lies {ahead:.0f} seconds in the future"
        yield Finding("clock", "warning", text, "set the clocks of its writers, or of this machine")
    else:
        yield Finding("clock", "good", "its newest commit is not in the future")
