"""How a folder of files is, for `status` and `doctor`.

Nothing is changed here, and only what is kept and what the file system says is read, so that both
may be asked while somebody maintains; `doctor` reads the files through once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from viewkeeper.errors import SourceError
from viewkeeper.sources.files.accepted_states import AcceptedState, StateFolder
from viewkeeper.sources.files.file_parser import FileParser
from viewkeeper.sources.files.settings import FolderSettings
from viewkeeper.sources.files.table_files import Listing, list_table, require_folder
from viewkeeper.updates.source_protocol import ChangesBehind, Finding, Health, RetainedLog, Tables


def health_of(settings: FolderSettings, kept: StateFolder, positions: tuple[int, ...]) -> Health:
    states = [kept.read_state(number) for number in kept.list_numbers()]
    if not states:
        require_folder(settings)
        return Health(followed=False, position=None, unit="versions")
    for name, table in states[-1].tables.items():
        if not table.gone:
            list_table(settings, name)
    newest, problem = states[-1].number, kept.read_problem()
    oldest = min([p for p in positions if p >= states[0].number], default=newest)
    readers = [RetainedLog("this project", True, oldest, sum(s.number > oldest for s in states))]
    for lease in kept.leases.read_leases():
        amount = sum(state.number > lease.oldest for state in states)
        readers.append(RetainedLog(lease.name, True, lease.oldest, amount, lease.until))
    behind = {p: found for p in positions if (found := _measure_behind(states, p)) is not None}
    warnings = () if problem is None else (f"the newest state is not accepted: {problem}",)
    return Health(True, newest, len(states), "versions", tuple(readers), behind, warnings)


def _measure_behind(states: list[AcceptedState], position: int) -> ChangesBehind | None:
    later = [state for state in states if state.number > position]
    if not later:
        return None
    return ChangesBehind(sum(state.change_count for state in later), later[0].committed_at)


def diagnose_folder(settings: FolderSettings, kept: StateFolder, tables: Tables) -> list[Finding]:
    if not settings.folder.is_dir():
        text = f"{settings.folder} is not there"
        return [Finding("folder", "bad", text, f"mkdir -p {settings.folder}")]
    found = [Finding("folder", "good", f"{settings.folder}")]
    for table, columns in tables.items():
        try:
            listing = list_table(settings, table)
            found += _check_table(settings, table, tuple(columns), listing)
        except SourceError as error:
            found.append(Finding("files", "bad", error.message, error.hint))
    return [*found, *_check_state(kept), _measure_disk(kept)]


def _check_table(
    settings: FolderSettings, table: str, columns: tuple[str, ...], listing: Listing
) -> Iterator[Finding]:
    declared = settings.settings_of(table)
    parser, rows = FileParser(settings.source, settings.format, declared), 0
    for name in listing.files:
        path = settings.folder / name
        shape = parser.read_columns(path, name)
        rows += sum(batch.num_rows for batch in parser.read_batches(path, name, shape))
        wanted = (*columns, *declared.key, *declared.columns)
        lacking = [column for column in wanted if column not in shape.types_by_name()]
        if lacking:
            yield Finding("columns", "bad", f'{name} has no column "{lacking[0]}"')
    yield Finding("files", "good", f'"{table}": {len(listing.files)} files, {rows} rows')
    yield _check_hand_over(table, listing)
    ahead = max((s.changed_ns for s in listing.files.values()), default=0) / 1e9 - time.time()
    if ahead > 60:
        text = f'files of "{table}" were changed {ahead:.0f} seconds in the future'
        yield Finding(
            "clock", "warning", text, "set the clocks of their writers, or of this machine"
        )


def _check_hand_over(table: str, listing: Listing) -> Finding:
    if listing.is_open:
        text = f'"{table}": files are younger than _SUCCESS, so they are not taken'
        return Finding("hand-over", "warning", text, "write _SUCCESS anew when the files are whole")
    if listing.done_ns is not None:
        return Finding("hand-over", "good", f'"{table}": _SUCCESS is younger than every file')
    text = f'"{table}": no _SUCCESS file; files are taken when they have come to rest'
    return Finding("hand-over", "good", text)


def _check_state(kept: StateFolder) -> Iterator[Finding]:
    problem = kept.read_problem()
    if problem is not None:
        yield Finding("state", "bad", f"the newest state is not accepted: {problem}")
    elif numbers := kept.list_numbers():
        yield Finding("state", "good", f"state {numbers[-1]} is accepted")


def _measure_disk(kept: StateFolder) -> Finding:
    text = f"the kept copies take {kept.rows.measure_bytes() / (1 << 20):.1f} MB"
    return Finding("disk", "good", text)
