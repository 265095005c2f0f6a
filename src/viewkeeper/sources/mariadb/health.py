"""A MariaDB source at this moment: how much of its binlog is still needed, and for how long it
will be there.

The server removes binlog files by their age, whoever still needs them. So the one that we stand in
is watched: how long ago it was closed is what the first event of the next file tells.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from viewkeeper.sources.mariadb.log import Log, log_files, newest
from viewkeeper.sources.mariadb.open import Connection, Server, texts
from viewkeeper.sources.mariadb.position import FIRST_OFFSET, file_of, offset_of, position_of
from viewkeeper.sources.mariadb.state import State
from viewkeeper.sources.mariadb.tail import server_id
from viewkeeper.sources.spool import Spool
from viewkeeper.updates.protocol import Behind, Health, Retained

_NEAR = 0.5


def health(
    server: Server,
    connection: Connection,
    reader: str,
    state: State | None,
    behind: Mapping[int, Behind],
) -> Health:
    position = newest(connection)
    if state is None:
        return Health(False, position, unit="bytes")
    files = log_files(connection)
    kept = retained(files, state.position)
    warnings = []
    if file_of(state.position) not in files:
        warnings.append(
            "binlog files that are still needed were removed: "
            "viewkeeper run --full-refresh VIEW loads its views anew"
        )
    elif max(files) > file_of(state.position):
        warnings += _expiry(server, connection, reader, state.position)
    mine = Retained(reader, True, state.position, kept)
    return Health(True, position, kept, "bytes", (mine,), behind, tuple(warnings))


def retained(files: Mapping[int, int], position: int) -> int:
    """How many bytes of the log lie behind a position."""
    own = file_of(position)
    later = sum(size for number, size in files.items() if number > own)
    return later + max(0, files.get(own, 0) - offset_of(position))


def _expiry(server: Server, connection: Connection, reader: str, position: int) -> list[str]:
    """A warning when the file that we stand in is likely to be removed before we leave it."""
    limit = float(texts(connection, "SELECT @@binlog_expire_logs_seconds")[0][0])
    if not limit:
        return []
    start = position_of(file_of(position) + 1, FIRST_OFFSET)
    log = Log(server, server_id(reader), start, blocking=False)
    try:
        closed_at = next((float(event.time) for event in log.events() if event.time), time.time())
    finally:
        log.close()
    age = time.time() - closed_at
    if age < _NEAR * limit:
        return []
    return [
        f"the server removes binlog files after {limit:g} seconds, and the one that is needed next "
        f"was closed {age:.0f} seconds ago: SET GLOBAL binlog_expire_logs_seconds = {2 * limit:.0f}"
    ]


def behind(spool: Spool, start: int, positions: Iterable[int]) -> dict[int, Behind]:
    """What lies beyond positions, as far as it has been read."""
    found = {}
    for position in positions:
        transactions = spool.transactions(position) if position >= start else ()
        if transactions:
            changes = sum(one.changes for one in transactions)
            found[position] = Behind(changes, transactions[0].committed_at)
    return found
