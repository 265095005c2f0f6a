"""What a project remembers of a MariaDB source: the tables it follows, and up to where it has read.

Nothing of ours is in the database: any reader may read the binlog, and the server keeps it for as
long as it is configured to. So the acknowledged position is among what the source remembers, with
the GTID position that the server gave for it. A server that gives another one later is not the same
any more: its binlog was reset, or its data were restored.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from viewkeeper.errors import GapError, reload_hint
from viewkeeper.sources.mariadb.binlog.event_frames import EventMark
from viewkeeper.sources.mariadb.binlog.log import (
    read_event_after,
    read_log_base,
    read_log_end,
    read_log_files,
)
from viewkeeper.sources.mariadb.logged_shapes import LoggedShapes, shapes_from_json, shapes_to_json
from viewkeeper.sources.mariadb.position import (
    FIRST_OFFSET,
    file_name_of,
    file_of,
    offset_of,
    position_of,
    spell_position,
)
from viewkeeper.sources.mariadb.server_connection import Connection, MariadbServer, fetch_texts
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.storage.typed_json import read_typed

_FILE = "state.json"


@dataclass(frozen=True, slots=True)
class MariadbState:
    """The acknowledged position, its GTID position, when its file was begun, and the shapes of the
    followed tables there; of those that were followed later, as they were then."""

    position: int
    gtid: str
    born_at: int
    shapes: LoggedShapes
    mark: EventMark | None = None


def read_state(files: StateFiles) -> MariadbState | None:
    """What was written last; None if nothing is followed."""
    readers = {LoggedShapes: shapes_from_json}
    return files.read_file(_FILE, "state", lambda stored: read_typed(MariadbState, stored, readers))


def write_state(files: StateFiles, state: MariadbState) -> None:
    body = {**asdict(state), "shapes": shapes_to_json(state.shapes)}
    files.write_file(_FILE, "state", body)


def remove_state(files: StateFiles) -> bool:
    """Forget everything; whether there was something."""
    return files.remove_files([_FILE])


def read_gtid_at(connection: Connection, position: int) -> str:
    """The GTID position of a place in the binlog; "" if the server does not know the place."""
    file = file_name_of(read_log_base(connection), file_of(position))
    return fetch_texts(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (file, offset_of(position)))[
        0
    ][0]


def read_file_time(server: MariadbServer, server_id: int, position: int) -> int:
    """When the file that has a position was begun; a log that was reset begins with new files."""
    event = read_event_after(server, server_id, position_of(file_of(position), FIRST_OFFSET))
    return 0 if event is None else event.time


def check_place(connection: Connection, source: str, position: int) -> None:
    """A GapError unless the server still has its binlog from a position on."""
    place = spell_position(read_log_base(connection), position)
    if position > read_log_end(connection):
        raise _gap_error(source, f"{place} lies beyond the end of its binlog", _RESTORED)
    if file_of(position) not in read_log_files(connection):
        raise _gap_error(source, f"its binlog does not begin before {place} any more", _PURGED)


def check_history(
    connection: Connection, server: MariadbServer, server_id: int, state: MariadbState
) -> None:
    """A GapError unless this is the server, with the history, that was read up to now.

    Two histories that parted may have the same GTID at the same place, if their transactions are
    alike; so the event that ends there is looked at too.
    """
    check_place(connection, server.source, state.position)
    place = spell_position(read_log_base(connection), state.position)
    if read_gtid_at(connection, state.position) != state.gtid:
        text = f"{place} is not the GTID position {state.gtid or 'at the beginning'} any more"
        raise _gap_error(server.source, text, _RESTORED)
    if read_file_time(server, server_id, state.position) != state.born_at:
        raise _gap_error(
            server.source, f"the file of {place} is not the one that was read", _RESTORED
        )
    if state.mark is not None and state.mark.can_be_read:
        found = read_event_after(server, server_id, state.mark.start)
        if found is None or (found.position, found.make_mark()) != (state.position, state.mark):
            text = f"what ends at {place} is another transaction than the one that was read"
            raise _gap_error(server.source, text, _RESTORED)


_PURGED = (
    "the server has removed binlog files that were still needed",
    f"{reload_hint()}; keep the binlog longer: "
    "SET GLOBAL binlog_expire_logs_seconds = 604800 (and in the server's configuration)",
)
_RESTORED = (
    "its data were restored, its binlog was reset, or another server answers under its address",
    reload_hint(),
)


def _gap_error(source: str, message: str, reason: tuple[str, str]) -> GapError:
    return GapError(source, message, detail=reason[0], hint=reason[1])
