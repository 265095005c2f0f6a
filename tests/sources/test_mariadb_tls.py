"""What a MariaDB server must prove before it hears our password: to every connection that we open,
whoever answers."""

from __future__ import annotations

import pickle
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sources.mariadb_database import Database, look
from tests.sources.rogue_server import OK, RogueServer, greeting, switch
from viewkeeper.errors import ProjectError, SourceAwayError, SourceError
from viewkeeper.sources.mariadb.server_connection import Channel, MariadbServer, fetch_pairs
from viewkeeper.sources.mariadb.source import MariadbSource
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.testing.private_servers import PrivateMariadb, give_away
from viewkeeper.view.definition import Relation

PASSWORD = "hidden-word"
CLEAR = ["mysql_clear_password", "mysql_old_password", "dialog", "sha256_password"]


@dataclass(frozen=True, slots=True)
class Papers:
    """An authority, and what it signed: a certificate for 127.0.0.1 and one for elsewhere."""

    folder: Path

    def file(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    made = Papers(tmp_path_factory.mktemp("papers"))
    for authority in ("ca", "other-ca"):
        new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        files = ["-keyout", made.file(f"{authority}.key"), "-out", made.file(f"{authority}.pem")]
        subprocess.run([*new, *files, "-subj", f"/CN={authority}"], check=True, capture_output=True)
    for name, host in (("here", "IP:127.0.0.1"), ("elsewhere", "DNS:db.example.com")):
        new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"]
        files = ["-keyout", made.file(f"{name}.key"), "-out", made.file(f"{name}.csr")]
        subprocess.run([*new, *files], check=True, capture_output=True)
        (made.folder / f"{name}.txt").write_text(f"subjectAltName={host}\n")
        sign = ["openssl", "x509", "-req", "-days", "2", "-CAcreateserial"]
        by = ["-CA", made.file("ca.pem"), "-CAkey", made.file("ca.key")]
        files = ["-in", made.file(f"{name}.csr"), "-out", made.file(f"{name}.pem")]
        extension = ["-extfile", made.file(f"{name}.txt")]
        subprocess.run([*sign, *by, *files, *extension], check=True, capture_output=True)
    return made


def connect(port: int, query: str = "", host: str = "127.0.0.1") -> None:
    url = f"mariadb://keeper:{PASSWORD}@{host}:{port}/crm?{query}"
    MariadbServer(SourceSettings("crm", "mariadb", {"url": url}, ".")).open_connection().close()


@pytest.mark.parametrize(
    ("host", "query", "mode"),
    [
        ("127.0.0.1", "", "off"),
        ("localhost", "", "off"),
        ("db.example.com", "", "verify-full"),
        ("10.0.0.1", "ssl_cert=c.pem", "verify-full"),
        ("db.example.com", "ssl_ca=ca.pem", "verify-ca"),
        ("db.example.com", "ssl_verify_cert=true", "verify-ca"),
        ("db.example.com", "ssl_verify_identity=true", "verify-full"),
        ("db.example.com", "ssl_ca=ca.pem&ssl_verify_cert=false", "required"),
        ("db.example.com", "ssl_mode=required", "required"),
        ("db.example.com", "ssl_mode=off", "off"),
        ("127.0.0.1", "ssl_mode=VERIFY-FULL&ssl_ca=ca.pem", "verify-full"),
    ],
)
def test_another_machine_must_prove_its_name_unless_the_url_says_otherwise(
    host: str, query: str, mode: str
) -> None:
    url = f"mariadb://keeper@{host}/crm?{query}"
    address = MariadbServer(SourceSettings("crm", "mariadb", {"url": url}, ".")).parse_address()
    assert address.channel.mode == mode


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("ssl_mode=preferred", 'cannot be "preferred"'),
        ("ssl_mode=required&ssl_verify_cert=true", "both ssl_mode=required and ssl_verify_cert"),
        ("ssl_mode=off&ssl_ca=ca.pem", "both ssl_mode=off and ssl_ca"),
    ],
)
def test_options_that_make_no_sense_are_refused(query: str, complaint: str) -> None:
    with pytest.raises(ProjectError, match=complaint):
        connect(1, query)


