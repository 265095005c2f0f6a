"""What goes wrong ends in a named cause with the way out, or goes on exactly.

Restarts, a log that was removed or reset, restored data, missing rights, servers and tables that
cannot be followed. Whatever is said, the password is not in it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sources.mariadb_database import Database, changes, look
from viewkeeper.errors import (
    GapError,
    SourceAwayError,
)
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.sources.mariadb.position import file_name_of, file_of
from viewkeeper.sources.mariadb.server_connection import MariadbServer, fetch_pairs
from viewkeeper.sources.mariadb.state import read_state, write_state
from viewkeeper.sources.state_files import FolderStateFiles
from viewkeeper.testing.private_servers import PrivateMariadb
from viewkeeper.view.definition import Relation

COLUMNS = ["id", "v"]


@pytest.fixture
def database(mariadb_server: PrivateMariadb, tmp_path: Path) -> Iterator[Database]:
    opened = Database(mariadb_server, "failures", tmp_path)
    opened.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    yield opened
    opened.writer.close()


@pytest.fixture
def source(database: Database) -> Iterator[MariadbSource]:
    opened = database.source()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateMariadb]:
    """A server that may be stopped, reset and replaced; it can encrypt its connections."""
    server = PrivateMariadb(tmp_path_factory.mktemp("own") / "server")
    server.start()
    server.stop()
    server._settings |= make_certificate(server)
    server.start()
    yield server
    server.stop()


def make_certificate(server: PrivateMariadb) -> dict[str, str]:
    """A certificate that vouches for itself, as the server's options."""
    key, certificate = str(server.folder / "key.pem"), str(server.folder / "certificate.pem")
    server._run_program(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=localhost", "-keyout", key, "-out", certificate),
    )
    return {"ssl-cert": certificate, "ssl-key": key, "ssl-ca": certificate}


@pytest.fixture
def own(own_server: PrivateMariadb, tmp_path: Path) -> Database:
    opened = Database(own_server, "own", tmp_path)
    opened.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    return opened


def again(own: Database) -> None:
    """A writer for a server that was restarted."""
    own.writer = own.connect()


def look_when_back(source: MariadbSource, after: int) -> list[int]:
    """The first look finds the connection lost; the next one works."""
    try:
        found = source.look_for_transactions(after)
    except SourceAwayError:
        found = source.look_for_transactions(after)
    return [one.changes for one in found]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restart_in_the_middle_loses_and_doubles_nothing(own: Database, how: str) -> None:
    source = own.source()
    after = source.follow_tables({"t": COLUMNS})
    own.run("INSERT INTO t VALUES (1, 1)")
    assert look_when_back(source, after) == [1]
    own.run("INSERT INTO t VALUES (2, 2)")
    getattr(own.server, how)()
    with pytest.raises(SourceAwayError):
        source.look_for_transactions(after)
    own.server.start()
    again(own)
    own.run("INSERT INTO t VALUES (3, 3), (4, 4)")
    assert look_when_back(source, after) == [1, 1, 2]
    until = look(source, after)[-1].position
    rows = changes(source, "t", COLUMNS, after, until)
    assert [row[:3] for row in rows] == [(n, n, 1) for n in (1, 2, 3, 4)]
    source.acknowledge_position(until)
    source.close()
    later = own.source()
    assert later.look_for_transactions(until) == ()
    later.close()


def remove_logs(own: Database, position: int) -> None:
    """Remove the file that has a position; the server may still need it for a moment."""
    own.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    end = time.monotonic() + 20
    while file_name_of("binlog", file_of(position)) in [
        row[0] for row in own.run("SHOW BINARY LOGS")
    ]:
        own.run(f"PURGE BINARY LOGS TO '{file_name_of('binlog', file_of(position) + 2)}'")
        assert time.monotonic() < end
        time.sleep(0.1)


def test_logs_that_were_removed_are_a_gap(own: Database) -> None:
    source = own.source()
    after = source.follow_tables({"t": COLUMNS})
    own.run("INSERT INTO t VALUES (1, 1)")
    source.close()
    remove_logs(own, after)
    with pytest.raises(GapError, match="does not begin before") as caught:
        own.source().look_for_transactions(after)
    assert "binlog_expire_logs_seconds" in str(caught.value)
    findings = {one.check: one for one in own.source().diagnose_source({"t": COLUMNS})}
    assert findings["position"].state == "bad"
    assert "removed" in own.source().read_health([after]).warnings[0]


