"""What goes wrong ends in a named cause with the way out, or goes on exactly.

Restarts, a log that was removed or reset, restored data, missing rights, servers and tables that
cannot be followed. Whatever is said, the password is not in it.
"""

from __future__ import annotations

import pickle
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.mariadb_database import Database, changes, look
from viewkeeper.cli.servers import PrivateMariadb, free_port
from viewkeeper.errors import (
    GapError,
    ProjectError,
    SchemaError,
    SourceAwayError,
    ViewkeeperError,
)
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.sources.mariadb_open import Server, pairs
from viewkeeper.sources.mariadb_position import file_name, file_of
from viewkeeper.sources.settings import SourceSettings
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
    server._run(
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
        found = source.look(after)
    except SourceAwayError:
        found = source.look(after)
    return [one.changes for one in found]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restart_in_the_middle_loses_and_doubles_nothing(own: Database, how: str) -> None:
    source = own.source()
    after = source.follow({"t": COLUMNS})
    own.run("INSERT INTO t VALUES (1, 1)")
    assert look_when_back(source, after) == [1]
    own.run("INSERT INTO t VALUES (2, 2)")
    getattr(own.server, how)()
    with pytest.raises(SourceAwayError):
        source.look(after)
    own.server.start()
    again(own)
    own.run("INSERT INTO t VALUES (3, 3), (4, 4)")
    assert look_when_back(source, after) == [1, 1, 2]
    until = look(source, after)[-1].position
    rows = changes(source, "t", COLUMNS, after, until)
    assert [row[:3] for row in rows] == [(n, n, 1) for n in (1, 2, 3, 4)]
    source.acknowledge(until)
    source.close()
    later = own.source()
    assert later.look(until) == ()
    later.close()


def remove_logs(own: Database, position: int) -> None:
    """Remove the file that has a position; the server may still need it for a moment."""
    own.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    end = time.monotonic() + 20
    while file_name("binlog", file_of(position)) in [row[0] for row in own.run("SHOW BINARY LOGS")]:
        own.run(f"PURGE BINARY LOGS TO '{file_name('binlog', file_of(position) + 2)}'")
        assert time.monotonic() < end
        time.sleep(0.1)


def test_logs_that_were_removed_are_a_gap(own: Database) -> None:
    source = own.source()
    after = source.follow({"t": COLUMNS})
    own.run("INSERT INTO t VALUES (1, 1)")
    source.close()
    remove_logs(own, after)
    with pytest.raises(GapError, match="does not begin before") as caught:
        own.source().look(after)
    assert "binlog_expire_logs_seconds" in str(caught.value)
    findings = {one.check: one for one in own.source().diagnose({"t": COLUMNS})}
    assert findings["position"].state == "bad"
    assert "removed" in own.source().health([after]).warnings[0]


def test_logs_that_were_reset_are_a_gap(own: Database) -> None:
    own.run("RESET MASTER")
    source = own.source()
    after = source.follow({"t": COLUMNS})
    own.run("INSERT INTO t VALUES (1, 1)", "RESET MASTER")
    with pytest.raises(GapError, match=r"beyond|not the GTID position"):
        source.look(after)
    own.run(*(f"INSERT INTO t VALUES ({n}, {n})" for n in range(2, 60)))
    with pytest.raises(GapError, match="not the GTID position"):
        own.source().look(after)
    source.close()


def test_restored_data_are_a_gap(own: Database) -> None:
    source = own.source()
    after = source.follow({"t": COLUMNS})
    own.server.stop()
    data, backup = str(own.server.folder / "data"), str(own.server.folder / "backup")
    own.server._run("cp", "-a", data, backup)
    own.server.start()
    again(own)
    own.run("INSERT INTO t VALUES (1, 1)", "INSERT INTO t VALUES (2, 2)")
    assert look_when_back(source, after) == [1, 1]
    until = look(source, after)[-1].position
    source.acknowledge(until)
    own.server.stop()
    shutil.rmtree(data)
    own.server._run("cp", "-a", backup, data)
    own.server.start()
    with pytest.raises(GapError, match="lies beyond"):
        look_when_back(source, until)
    again(own)
    # The same transactions as before, so that they end at the same places.
    time.sleep(1)
    own.run(*(f"INSERT INTO t VALUES ({n}, {n})" for n in range(1, 20)))
    with pytest.raises(GapError, match="another transaction"):
        own.source().look(until)
    source.close()


def test_a_source_that_was_never_followed_is_a_gap(source: MariadbSource) -> None:
    with pytest.raises(GapError, match="not followed"):
        source.look(0)


def test_detaching_forgets_everything(database: Database, source: MariadbSource) -> None:
    assert not source.detach().was_following
    after = source.follow({"t": COLUMNS})
    assert source.health([]).followed
    assert source.detach().was_following
    with pytest.raises(GapError, match="not followed"):
        source.look(after)
    assert not source.health([]).followed


def test_health_tells_what_is_kept_and_what_is_behind(
    database: Database, source: MariadbSource
) -> None:
    after = source.follow({"t": COLUMNS})
    database.run("INSERT INTO t VALUES (1, 1), (2, 2)")
    (boundary,) = look(source, after)
    health = source.health([after, boundary.position])
    assert (health.position, health.unit) == (boundary.position, "bytes")
    assert health.retained == boundary.position - after == health.readers[0].amount
    assert health.behind[after].changes == 2
    assert boundary.position not in health.behind
    source.acknowledge(boundary.position)
    assert source.health([]).retained == 0
    assert source.health([]).warnings == ()


def test_health_warns_before_the_log_is_removed(
    database: Database, source: MariadbSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.follow({"t": COLUMNS})
    database.run("FLUSH BINARY LOGS", "SET GLOBAL binlog_expire_logs_seconds = 100")
    try:
        assert source.health([]).warnings == ()
        now = time.time()
        monkeypatch.setattr("viewkeeper.sources.mariadb_health.time.time", lambda: now + 80)
        (warning,) = source.health([]).warnings
        assert "binlog_expire_logs_seconds" in warning
    finally:
        database.run("SET GLOBAL binlog_expire_logs_seconds = 0")


def test_another_process_reads_beside_the_maintainer(
    database: Database, source: MariadbSource
) -> None:
    after = source.follow({"t": COLUMNS})
    database.run("INSERT INTO t VALUES (1, 1)")
    (boundary,) = look(source, after)
    beside = database.source()
    beside.hold("verify", 60)
    with beside.snapshots(after, {"t": COLUMNS}) as opener:
        snapshot = opener()
        scan = snapshot.scan(Relation("crm", "t"), COLUMNS, after)
        assert [batch.num_rows for batch in scan.batches] == [1]
        assert [batch["_position"].to_pylist() for batch in scan.tail] == [[boundary.position]]
        snapshot.close()
    beside.release("verify")
    beside.close()
    database.run("INSERT INTO t VALUES (2, 2)")
    assert len(source.look(boundary.position)) == 1, "the maintainer's stream goes on"


REFUSED = {
    "CREATE TABLE r (id INT PRIMARY KEY) ENGINE=MyISAM": "ENGINE=InnoDB",
    "CREATE TABLE r (id INT PRIMARY KEY) ENGINE=Aria": "ENGINE=InnoDB",
    "CREATE TABLE r (id INT PRIMARY KEY) WITH SYSTEM VERSIONING": "DROP SYSTEM VERSIONING",
    "CREATE SEQUENCE r": "ordinary table",
    "CREATE VIEW r AS SELECT id FROM t": "tables that it reads",
    "CREATE TABLE r (id INT PRIMARY KEY, p INT, CONSTRAINT f FOREIGN KEY (p) REFERENCES t (id)"
    " ON DELETE CASCADE)": "RESTRICT",
    "CREATE TABLE r (id INT PRIMARY KEY, p INT, CONSTRAINT f FOREIGN KEY (p) REFERENCES t (id)"
    " ON UPDATE SET NULL)": "RESTRICT",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_tables_that_cannot_be_captured_are_refused_with_the_way_out(
    database: Database, source: MariadbSource, statement: str
) -> None:
    database.run(statement)
    for attempt in (lambda: source.schema("r"), lambda: source.follow({"r": ["id"]})):
        with pytest.raises(SchemaError, match=r'"failures\.r"') as caught:
            attempt()
        assert REFUSED[statement] in (caught.value.hint or "")
    findings = {one.check: one for one in source.diagnose({"r": ["id"]})}
    assert findings["table r"].state == "bad"
    assert REFUSED[statement] in (findings["table r"].mend or "")


def test_cascades_are_not_logged_so_children_must_be_refused(
    database: Database, source: MariadbSource
) -> None:
    """The reason of the refusal, as it is on this server: else it could be lifted."""
    database.run(
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES t (id))",
        "INSERT INTO t VALUES (1, 1)",
        "INSERT INTO child VALUES (1, 1)",
    )
    after = source.follow({"child": ["id"], "t": COLUMNS})
    database.run(
        "ALTER TABLE child DROP FOREIGN KEY child_ibfk_1",
        "ALTER TABLE child ADD CONSTRAINT g FOREIGN KEY (p) REFERENCES t (id) ON DELETE CASCADE",
        "DELETE FROM t",
    )
    assert database.run("SELECT count(*) FROM child") == [(0,)]
    with pytest.raises(SchemaError, match="a foreign key was added"):
        source.look(after)


@pytest.mark.parametrize(
    ("setting", "value", "good"),
    [
        ("binlog_format", "MIXED", "ROW"),
        ("binlog_row_image", "NOBLOB", "FULL"),
        ("binlog_row_metadata", "MINIMAL", "FULL"),
    ],
)
def test_a_server_that_logs_too_little_is_refused(
    database: Database, source: MariadbSource, setting: str, value: str, good: str
) -> None:
    database.run(f"SET GLOBAL {setting} = {value}")
    try:
        with pytest.raises(SchemaError, match="cannot be followed") as caught:
            source.follow({"t": COLUMNS})
        assert f"SET GLOBAL {setting} = {good}" in str(caught.value)
        findings = {one.check: one for one in source.diagnose({})}
        assert findings[setting].state == "bad"
        assert findings[setting].mend == f"SET GLOBAL {setting} = {good}"
    finally:
        database.run(f"SET GLOBAL {setting} = {good}")


def test_a_server_without_a_log_is_refused(tmp_path: Path) -> None:
    server = PrivateMariadb(tmp_path / "server", {"skip-log-bin": "1"})
    server.start()
    try:
        database = Database(server, "nolog", tmp_path)
        database.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        source = database.source()
        with pytest.raises(SchemaError, match="log_bin"):
            source.follow({"t": COLUMNS})
        findings = {one.check: one.state for one in source.diagnose({"t": COLUMNS})}
        assert findings["log_bin"] == "bad"
        assert findings["table t"] == "good"
        source.close()
    finally:
        server.stop()


def test_rights_that_are_missing_are_named(database: Database) -> None:
    """The documented rights are enough, and doctor asks for exactly them."""
    user = "'least'@'127.0.0.1'"
    database.run(f"CREATE OR REPLACE USER {user} IDENTIFIED BY 'secret'")
    source = database.source(url=database.server.url(database.name, user="least"))
    granted: list[str] = []
    for _ in range(5):
        bad = [one for one in source.diagnose({"t": COLUMNS}) if one.state == "bad"]
        if not bad:
            break
        for one in bad:
            assert one.mend is not None
            granted.append(one.mend)
            database.run(one.mend)
        source.close()
    assert sorted(granted) == [
        f"GRANT BINLOG MONITOR ON *.* TO {user}",
        f"GRANT REPLICATION SLAVE ON *.* TO {user}",
        f"GRANT SELECT ON `failures`.`t` TO {user}",
    ]
    after = source.follow({"t": COLUMNS})
    database.run("INSERT INTO t VALUES (1, 1)")
    (boundary,) = look(source, after)
    with source.snapshots(after, {"t": COLUMNS}) as opener:
        snapshot = opener()
        scan = snapshot.scan(Relation("crm", "t"), COLUMNS, after)
        assert [batch.num_rows for batch in scan.batches] == [1]
        assert [batch.num_rows for batch in scan.tail] == [1]
        snapshot.close()
    source.acknowledge(boundary.position)
    assert all(one.state != "bad" for one in source.diagnose({"t": COLUMNS}))
    source.close()


def test_the_password_is_nowhere(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CRM_PASSWORD", "p@ss/w:rd?%41")
    user = "'odd'@'127.0.0.1'"
    database.run(f"CREATE OR REPLACE USER {user} IDENTIFIED BY 'p@ss/w:rd?%41'")
    database.run(f"GRANT ALL ON *.* TO {user}")
    port = database.server.port
    url = f"mariadb://odd:${{CRM_PASSWORD}}@127.0.0.1:{port}/failures"
    source = database.source(url=url)
    after = source.follow({"t": COLUMNS})
    shown = [source.describe(), repr(source.diagnose({"t": COLUMNS})), repr(source.health([]))]
    with source.snapshots(after, {"t": COLUMNS}) as opener:
        shown += [repr(opener), pickle.dumps(opener).decode("latin-1")]
    source.close()
    monkeypatch.setenv("CRM_PASSWORD", "wr@ng")
    with pytest.raises(SourceAwayError) as caught:
        source.look(after)
    shown += [str(caught.value), repr(caught.value.__dict__)]
    for wrong in (url.replace(str(port), str(free_port())), url + "?ssl_ca=missing.pem"):
        with pytest.raises(ViewkeeperError) as other:
            database.source(url=wrong).look(after)
        shown.append(str(other.value))
    shown += [path.read_text() for path in tmp_path.rglob("*.json")]
    assert not [text for text in shown if "p@ss" in text or "wr@ng" in text]


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("postgresql://x", "not of the form"),
        ("mariadb://u:p@host:port/db", "not a number"),
        ("mariadb://u:p@host/db?tls=1", 'unknown option "tls"'),
        ("mariadb://u:${NOT_SET_ANYWHERE}@host/db", "NOT_SET_ANYWHERE is not set"),
    ],
)
def test_a_url_that_is_wrong_is_told(url: str, complaint: str) -> None:
    with pytest.raises(ProjectError, match=complaint):
        Server(SourceSettings("crm", "mariadb", {"url": url}, ".")).address()


def test_a_url_may_have_everything() -> None:
    url = "mariadb://a%40b:c%3Ad@[::1]:3307/shop?ssl_ca=ca.pem&ssl_verify_identity=true"
    address = Server(SourceSettings("crm", "mariadb", {"url": url}, "/project")).address()
    assert (address.host, address.port, address.database) == ("::1", 3307, "shop")
    assert (address.user, address.password) == ("a@b", "c:d")
    assert dict(address.tls) == {"ssl_ca": "/project/ca.pem", "ssl_verify_identity": True}


def test_a_server_that_is_away_is_told(tmp_path: Path) -> None:
    url = f"mariadb://root:secret@127.0.0.1:{free_port()}/db"
    settings = SourceSettings("crm", "mariadb", {"url": url}, str(tmp_path), str(tmp_path))
    source = MariadbSource(settings, "test")
    with pytest.raises(SourceAwayError, match="does not answer"):
        source.schema("t")
    (finding,) = source.diagnose({})
    assert (finding.check, finding.state) == ("reachable", "bad")


def test_connections_are_encrypted_as_the_url_asks(own: Database) -> None:
    certificate = own.server.folder / "certificate.pem"
    base = f"mariadb://root:secret@127.0.0.1:{own.server.port}/own"
    for options in (f"ssl_ca={certificate}", f"ssl_ca={certificate}&ssl_verify_cert=true"):
        connection = Server(own.settings(url=f"{base}?{options}")).connect()
        assert pairs(connection, "SHOW STATUS LIKE 'Ssl_cipher'")["Ssl_cipher"]
        connection.close()
        source = own.source(url=f"{base}?{options}")
        after = source.follow({"t": COLUMNS})
        own.run("INSERT INTO t SELECT count(*), 1 FROM t")
        assert look(source, after), "the binlog is read by encrypted connections too"
        source.close()
    for options in ("ssl_verify_cert=true", f"ssl_ca={certificate}&ssl_verify_identity=true"):
        with pytest.raises(SourceAwayError, match="does not answer") as caught:
            own.source(url=f"{base}?{options}").schema("t")
        assert "certificate" in (caught.value.detail or "").lower()
