"""The health of a MariaDB source for `status`, and its findings for `doctor`.

Each finding has the statements that mend it. Rights are found out by using them, not by reading
grants: roles and wildcards would have to be understood for that, and a right that is there may
still not be enough.

The health says how much of the binlog is still needed, and for how long it will be there. The
server removes binlog files by their age, even while somebody needs them. So the file of our
position is watched: the first event of the next file says how long ago it was closed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace

import pymysql

from viewkeeper.errors import GapError, SourceError, reload_hint
from viewkeeper.sources.mariadb.binlog.log import (
    BinlogReader,
    make_server_id,
    read_log_files,
    read_newest_position,
)
from viewkeeper.sources.mariadb.follow import find_shortcomings, find_unlogged, read_variables
from viewkeeper.sources.mariadb.position import FIRST_OFFSET, file_of, offset_of, position_of
from viewkeeper.sources.mariadb.schema import MariadbTable, read_table_of_handle
from viewkeeper.sources.mariadb.server_connection import (
    Connection,
    MariadbServer,
    fetch_texts,
    quote_name,
)
from viewkeeper.sources.mariadb.state import MariadbState, check_history
from viewkeeper.sources.stream.spool import Spool
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import (
    ChangesBehind,
    Finding,
    Health,
    RetainedLog,
    finding_of_error,
)

_SHORT_SECONDS = 86_400
_CLOCK_SECONDS = 2.0


class MariadbDoctor:
    """Checks one source; `reader` is how we are called among those who follow it."""

    def __init__(self, server: MariadbServer, reader: str, state: MariadbState | None) -> None:
        self._server = server
        self._reader = reader
        self._state = state

    def collect_findings(self, tables: Mapping[str, Sequence[str]]) -> list[Finding]:
        try:
            connection = self._server.open_connection()
        except SourceError as error:
            return [finding_of_error("reachable", error)]
        try:
            with self._server.translate_errors():
                return list(self._check_all(connection, tables))
        except SourceError as error:
            return [finding_of_error("reachable", error)]
        finally:
            connection.close()

    def _check_all(
        self, connection: Connection, tables: Mapping[str, Sequence[str]]
    ) -> Iterator[Finding]:
        known = read_variables(connection)
        yield Finding("reachable", "good", f"{self._server.describe_address()}, {known['version']}")
        yield self._check_encryption()
        for name, wrong in find_shortcomings(known).items():
            if wrong is None:
                yield Finding(name, "good", f"{name} is {known[name]}")
            else:
                yield Finding(name, "bad", *wrong)
        rights = [*self._check_rights(connection)] if known["log_bin"] == "ON" else []
        yield from rights
        can_see = bool(rights) and all(right.state == "good" for right in rights)
        for name, columns in tables.items():
            yield from self._check_table(connection, name, columns, can_see)
        yield from self._check_retention(known)
        yield self._check_durability(known)
        if self._state is not None and can_see:
            yield self._check_position(connection, self._state)
        yield self._check_clock(connection)

    def _check_encryption(self) -> Finding:
        channel = self._server.parse_address().channel
        says = {
            "off": "nothing is encrypted",
            "required": "encrypted, but nobody's certificate is checked",
            "verify-ca": "encrypted, the certificate is checked, the host's name is not",
            "verify-full": "encrypted, certificate and host name are checked",
        }[channel.mode]
        if channel.is_local and channel.mode in ("off", "required"):
            return Finding("encryption", "good", f"{says}: the server is on this machine")
        if channel.mode in ("off", "required"):
            mend = "add ssl_mode=verify-full to the url, and ssl_ca=FILE with its authority"
            text = f"{says}: whoever answers in its place can read along and change what is read"
            return Finding("encryption", "warning", text, mend)
        return Finding("encryption", "good", says)

    def _check_rights(self, connection: Connection) -> Iterator[Finding]:
        """The right to see the binlog and the right to read it: neither hides the other."""
        user, newest = self._account(connection), 1
        try:
            files = read_log_files(connection)
        except pymysql.Error as error:
            mend = f"GRANT BINLOG MONITOR ON *.* TO {user};"
            yield Finding("right to see the binlog", "bad", str(error.args[-1]), mend)
        else:
            newest = max(files)
            yield Finding("right to see the binlog", "good", f"{len(files)} files")
        start = position_of(newest, FIRST_OFFSET)
        try:
            number = make_server_id(self._reader)
            # Who may not read it is not told either what is not there.
            with (
                suppress(GapError),
                closing(BinlogReader(self._server, number, start, blocking=False)) as log,
            ):
                next(log.read_events(), None)
        except SourceError as error:
            found = finding_of_error("right to read the binlog", error)
            yield replace(found, mend=f"GRANT REPLICATION SLAVE ON *.* TO {user};")
        else:
            yield Finding("right to read the binlog", "good", "it can be read")

    def _check_table(
        self, connection: Connection, name: str, columns: Sequence[str], can_see: bool
    ) -> Iterator[Finding]:
        check = f"table {name_of_handle(name)}"
        own = self._server.parse_address().database
        try:
            table = read_table_of_handle(connection, self._server.source, own, name)
        except SourceError as error:
            database = name.rpartition(".")[0] or own
            text = f"{finding_of_error(check, error).text}, or the user may not see it"
            mend = self._grant_select(connection, database)
            yield Finding(check, "bad", text, f"{mend}\n-- or mend its name; {error.hint}")
            return
        wrong = [*self._find_obstacles(connection, check, table, columns, can_see)]
        yield from wrong
        if not wrong:
            yield Finding(check, "good", f"InnoDB, {len(columns)} columns in use")

    def _find_obstacles(
        self,
        connection: Connection,
        check: str,
        table: MariadbTable,
        columns: Sequence[str],
        can_see: bool,
    ) -> Iterator[Finding]:
        """Everything that is wrong with a table that can be seen."""
        try:
            fetch_texts(connection, f"SELECT 1 FROM {table.quoted_name} LIMIT 0")
        except pymysql.Error as error:
            mend = self._grant_select(connection, table.database)
            yield Finding(check, "bad", str(error.args[-1]), mend)
        refusal = table.refusal_error()
        if refusal is not None:
            yield finding_of_error(check, refusal)
            return
        if can_see and find_unlogged(connection, [table.database]):
            mend = "-- remove binlog_do_db and binlog_ignore_db from the server's configuration"
            yield Finding(check, "bad", "changes of its database are not logged", mend)
        for name in columns:
            try:
                table.require_kept_column(name)
            except SourceError as error:
                yield finding_of_error(check, error)

    def _account(self, connection: Connection) -> str:
        return _quote_account(fetch_texts(connection, "SELECT CURRENT_USER()")[0][0])

    def _grant_select(self, connection: Connection, database: str) -> str:
        """Of the whole database: the grant of one table does not follow it when it is renamed."""
        place = quote_name(re.sub(r"([_%])", r"\\\1", database))
        return f"GRANT SELECT ON {place}.* TO {self._account(connection)};"

    def _check_retention(self, known: Mapping[str, str]) -> Iterator[Finding]:
        days = float(known.get("expire_logs_days") or 0)
        kept = float(known.get("binlog_expire_logs_seconds") or 0) or days * 86_400
        if kept and kept < _SHORT_SECONDS:
            yield Finding(
                "retention",
                "warning",
                f"the binlog is kept for {kept:g} seconds; who is away longer must load anew",
                "SET GLOBAL binlog_expire_logs_seconds = 604800;",
            )
        else:
            text = f"for {kept / 86_400:g} days" if kept else "until somebody removes it"
            yield Finding("retention", "good", f"the binlog is kept {text}")

    def _check_durability(self, known: Mapping[str, str]) -> Finding:
        if known.get("sync_binlog") == "1":
            return Finding("sync_binlog", "good", "sync_binlog is 1")
        return Finding(
            "sync_binlog",
            "warning",
            f"sync_binlog is {known.get('sync_binlog')}: a power cut may take from the log what "
            "was read of it, and views must be loaded anew then",
            "SET GLOBAL sync_binlog = 1;",
        )

    def _check_position(self, connection: Connection, state: MariadbState) -> Finding:
        try:
            check_history(connection, self._server, make_server_id(self._reader), state)
        except SourceError as error:
            return finding_of_error("position", error)
        behind = count_retained_bytes(read_log_files(connection), state.position)
        text = f"GTID position {state.gtid or 'none'}, {behind} bytes of binlog behind it"
        return Finding("position", "good", text)

    def _check_clock(self, connection: Connection) -> Finding:
        before = time.time()
        theirs = float(fetch_texts(connection, "SELECT UNIX_TIMESTAMP(NOW(6))")[0][0])
        ours = (before + time.time()) / 2
        text = f"its clock differs from ours by {theirs - ours:+.1f} seconds"
        if abs(theirs - ours) < _CLOCK_SECONDS:
            return Finding("clock", "good", text)
        return Finding("clock", "warning", text, "synchronise both machines with NTP")


def _quote_account(user: str) -> str:
    """The account of a session, as GRANT wants it.

    >>> _quote_account("viewkeeper@10.%")
    "'viewkeeper'@'10.%'"
    """
    name, _, host = user.rpartition("@")
    return f"'{name}'@'{host}'"


_NEAR = 0.5


def health_of(
    server: MariadbServer,
    connection: Connection,
    reader: str,
    state: MariadbState | None,
    behind: Mapping[int, ChangesBehind],
) -> Health:
    position = read_newest_position(connection)
    if state is None:
        return Health(False, position, unit="bytes")
    files = read_log_files(connection)
    kept = count_retained_bytes(files, state.position)
    warnings = []
    if file_of(state.position) not in files:
        warnings.append(f"binlog files that are still needed were removed: {reload_hint()}")
    elif max(files) > file_of(state.position):
        warnings += _expiry_warnings(server, connection, reader, state.position)
    mine = RetainedLog(reader, True, state.position, kept)
    return Health(True, position, kept, "bytes", (mine,), behind, tuple(warnings))


def count_retained_bytes(files: Mapping[int, int], position: int) -> int:
    """How many bytes of the log lie behind a position."""
    own = file_of(position)
    later = sum(size for number, size in files.items() if number > own)
    return later + max(0, files.get(own, 0) - offset_of(position))


def _expiry_warnings(
    server: MariadbServer, connection: Connection, reader: str, position: int
) -> list[str]:
    """A warning when the file that we stand in is likely to be removed before we leave it."""
    limit = float(fetch_texts(connection, "SELECT @@binlog_expire_logs_seconds")[0][0])
    if not limit:
        return []
    start = position_of(file_of(position) + 1, FIRST_OFFSET)
    with closing(BinlogReader(server, make_server_id(reader), start, blocking=False)) as log:
        closed_at = next(
            (float(event.time) for event in log.read_events() if event.time), time.time()
        )
    age = time.time() - closed_at
    if age < _NEAR * limit:
        return []
    return [
        f"the server removes binlog files after {limit:g} seconds, and the one that is needed next "
        f"was closed {age:.0f} seconds ago: SET GLOBAL binlog_expire_logs_seconds = {2 * limit:.0f}"
    ]


def measure_behind(spool: Spool, start: int, positions: Iterable[int]) -> dict[int, ChangesBehind]:
    """What lies beyond positions, as far as it has been read."""
    found = {}
    for position in positions:
        transactions = spool.transactions_after(position) if position >= start else ()
        if transactions:
            changes = sum(one.changes for one in transactions)
            found[position] = ChangesBehind(changes, transactions[0].committed_at)
    return found
