"""What is checked before anything is followed: the server, the tables, the rights, the url.

Every refusal and every finding of `doctor` says what to run to mend it. Whatever is said, the
password is not in it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.mariadb_database import Database, look
from viewkeeper.errors import ProjectError, SchemaError, SourceAwayError, ViewkeeperError
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.sources.mariadb.server_connection import MariadbServer
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.testing.private_servers import PrivateMariadb, free_port
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.updates.source_protocol import names_now_of
from viewkeeper.view.definition import Relation

COLUMNS = ["id", "v"]


@pytest.fixture
def database(mariadb_server: PrivateMariadb, tmp_path: Path) -> Iterator[Database]:
    opened = Database(mariadb_server, "checks", tmp_path)
    opened.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    yield opened
    opened.writer.close()


@pytest.fixture
def source(database: Database) -> Iterator[MariadbSource]:
    opened = database.source()
    yield opened
    opened.close()


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
    for attempt in (
        lambda: source.describe_table("r"),
        lambda: source.follow_tables({"r": ["id"]}),
    ):
        with pytest.raises(SchemaError, match=r'"checks\.r"') as caught:
            attempt()
        assert REFUSED[statement] in (caught.value.hint or "")
    findings = {one.check: one for one in source.diagnose_source({"r": ["id"]})}
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
    after = source.follow_tables({"child": ["id"], "t": COLUMNS})
    database.run(
        "ALTER TABLE child DROP FOREIGN KEY child_ibfk_1",
        "ALTER TABLE child ADD CONSTRAINT g FOREIGN KEY (p) REFERENCES t (id) ON DELETE CASCADE",
        "DELETE FROM t",
    )
    assert database.run("SELECT count(*) FROM child") == [(0,)]
    assert next(one.reshaped for one in source.look_for_transactions(after)) == (
        SchemaChange("recreate_table", "child"),
    )
    assert names_now_of(source, "child") is None
    with pytest.raises(SchemaError, match="changed by a foreign key itself"):
        source.describe_table(source.handle_of("child"))


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
            source.follow_tables({"t": COLUMNS})
        assert f"SET GLOBAL {setting} = {good}" in str(caught.value)
        findings = {one.check: one for one in source.diagnose_source({})}
        assert findings[setting].state == "bad"
        assert findings[setting].mend == f"SET GLOBAL {setting} = {good};"
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
            source.follow_tables({"t": COLUMNS})
        findings = {one.check: one.state for one in source.diagnose_source({"t": COLUMNS})}
        assert findings["log_bin"] == "bad"
        assert findings["table t"] == "good"
        source.close()
    finally:
        server.stop()


def test_rights_that_are_missing_are_named(database: Database) -> None:
    """The documented rights are enough, and doctor asks for exactly them."""
    user = "'least'@'127.0.0.1'"
    database.run(f"CREATE OR REPLACE USER {user} IDENTIFIED BY 'secret'")
    source = database.source(url=database.server.url_of(database.name, user="least"))
    granted: list[str] = []
    for one in source.diagnose_source({"t": COLUMNS}):
        if one.state == "bad":
            assert one.mend is not None
            granted.append(one.mend.splitlines()[0])
            database.run(granted[-1])
    source.close()
    assert sorted(granted) == [
        f"GRANT BINLOG MONITOR ON *.* TO {user};",
        f"GRANT REPLICATION SLAVE ON *.* TO {user};",
        f"GRANT SELECT ON `checks`.* TO {user};",
    ]
    assert all(one.state != "bad" for one in source.diagnose_source({"t": COLUMNS}))
    after = source.follow_tables({"t": COLUMNS})
    database.run("INSERT INTO t VALUES (1, 1)")
    (boundary,) = look(source, after)
    with source.prepare_snapshots(after, {"t": COLUMNS}) as opener:
        snapshot = opener()
        scan = snapshot.scan_relation(Relation("crm", "t"), COLUMNS, after)
        assert [batch.num_rows for batch in scan.batches] == [1]
        assert [batch.num_rows for batch in scan.tail] == [1]
        snapshot.close()
    source.acknowledge_position(boundary.position)
    assert all(one.state != "bad" for one in source.diagnose_source({"t": COLUMNS}))
    source.close()


def test_the_password_is_nowhere(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CRM_PASSWORD", "p@ss/w:rd?%41")
    user = "'odd'@'127.0.0.1'"
    database.run(f"CREATE OR REPLACE USER {user} IDENTIFIED BY 'p@ss/w:rd?%41'")
    database.run(f"GRANT ALL ON *.* TO {user}")
    port = database.server.port
    url = f"mariadb://odd:${{CRM_PASSWORD}}@127.0.0.1:{port}/checks"
    source = database.source(url=url)
    after = source.follow_tables({"t": COLUMNS})
    shown = [
        source.describe_source(),
        repr(source.diagnose_source({"t": COLUMNS})),
        repr(source.read_health([])),
    ]
    with source.prepare_snapshots(after, {"t": COLUMNS}) as opener:
        shown += [repr(opener), pickle.dumps(opener).decode("latin-1")]
    source.close()
    monkeypatch.setenv("CRM_PASSWORD", "wr@ng")
    with pytest.raises(SourceAwayError) as caught:
        source.look_for_transactions(after)
    assert "wrong password, or no such user" in caught.value.message
    shown += [str(caught.value), repr(caught.value.__dict__)]
    for wrong in (url.replace(str(port), str(free_port())), url + "?ssl_ca=missing.pem"):
        with pytest.raises(ViewkeeperError) as other:
            database.source(url=wrong).look_for_transactions(after)
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
        MariadbServer(SourceSettings("crm", "mariadb", {"url": url}, ".")).parse_address()


def test_a_url_may_have_everything() -> None:
    url = "mariadb://a%40b:c%3Ad@[::1]:3307/shop?ssl_ca=ca.pem&ssl_verify_identity=true"
    address = MariadbServer(
        SourceSettings("crm", "mariadb", {"url": url}, "/project")
    ).parse_address()
    assert (address.host, address.port, address.database) == ("::1", 3307, "shop")
    assert (address.user, address.password) == ("a@b", "c:d")
    assert dict(address.tls) == {"ssl_ca": "/project/ca.pem", "ssl_verify_identity": True}


def test_a_server_that_is_away_is_told(tmp_path: Path) -> None:
    url = f"mariadb://root:secret@127.0.0.1:{free_port()}/db"
    settings = SourceSettings("crm", "mariadb", {"url": url}, str(tmp_path), str(tmp_path))
    source = MariadbSource(settings, "test")
    with pytest.raises(SourceAwayError, match="does not answer"):
        source.describe_table("t")
    (finding,) = source.diagnose_source({})
    assert (finding.check, finding.state) == ("reachable", "bad")
