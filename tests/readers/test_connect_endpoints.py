"""`viewkeeper serve` at its edges: TLS, views of different ts in one query, and a server that dies.

A library of clients reads the certificates that it trusts once, so clients by TLS are programs.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import viewkeeper
from tests.readers.bank import ACCOUNTS, Bank
from tests.readers.connect_endpoint import (
    PATIENCE,
    Endpoint,
    connecting,
    serving,
    wait_for_no_process,
)
from viewkeeper.readers.connect.pinned_views import shared_ts_of
from viewkeeper.warehouse.compact import compact_view
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.store import Store

TOKEN = "a-secret-that-only-tests-and-readers-know"
ASKING = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
for query in sys.argv[2:]:
    try:
        rows = [list(row) for row in spark.sql(query).collect()]
        print(json.dumps(rows), flush=True)
    except Exception as error:
        print(json.dumps(str(error)), flush=True)
spark.stop()
"""
BOTH = """
SELECT (SELECT sum(amount) FROM evens) AS even, (SELECT sum(amount) FROM odds) AS odd,
       (SELECT max(n) FROM notes) AS newest
"""


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate that has signed itself, for localhost, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(pem))
    files[1].write_bytes(key.private_bytes(pem, form, plain))
    return files


@dataclass(frozen=True)
class SafeEndpoint:
    """A server that clients reach by TLS, over a bank and a list of notes in another database."""

    bank: Bank
    endpoint: Endpoint
    certificate: Path

    def ask(self, *queries: str, how: str = "use_ssl=true;token=" + TOKEN) -> list[Any]:
        """What a client gets that trusts the certificate: rows, or the text of an error."""
        return self.ask_with(self.certificate, *queries, how=how)

    def ask_with(self, trusted: Path, *queries: str, how: str) -> list[Any]:
        done = subprocess.run(
            [sys.executable, "-c", ASKING, f"sc://localhost:{self.endpoint.port}/;{how}", *queries],
            env={**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(trusted)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]


def note(bank: Bank, number: int) -> None:
    with closing(sqlite3.connect(bank.folder / "notes.db", timeout=60)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS note (n INTEGER PRIMARY KEY)")
        database.execute("INSERT INTO note VALUES (?)", (number,))


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """A bank whose third view reads another database."""
    bank = Bank(tmp_path_factory.mktemp("served"))
    note(bank, 1)
    file = bank.folder / "viewkeeper.yml"
    file.write_text(f"{file.read_text()}  other: {{kind: sqlite, path: notes.db}}\n")
    bank.define("notes", "SELECT n.n FROM other.note n")
    bank.refresh()
    return bank


@pytest.fixture(scope="module")
def safe(bank: Bank) -> Iterator[SafeEndpoint]:
    certificate, key = make_certificate(bank.folder)
    words = ("--certificate", str(certificate), "--key", str(key))
    with serving(bank.folder, *words, environment={"VIEWKEEPER_CONNECT_TOKEN": TOKEN}) as endpoint:
        assert endpoint.url.endswith(f":{endpoint.port}/;use_ssl=true;token=TOKEN")
        yield SafeEndpoint(bank, endpoint, certificate)


def test_clients_that_trust_the_certificate_are_let_in_by_their_token(safe: SafeEndpoint) -> None:
    count = "SELECT count(*) FROM odds"
    assert safe.ask(count) == [[[ACCOUNTS // 2]]]
    [said] = safe.ask(count, how="use_ssl=true;token=another-secret-that-is-long")
    assert "the token is missing or wrong" in said


def test_a_certificate_that_cannot_be_read_is_refused(bank: Bank) -> None:
    command = [sys.executable, "-m", "viewkeeper.cli.main", "serve", "127.0.0.1:0"]
    for words, said in (
        (("--certificate", "nowhere.pem", "--key", "key.pem"), "the certificate cannot be read"),
        (("--certificate", "bank.db", "--key", "bank.db"), "the certificate cannot be used"),
    ):
        done = subprocess.run(
            [*command, *words], cwd=bank.folder, capture_output=True, text=True, timeout=PATIENCE
        )
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_views_of_different_ts_are_read_as_of_the_one_that_they_share(
    safe: SafeEndpoint, spark: SparkSession
) -> None:
    """One source is away, so its view stands still while the others go on."""
    bank = safe.bank
    bank.transfer(0, 1, 5)
    note(bank, 2)
    bank.refresh()
    assert safe.ask(BOTH) == [[[-5, 5, 2]]]
    (bank.folder / "notes.db").rename(bank.folder / "away.db")
    bank.transfer(0, 1, 7)
    with viewkeeper.open(bank.folder) as project:
        assert list(project.refresh().waiting) == ["notes"]
    views = read_head(bank.warehouse).views
    assert views["notes"].ts < views["evens"].ts == views["odds"].ts
    # With the view that is behind the others are shown as they were then; without it, as they are.
    even = "SELECT sum(amount) FROM evens"
    assert safe.ask(BOTH, even) == [[[-5, 5, 2]], [[-12]]]
    with Store.open(bank.warehouse, "test", lambda: 0.0) as store:
        compact_view(store, spark, "evens", views["evens"].ts)
    said, *alone = safe.ask(BOTH, even, "SELECT max(n) FROM notes")
    assert "notes and evens have no state of one ts" in said
    assert "wait until notes has caught up" in said
    assert alone == [[[-12]], [[2]]]
    (bank.folder / "away.db").rename(bank.folder / "notes.db")
    note(bank, 3)
    bank.refresh()
    assert safe.ask(BOTH) == [[[-12, 12, 3]]]


def test_views_of_one_ts_are_read_as_they_are(bank: Bank) -> None:
    views = read_head(bank.warehouse).views
    assert shared_ts_of([views["evens"]]) is None
    assert shared_ts_of([views["evens"], views["odds"]]) is None
    assert shared_ts_of([]) is None


def test_a_server_that_is_killed_is_started_again_and_clients_connect_anew(bank: Bank) -> None:
    """Kill -9 in the middle of a query: it ends with an error, nothing of the server is left, and
    the next one at that port answers."""
    endless = "SELECT sum(a.id) FROM range(1000000000000) a"
    with serving(bank.folder) as first:
        waiting = [sys.executable, "-c", ASKING, first.url, "SELECT 'asks'", endless]
        with subprocess.Popen(waiting, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            assert json.loads(client.stdout.readline()) == [["asks"]]
            assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL
            wait_for_no_process(first.process.pid)
            with serving(bank.folder, port=first.port) as second:
                said, _ = client.communicate(timeout=PATIENCE)
                assert isinstance(json.loads(said), str), "an error, and no answer"
                with connecting(second.url) as session:
                    even, odd = session.sql(
                        "SELECT (SELECT sum(amount) FROM evens), (SELECT sum(amount) FROM odds)"
                    ).collect()[0]
                    assert even + odd == 0
                    with pytest.raises(PySparkException):
                        session.table("nothing").count()