@pytest.mark.parametrize("query", ["ssl_mode=required", "ssl_verify_cert=true", "ssl_ca=ca.pem"])
def test_encryption_is_never_given_up(papers: Papers, query: str) -> None:
    query = query.replace("ca.pem", papers.file("ca.pem"))
    refused = pytest.raises(SourceAwayError, match="with the encryption")
    with RogueServer([greeting(), OK]) as rogue, refused as caught:
        connect(rogue.port, query)
    assert rogue.heard == b""
    assert "ssl_mode" in (caught.value.hint or "")


def test_a_server_elsewhere_gets_nothing_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers in the place of another machine, and offers no encryption."""
    with RogueServer([greeting(), switch("mysql_clear_password"), OK]) as rogue:
        here = socket.create_connection
        there = ("db.example.com", rogue.port)
        monkeypatch.setattr(
            "socket.create_connection",
            lambda place, *rest, **more: here(
                ("127.0.0.1", rogue.port) if place == there else place, *rest, **more
            ),
        )
        with pytest.raises(SourceAwayError, match="with the encryption"):
            connect(rogue.port, host="db.example.com")
    assert rogue.heard == b""


@pytest.mark.parametrize("plugin", [*CLEAR, "caching_sha2_password", "made_up", "ä"])
@pytest.mark.parametrize("tls", ["off", "required", "verify-ca"])
def test_the_password_is_not_handed_over_to_whoever_asks(
    papers: Papers, plugin: str, tls: str
) -> None:
    data = b"\x02Password: " if plugin == "dialog" else b"abcdefghijklmnopqrst\0"
    script = [greeting(tls=tls != "off"), switch(plugin, data), b"\x01\x04", OK]
    certificate = papers.file("elsewhere.pem"), papers.file("elsewhere.key")
    query = f"ssl_mode={tls}" + (f"&ssl_ca={papers.file('ca.pem')}" if tls == "verify-ca" else "")
    refused = pytest.raises(SourceAwayError, match="with a proven name")
    with RogueServer(script, *(certificate if tls != "off" else ())) as rogue, refused as caught:
        connect(rogue.port, query)
    assert b"keeper\0" in rogue.heard, "it came as far as that"
    assert PASSWORD.encode() not in rogue.heard
    assert PASSWORD not in str(caught.value)
    assert "verify-full" in (caught.value.hint or "")


@pytest.mark.parametrize("plugin", ["sha256_password", "caching_sha2_password"])
def test_a_plugin_that_is_announced_gets_no_more(papers: Papers, plugin: str) -> None:
    """These send the password with the first answer, or encrypted by the server's own key."""
    for tls, script in ((True, [b"\x01\x04"]), (False, [b"\x01\x04", b"\x01KEY"])):
        query = "ssl_mode=required" if tls else "ssl_mode=off"
        files = (papers.file("elsewhere.pem"), papers.file("elsewhere.key")) if tls else ()
        refused = pytest.raises(SourceAwayError)
        with RogueServer([greeting(plugin, tls=tls), *script, OK], *files) as rogue, refused:
            connect(rogue.port, query)
        assert b"keeper\0" in rogue.heard
        assert PASSWORD.encode() not in rogue.heard


def test_a_server_that_proved_its_name_may_ask_for_the_password(papers: Papers) -> None:
    script = [greeting(tls=True), switch("mysql_clear_password"), OK]
    query = f"ssl_mode=verify-full&ssl_ca={papers.file('ca.pem')}"
    with RogueServer(script, papers.file("here.pem"), papers.file("here.key")) as known:
        connect(known.port, query)
    assert PASSWORD.encode() + b"\0" in known.heard
    wrong = [("elsewhere", "ca"), ("here", "other-ca")]
    for name, authority in wrong:
        query = f"ssl_mode=verify-full&ssl_ca={papers.file(f'{authority}.pem')}"
        files = papers.file(f"{name}.pem"), papers.file(f"{name}.key")
        with RogueServer(script, *files) as rogue, pytest.raises(SourceAwayError) as caught:
            connect(rogue.port, query)
        assert "certificate" in (caught.value.detail or "").lower()
        assert b"keeper" not in rogue.heard