def test_logs_that_were_reset_are_a_gap(own: Database) -> None:
    own.run("RESET MASTER")
    source = own.source()
    after = source.follow_tables({"t": COLUMNS})
    time.sleep(1.1)
    own.run("INSERT INTO t VALUES (1, 1)", "RESET MASTER")
    with pytest.raises(GapError, match="not the one that was read"):
        source.look_for_transactions(after)
    own.run(*(f"INSERT INTO t VALUES ({n}, {n})" for n in range(2, 60)))
    with pytest.raises(GapError, match=r"not the (one that was read|GTID position)"):
        own.source().look_for_transactions(after)
    source.close()


def test_logs_that_were_reset_and_grew_again_are_a_gap(own: Database) -> None:
    """Between two looks; where we stand, a transaction of the same size ends in the new log."""
    own.run("RESET MASTER")
    source = own.source()
    after = source.follow_tables({"t": COLUMNS})
    own.run(*(f"INSERT INTO t VALUES ({n}, {n})" for n in range(10, 20)))
    reached = source.look_for_transactions(after)[-1].position
    own.run("RESET MASTER", *(f"INSERT INTO t VALUES ({n}, {n})" for n in range(20, 50)))
    with pytest.raises(GapError, match="does not have any more"):
        source.look_for_transactions(reached)
    source.close()


def test_nothing_is_acknowledged_to_another_server(own: Database) -> None:
    """Else what is remembered would fit the server that was never read."""
    own.run("RESET MASTER")
    source = own.source()
    source.follow_tables({"t": COLUMNS})
    own.run("FLUSH BINARY LOGS", "INSERT INTO t VALUES (1, 1)")
    (boundary,) = source.look_for_transactions(newest_of(source))
    own.run("INSERT INTO t VALUES (2, 2)")
    before = read_state(FolderStateFiles(own.folder / "home"))
    time.sleep(1.1)
    own.run("RESET MASTER", "FLUSH BINARY LOGS", "DELETE FROM t")
    assert source._session.connection is not None
    source._session.connection.close()
    with pytest.raises(GapError):
        source.acknowledge_position(boundary.position)
    assert read_state(FolderStateFiles(own.folder / "home")) == before
    source.close()


def newest_of(source: MariadbSource) -> int:
    """What the source remembers to have acknowledged."""
    state = read_state(source._capture.files)
    assert state is not None
    return state.position


def test_restored_data_are_a_gap(own: Database) -> None:
    source = own.source()
    after = source.follow_tables({"t": COLUMNS})
    own.server.stop()
    data, backup = str(own.server.folder / "data"), str(own.server.folder / "backup")
    own.server._run_program("cp", "-a", data, backup)
    own.server.start()
    again(own)
    own.run("INSERT INTO t VALUES (1, 1)", "INSERT INTO t VALUES (2, 2)")
    assert look_when_back(source, after) == [1, 1]
    until = look(source, after)[-1].position
    source.acknowledge_position(until)
    own.server.stop()
    shutil.rmtree(data)
    own.server._run_program("cp", "-a", backup, data)
    own.server.start()
    with pytest.raises(GapError, match="lies beyond"):
        look_when_back(source, until)
    again(own)
    # The same transactions as before, so that they end at the same places.
    time.sleep(1)
    own.run(*(f"INSERT INTO t VALUES ({n}, {n})" for n in range(1, 20)))
    # Another file, or in the same second the same file with another transaction.
    with pytest.raises(GapError, match="the one that was read"):
        own.source().look_for_transactions(until)
    source.close()


def test_a_machine_that_was_set_back_is_a_gap(database: Database, source: MariadbSource) -> None:
    """Its server goes on in the same file, and may have other transactions at the same places."""
    after = source.follow_tables({"t": COLUMNS})
    database.run("INSERT INTO t VALUES (1, 1)")
    (boundary,) = look(source, after)
    source.acknowledge_position(boundary.position)
    home = database.folder / "home"
    state = read_state(FolderStateFiles(home))
    assert state is not None
    assert state.mark is not None
    earlier = replace(state.mark, time=state.mark.time - 1)
    write_state(FolderStateFiles(home), replace(state, mark=earlier))
    with pytest.raises(GapError, match="another transaction than the one that was read"):
        database.source().look_for_transactions(boundary.position)


