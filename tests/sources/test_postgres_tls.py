"""Encrypted connections: what the url says of TLS holds for control, stream, answers and tasks."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from tests.sources.postgres_shop import as_of
from viewkeeper.errors import SourceError
from viewkeeper.sources.postgres import open_source
from viewkeeper.sources.postgres.answers import snapshot as shared
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.testing.private_servers import PrivatePostgres, give_away
from viewkeeper.updates.source_protocol import Lookup
from viewkeeper.view.definition import Relation

T = {"t": ["id", "v"]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivatePostgres]:
    """A server that takes encrypted connections only, with a certificate for 127.0.0.1."""
    made = PrivatePostgres(tmp_path / "server")
    key, certificate = tmp_path / "server.key", tmp_path / "server.crt"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*command, *files, *names], check=True, capture_output=True)
    made.start()
    made.stop()
    for file in (key, certificate):
        inside = Path(shutil.copy(file, made.folder / "data" / file.name))
        inside.chmod(0o600)
        give_away(inside)
    hba = made.folder / "data" / "pg_hba.conf"
    hba.write_text("hostssl all all all scram-sha-256\n")
    made._settings["ssl"] = "on"
    made.start()
    yield made
    made.stop()


def test_tls_options_of_the_url_are_passed_on(
    server: PrivatePostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(server.url_of() + "?sslmode=require", autocommit=True) as admin:
        admin.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
        admin.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        admin.execute("INSERT INTO t VALUES (1, 'a')")
        monkeypatch.setenv("PG_PASSWORD", "secret")
        place = server.url_of().replace(":secret@", ":${PG_PASSWORD}@")
        options = f"sslmode=verify-full&sslrootcert={tmp_path / 'server.crt'}"
        url = f"{place}?{options}"
        settings = SourceSettings("shop", "postgres", {"url": url}, "", str(tmp_path / "home"))
        with closing(open_source(settings, "reader")) as source:
            start = source.follow_tables(T)
            admin.execute("INSERT INTO t VALUES (2, 'b')")
            (boundary,) = source.look_for_transactions(start)
            assert boundary.changes == 1
            with source.prepare_snapshots(boundary.position, T) as opener:
                again = pickle.loads(pickle.dumps(opener))
                assert as_of(again, "t", ["id", "v"], boundary.position).total() == 2
                monkeypatch.setattr(shared, "_MANY_KEYS", 0)
                keys = pa.table({"id": pa.array([2], pa.int64())})
                on = Lookup(0, Relation("shop", "t"), ("v",), ("id",), (False,), keys)
                with closing(again()) as snapshot:
                    assert snapshot.answer_lookup(on, boundary.position).rows["v"].to_pylist() == [
                        "b"
                    ]
            source.detach_source()


def test_a_server_that_cannot_be_trusted_is_refused(
    server: PrivatePostgres, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger.crt"
    files = ["-keyout", os.devnull, "-out", str(stranger), "-subj", "/CN=stranger"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*command, *files], check=True, capture_output=True)
    url = f"{server.url_of()}?sslmode=verify-full&sslrootcert={stranger}"
    settings = SourceSettings("shop", "postgres", {"url": url}, "", str(tmp_path / "home"))
    refused = pytest.raises(SourceError, match="certificate")
    with closing(open_source(settings, "reader")) as source, refused as said:
        source.describe_table("t")
    assert "secret" not in str(said.value)