def test_no_file_is_sent_to_a_server_that_asks_for_one(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("nobody's business")
    script = [greeting(), OK, OK, b"\xfb" + str(secret).encode()]
    refused = pytest.raises(SourceError, match="cannot be understood")
    with RogueServer(script) as rogue, refused:
        connect(rogue.port)
    assert b"nobody's business" not in rogue.heard


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, papers: Papers) -> Iterator[PrivateMariadb]:
    """A server with a certificate for 127.0.0.1; the user `keeper` must come encrypted."""
    made = PrivateMariadb(tmp_path_factory.mktemp("tls") / "server")
    made.folder.mkdir(parents=True, exist_ok=True)
    for name in ("here.pem", "here.key", "ca.pem"):
        inside = made.folder / name
        inside.write_bytes((papers.folder / name).read_bytes())
        give_away(inside)
    made._settings |= {
        "ssl-cert": str(made.folder / "here.pem"),
        "ssl-key": str(made.folder / "here.key"),
        "ssl-ca": str(made.folder / "ca.pem"),
    }
    made.start()
    yield made
    made.stop()


@pytest.fixture
def database(server: PrivateMariadb, tmp_path: Path) -> Database:
    made = Database(server, "crm", tmp_path)
    made.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        f"CREATE OR REPLACE USER keeper@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE SSL",
        "GRANT BINLOG MONITOR, REPLICATION SLAVE ON *.* TO keeper@'%'",
        "GRANT SELECT ON crm.* TO keeper@'%'",
    )
    return made


def url_of(database: Database, query: str) -> str:
    return f"mariadb://keeper:{PASSWORD}@127.0.0.1:{database.server.port}/crm?{query}"


def test_control_stream_answers_and_tasks_are_verified(database: Database, papers: Papers) -> None:
    query = f"ssl_mode=verify-full&ssl_ca={papers.file('ca.pem')}"
    source = database.source(url=url_of(database, query))
    with closing(source):
        after = source.follow_tables({"t": ["id", "v"]})
        database.run("INSERT INTO t VALUES (1, 1)")
        (boundary,) = look(source, after)
        with source.prepare_snapshots(boundary.position, {"t": ["id", "v"]}) as opener:
            again = pickle.loads(pickle.dumps(opener))
            with closing(again()) as snapshot:
                scan = snapshot.scan_relation(Relation("crm", "t"), ["id", "v"], boundary.position)
                assert [batch.num_rows for batch in scan.batches] == [1]
        threads = database.run(
            "SELECT count(*) FROM information_schema.processlist WHERE user = 'keeper'"
        )
        assert threads[0][0], "the user can come only encrypted"


@pytest.mark.parametrize("authority", ["other-ca", ""])
def test_a_server_that_cannot_be_trusted_is_refused(
    database: Database, papers: Papers, authority: str
) -> None:
    query = "ssl_mode=verify-full"
    query += f"&ssl_ca={papers.file(f'{authority}.pem')}" if authority else ""
    with closing(database.source(url=url_of(database, query))) as source:
        with pytest.raises(SourceAwayError, match="certificate") as caught:
            source.describe_table("t")
        assert PASSWORD not in str(caught.value)
        (finding,) = source.diagnose_source({})
        assert (finding.check, finding.state) == ("reachable", "bad")
        assert "ssl_ca=FILE" in (finding.mend or "")


def test_a_certificate_that_is_not_checked_is_told(
    database: Database, papers: Papers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state(query: str) -> tuple[str, str]:
        source: MariadbSource = database.source(url=url_of(database, query))
        with closing(source):
            (found,) = [one for one in source.diagnose_source({}) if one.check == "encryption"]
        return found.state, found.mend or ""

    assert state("ssl_mode=required")[0] == "good", "on this machine"
    monkeypatch.setattr(Channel, "is_local", property(lambda _: False))
    known = state(f"ssl_mode=verify-full&ssl_ca={papers.file('ca.pem')}")
    assert known == ("good", "")
    told, mend = state("ssl_mode=required")
    assert told == "warning"
    assert "ssl_mode=verify-full" in mend


def test_what_the_url_asks_for_is_what_the_server_sees(database: Database, papers: Papers) -> None:
    for query in ("ssl_mode=required", f"ssl_mode=verify-ca&ssl_ca={papers.file('ca.pem')}"):
        settings = database.settings(url=url_of(database, query))
        with closing(MariadbServer(settings).open_connection()) as connection:
            assert fetch_pairs(connection, "SHOW STATUS LIKE 'Ssl_cipher'")["Ssl_cipher"]
    with pytest.raises(SourceAwayError, match="wrong password, or no such user"):
        MariadbServer(database.settings(url=url_of(database, ""))).open_connection()