def test_following_again_goes_on_after_a_gap(own: Database) -> None:
    """Who loads its views anew follows first, at the server as it is now."""
    source = own.source()
    lost = source.follow_tables({"t": COLUMNS})
    own.run("CREATE TABLE gone (id INT PRIMARY KEY)")
    source.follow_tables({"gone": ["id"], "t": COLUMNS})
    own.run("INSERT INTO t VALUES (1, 1)", "DROP TABLE gone")
    source.close()
    remove_logs(own, lost)
    later = own.source()
    with pytest.raises(GapError):
        later.look_for_transactions(lost)
    assert later.handle_of("t") == "t"
    assert [field.name for field in later.describe_table("t").fields] == COLUMNS
    after = later.follow_tables({"t": COLUMNS, "gone": ["id"]})
    own.run("INSERT INTO t VALUES (2, 2)")
    (boundary,) = later.look_for_transactions(after)
    assert changes(later, "t", COLUMNS, after, boundary.position) == [(2, 2, 1, boundary.position)]
    later.close()


def test_a_source_that_was_never_followed_is_a_gap(source: MariadbSource) -> None:
    with pytest.raises(GapError, match="not followed"):
        source.look_for_transactions(0)


def test_detaching_forgets_everything(database: Database, source: MariadbSource) -> None:
    assert not source.detach_source().was_following
    after = source.follow_tables({"t": COLUMNS})
    assert source.read_health([]).followed
    assert source.detach_source().was_following
    with pytest.raises(GapError, match="not followed"):
        source.look_for_transactions(after)
    assert not source.read_health([]).followed


def test_health_tells_what_is_kept_and_what_is_behind(
    database: Database, source: MariadbSource
) -> None:
    after = source.follow_tables({"t": COLUMNS})
    database.run("INSERT INTO t VALUES (1, 1), (2, 2)")
    (boundary,) = look(source, after)
    health = source.read_health([after, boundary.position])
    assert (health.position, health.unit) == (boundary.position, "bytes")
    assert health.retained == boundary.position - after == health.readers[0].amount
    assert health.behind[after].changes == 2
    assert boundary.position not in health.behind
    source.acknowledge_position(boundary.position)
    assert source.read_health([]).retained == 0
    assert source.read_health([]).warnings == ()


def test_health_warns_before_the_log_is_removed(
    database: Database, source: MariadbSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.follow_tables({"t": COLUMNS})
    database.run("FLUSH BINARY LOGS", "SET GLOBAL binlog_expire_logs_seconds = 100")
    try:
        assert source.read_health([]).warnings == ()
        now = time.time()
        monkeypatch.setattr("viewkeeper.sources.mariadb.doctor.time.time", lambda: now + 80)
        (warning,) = source.read_health([]).warnings
        assert "binlog_expire_logs_seconds" in warning
    finally:
        database.run("SET GLOBAL binlog_expire_logs_seconds = 0")


def test_another_process_reads_beside_the_maintainer(
    database: Database, source: MariadbSource
) -> None:
    after = source.follow_tables({"t": COLUMNS})
    database.run("INSERT INTO t VALUES (1, 1)")
    (boundary,) = look(source, after)
    beside = database.source()
    beside.begin_hold("verify", 60)
    with beside.prepare_snapshots(after, {"t": COLUMNS}) as opener:
        snapshot = opener()
        scan = snapshot.scan_relation(Relation("crm", "t"), COLUMNS, after)
        assert [batch.num_rows for batch in scan.batches] == [1]
        assert [batch["_position"].to_pylist() for batch in scan.tail] == [[boundary.position]]
        snapshot.close()
    beside.end_hold("verify")
    beside.close()
    database.run("INSERT INTO t VALUES (2, 2)")
    assert len(source.look_for_transactions(boundary.position)) == 1, (
        "the maintainer's stream goes on"
    )


def test_connections_are_encrypted_as_the_url_asks(own: Database) -> None:
    certificate = own.server.folder / "certificate.pem"
    base = f"mariadb://root:secret@127.0.0.1:{own.server.port}/own"
    for options in (f"ssl_ca={certificate}", f"ssl_ca={certificate}&ssl_verify_cert=true"):
        connection = MariadbServer(own.settings(url=f"{base}?{options}")).open_connection()
        assert fetch_pairs(connection, "SHOW STATUS LIKE 'Ssl_cipher'")["Ssl_cipher"]
        connection.close()
        source = own.source(url=f"{base}?{options}")
        after = source.follow_tables({"t": COLUMNS})
        own.run("INSERT INTO t SELECT count(*), 1 FROM t")
        assert look(source, after), "the binlog is read by encrypted connections too"
        source.close()
    for options in ("ssl_verify_cert=true", f"ssl_ca={certificate}&ssl_verify_identity=true"):
        with pytest.raises(SourceAwayError, match="does not answer") as caught:
            own.source(url=f"{base}?{options}").describe_table("t")
        assert "certificate" in (caught.value.detail or "").lower()
