"""What a project remembers of a MariaDB source: what it follows, and up to where it has read.

Nothing of ours is in the database: any reader may read the binlog, and the server keeps it for as
long as it was told to. So the acknowledged position lives in a file of the warehouse, with the GTID
position that the server gave for it. A server that gives another one later is not the same any
more: its binlog was reset, or its data were restored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from viewkeeper.errors import GapError, SchemaError
from viewkeeper.sources import disk
from viewkeeper.sources.mariadb.log import Mark, event_after, log_base, log_end, log_files
from viewkeeper.sources.mariadb.open import Connection, Server, texts
from viewkeeper.sources.mariadb.position import (
    FIRST_OFFSET,
    file_name,
    file_of,
    offset_of,
    position_of,
    spelled,
)
from viewkeeper.sources.mariadb.table import Table
from viewkeeper.sources.mariadb.types import Declared, Kind, kind_of

_FILE = "state.json"


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """A table as it was when it was followed: its full name, and the types of its columns.

    The table may be another one by now; what the log has of it before that is still read by this.
    """

    source: str
    full_name: str
    columns: Mapping[str, Declared]

    def kept(self, name: str) -> tuple[str, Kind]:
        for column, declared in self.columns.items():
            if column.lower() == name.lower():
                kind = kind_of(declared)
                assert isinstance(kind, Kind), "only what can be kept is followed"
                return column, kind
        raise SchemaError(
            self.source, f'column "{name}" of table "{self.full_name}" is not followed'
        )


def extended(known: FollowedTable | None, table: Table, columns: Sequence[str]) -> FollowedTable:
    """A followed table with some columns more."""
    names = [table.kept(column)[0] for column in columns]
    added = {name: table.column(name).declared for name in names}
    before = known.columns if known is not None else {}
    return FollowedTable(table.source, table.full_name, {**before, **added})


def remaining(known: FollowedTable, table: Table) -> FollowedTable | None:
    """A followed table with those of its columns that are still what they were; None if it must
    not be followed any more."""
    if table.refusal() is not None:
        return None
    now = {column.name: column.declared for column in table.columns}
    same = {name: declared for name, declared in known.columns.items() if now.get(name) == declared}
    return FollowedTable(known.source, table.full_name, same)


@dataclass(frozen=True, slots=True)
class State:
    """The acknowledged position, its GTID position, when its file was begun, and the followed
    tables by what views call them."""

    position: int
    gtid: str
    born_at: int
    tables: Mapping[str, FollowedTable] = field(default_factory=dict)
    mark: Mark | None = None

    def table(self, source: str, name: str) -> FollowedTable:
        if name not in self.tables:
            raise SchemaError(source, f'table "{name}" is not followed')
        return self.tables[name]

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(table.columns) for name, table in self.tables.items()}


def read_state(home: Path) -> State | None:
    """What was written last; None if nothing is followed."""
    try:
        text = (home / _FILE).read_text()
    except FileNotFoundError:
        return None
    read = json.loads(text)
    tables = {
        name: FollowedTable(
            table["source"],
            table["full_name"],
            {column: Declared(**declared) for column, declared in table["columns"].items()},
        )
        for name, table in read["tables"].items()
    }
    mark = Mark(**read["mark"]) if read["mark"] else None
    return State(read["position"], read["gtid"], read["born_at"], tables, mark)


def write_state(home: Path, state: State) -> None:
    disk.replace(home / _FILE, json.dumps(asdict(state)).encode())


def remove_state(home: Path) -> bool:
    """Forget everything; whether there was something."""
    try:
        (home / _FILE).unlink()
    except FileNotFoundError:
        return False
    return True


def gtid_at(connection: Connection, position: int) -> str:
    """The GTID position of a place in the binlog; "" if the server does not know the place."""
    file = file_name(log_base(connection), file_of(position))
    return texts(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (file, offset_of(position)))[0][0]


def born_at(server: Server, server_id: int, position: int) -> int:
    """When the file that has a position was begun; a log that was reset begins with new files."""
    event = event_after(server, server_id, position_of(file_of(position), FIRST_OFFSET))
    return 0 if event is None else event.time


def check_place(connection: Connection, source: str, position: int) -> None:
    """A GapError unless the server still has its binlog from a position on."""
    place = spelled(log_base(connection), position)
    if position > log_end(connection):
        raise _gap(source, f"{place} lies beyond the end of its binlog", _RESTORED)
    if file_of(position) not in log_files(connection):
        raise _gap(source, f"its binlog does not begin before {place} any more", _PURGED)


def check_history(connection: Connection, server: Server, server_id: int, state: State) -> None:
    """A GapError unless this is the server, with the history, that was read up to now.

    Two histories that parted may have the same GTID at the same place, if their transactions are
    alike; so the event that ends there is looked at too.
    """
    check_place(connection, server.source, state.position)
    place = spelled(log_base(connection), state.position)
    if gtid_at(connection, state.position) != state.gtid:
        text = f"{place} is not the GTID position {state.gtid or 'at the beginning'} any more"
        raise _gap(server.source, text, _RESTORED)
    if born_at(server, server_id, state.position) != state.born_at:
        raise _gap(server.source, f"the file of {place} is not the one that was read", _RESTORED)
    if state.mark is not None and state.mark.can_be_read:
        found = event_after(server, server_id, state.mark.start)
        if found is None or (found.position, found.mark()) != (state.position, state.mark):
            text = f"what ends at {place} is another transaction than the one that was read"
            raise _gap(server.source, text, _RESTORED)


_PURGED = (
    "the server has removed binlog files that were still needed",
    "viewkeeper run --full-refresh VIEW loads its views anew; keep the binlog longer: "
    "SET GLOBAL binlog_expire_logs_seconds = 604800 (and in the server's configuration)",
)
_RESTORED = (
    "its data were restored, its binlog was reset, or another server answers under its address",
    "viewkeeper run --full-refresh VIEW loads its views anew",
)


def _gap(source: str, message: str, reason: tuple[str, str]) -> GapError:
    return GapError(source, message, detail=reason[0], hint=reason[1])
