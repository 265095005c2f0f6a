"""`viewkeeper serve`: clients of Spark Connect read one ts at a time, and do nothing else."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql.connect import functions as F  # noqa: N812 - as every Spark program calls it
from pyspark.sql.connect.session import SparkSession as RemoteSession

from tests.cli.conftest import call
from tests.readers.bank import ACCOUNTS, VIEWS, Bank
from tests.readers.connect_endpoint import (
    PATIENCE,
    Endpoint,
    connecting,
    serving,
    wait_for_no_process,
)
from tests.readers.test_changes_feed_command import maintaining
from viewkeeper.readers.connect import connect_service

TOTAL = """
SELECT (SELECT sum(amount) FROM evens) AS even, (SELECT sum(amount) FROM odds) AS odd,
       (SELECT count(*) FROM evens JOIN odds ON evens.id = odds.id - 1) AS pairs
"""
TOKEN = "a-secret-that-only-tests-and-readers-know"
SCRIPT = """
import sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
rows = spark.sql("SELECT count(*) AS n FROM evens JOIN odds USING (amount)").collect()
print([row.asDict() for row in rows])
evens = spark.table("evens")
evens.where(F.col("id") < 4).orderBy("id").show()
print(evens.count(), evens.schema.simpleString(), list(evens.toPandas().columns))
print([table.name for table in spark.catalog.listTables()])
spark.stop()
"""


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    bank = Bank(tmp_path_factory.mktemp("served"))
    bank.refresh()
    return bank


@pytest.fixture(scope="module")
def endpoint(bank: Bank) -> Iterator[Endpoint]:
    """The endpoint of all tests here; Ctrl-C ends it, and nothing is left of it."""
    with serving(bank.folder) as endpoint:
        yield endpoint
        assert endpoint.end(signal.SIGINT)[0] == 0
        wait_for_no_process(endpoint.process.pid)


@pytest.fixture
def remote(endpoint: Endpoint) -> Iterator[RemoteSession]:
    with connecting(endpoint.url) as session:
        yield session


def read_totals(session: RemoteSession) -> tuple[int, int, int]:
    even, odd, pairs = session.sql(TOTAL).collect()[0]
    return even, odd, pairs


def test_a_program_of_its_own_reads_views_as_tables(endpoint: Endpoint) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, endpoint.url],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert lines[0] == "[{'n': 25}]"
    assert "|  2|     0|NULL|" in lines
    assert lines[-2].startswith("5 struct<id:bigint,amount:bigint,note:string> ['id', 'amount'")
    assert lines[-1] == "['evens', 'odds']"


def test_the_catalogue_has_the_views_and_nothing_else(remote: RemoteSession) -> None:
    assert [table.name for table in remote.catalog.listTables()] == ["evens", "odds"]
    assert [table.name for table in remote.catalog.listTables(pattern="ev*")] == ["evens"]
    columns = [(each.name, each.dataType) for each in remote.catalog.listColumns("odds")]
    assert columns == [("id", "bigint"), ("amount", "bigint")]
    assert remote.catalog.tableExists("evens")
    assert not remote.catalog.tableExists("viewkeeper_1")
    assert [row.tableName for row in remote.sql("SHOW TABLES").collect()] == ["evens", "odds"]
    assert [row.col_name for row in remote.sql("DESCRIBE odds").collect()] == ["id", "amount"]


def test_no_secret_is_in_an_argument_that_every_user_can_read(endpoint: Endpoint) -> None:
    arguments = [Path(f"/proc/{each}/cmdline").read_bytes() for each in endpoint.processes()]
    assert any(b"spark.connect.grpc.binding.port" in each for each in arguments)
    assert not any(b"authenticate.secret" in each for each in arguments)
    assert not any(b"authenticate.token" in each for each in arguments)


def test_quantified_comparisons_are_read(remote: RemoteSession) -> None:
    condition = "amount >= ALL (SELECT amount FROM evens)"
    wanted = remote.sql("SELECT * FROM evens WHERE amount = (SELECT max(amount) FROM evens)")
    for found in (
        remote.sql(f"SELECT * FROM evens WHERE {condition}"),
        remote.table("evens").where(condition),
    ):
        assert {row.id for row in found.collect()} == {row.id for row in wanted.collect()} != set()


def test_a_state_of_the_past_is_an_option(bank: Bank, remote: RemoteSession) -> None:
    first = remote.read.option("asOf", 1).table("evens")
    bank.transfer(0, 2, 11)
    bank.refresh()
    amounts = {row.amount for row in remote.table("evens").collect()}
    assert {-11, 11} <= amounts
    assert {row.amount for row in first.collect()} == {0}
    bank.transfer(2, 0, 11)
    bank.refresh()


DOUBLED: Any = F.udf(lambda x: 2 * x)
REFUSED: dict[str, tuple[Callable[[RemoteSession], Any], str]] = {
    "create": (lambda s: s.sql("CREATE TABLE t AS SELECT 1"), "only SELECT"),
    "insert": (lambda s: s.sql("INSERT INTO evens VALUES (1, 2, '')"), "only SELECT"),
    "drop": (lambda s: s.sql("DROP VIEW evens"), "only SELECT"),
    "set": (lambda s: s.sql("SET spark.sql.caseSensitive=true"), "only SELECT"),
    "saveAsTable": (lambda s: s.table("evens").write.saveAsTable("t"), "it writes"),
    "write": (lambda s: s.table("evens").write.parquet("/tmp/never"), "it writes"),
    "writeTo": (lambda s: s.table("evens").writeTo("t").create(), "it writes"),
    "view": (lambda s: s.table("evens").createOrReplaceTempView("t"), "keep the state of one ts"),
    "cache": (lambda s: s.table("evens").cache(), "keep the state of one ts"),
    "udf": (
        lambda s: s.table("evens").select(DOUBLED(F.col("id"))).collect(),
        "functions of a client run code here",
    ),
    "mapInPandas": (
        lambda s: s.table("evens").mapInPandas(lambda x: x, "id LONG").collect(),
        "functions of a client run code here",
    ),
    "file": (lambda s: s.read.text("/etc/passwd").collect(), "no files"),
    "file in SQL": (lambda s: s.sql("SELECT * FROM text.`/etc/passwd`"), "is not a view"),
    "file as table": (lambda s: s.table("text.`/etc/passwd`").collect(), "is not a view"),
    "pinned": (lambda s: s.table("global_temp.viewkeeper_1").collect(), "is not a view"),
    "java": (lambda s: s.sql("SELECT reflect('java.lang.System', 'getenv')"), "reflect"),
    "artifact": (lambda s: s.addArtifact(__file__, file=True), "are not taken"),
    "secret": (lambda s: s.conf.get("spark.connect.authenticate.token"), "may not read"),
    "meaning": (lambda s: s.conf.set("spark.sql.caseSensitive", "true"), "may not set"),
    "unknown": (lambda s: s.table("evans").collect(), 'did you mean "evens"?'),
    "stream": (lambda s: s.readStream.table("evens").schema, "streams are refused"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_everything_but_reading_is_refused(remote: RemoteSession, what: str) -> None:
    ask, said = REFUSED[what]
    with pytest.raises(PySparkException) as caught:
        ask(remote)
    assert said in str(caught.value)
    assert "hint: " in str(caught.value)


def test_an_error_of_a_query_tells_nothing_of_the_machine(remote: RemoteSession) -> None:
    with pytest.raises(PySparkException) as caught:
        remote.sql("SELECT 1 / 0 FROM evens").collect()
    assert "DIVIDE_BY_ZERO" in str(caught.value)
    assert "org.apache.spark" not in str(caught.value)


def test_a_query_sees_one_ts_while_writers_kills_and_reloads_go_on(
    bank: Bank, remote: RemoteSession
) -> None:
    seen = set[int]()
    evens, odds = remote.table("evens").select("id", "amount"), remote.table("odds")
    both = evens.union(odds).agg(F.sum("amount"), F.count("*"))
    with bank.writing(seed=3, pause=0.02):
        for words in ((), (), ("--full-refresh", "evens")):
            wanted, deadline = len(seen) + 4, time.monotonic() + PATIENCE
            with maintaining(bank, *words):
                while len(seen) < wanted:
                    assert time.monotonic() < deadline, "nothing new was seen"
                    even, odd, pairs = read_totals(remote)
                    assert (even + odd, pairs) == (0, ACCOUNTS // 2)
                    assert tuple(both.collect()[0]) == (0, ACCOUNTS)
                    seen.add(even)
    # Without a maintainer the last state is read.
    assert read_totals(remote) == read_totals(remote)


def test_a_view_that_is_dropped_or_new_is_gone_or_there_at_once(
    bank: Bank, remote: RemoteSession
) -> None:
    bank.define("notes", "SELECT a.id, a.note FROM bank.account a")
    bank.refresh()
    notes = remote.table("notes")
    assert notes.count() == ACCOUNTS
    (bank.folder / "views" / "notes.sql").unlink()
    assert call("--project", str(bank.folder), "drop", "notes", "--yes").exit_code == 0
    with pytest.raises(PySparkException, match="notes is not a view of this project"):
        notes.count()
    assert [table.name for table in remote.catalog.listTables()] == sorted(VIEWS)


def test_many_clients_at_once_get_one_ts_each(bank: Bank, endpoint: Endpoint) -> None:
    def ask(number: int) -> list[tuple[int, int, int]]:
        session = RemoteSession.builder.remote(endpoint.url).create()
        try:
            return [read_totals(session) for _ in range(3)]
        finally:
            session.stop()

    with bank.writing(seed=4), maintaining(bank), ThreadPoolExecutor(6) as threads:
        answers = [each for found in threads.map(ask, range(6)) for each in found]
    assert len(answers) == 18
    assert {(even + odd, pairs) for even, odd, pairs in answers} == {(0, ACCOUNTS // 2)}


def test_a_client_that_dies_in_a_query_and_garbage_harm_nobody(
    endpoint: Endpoint, remote: RemoteSession
) -> None:
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 64, b""):
        with socket.create_connection(("127.0.0.1", endpoint.port), timeout=PATIENCE) as stranger:
            stranger.sendall(garbage)
    text = (
        "import sys; from pyspark.sql import SparkSession; "
        "spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate(); "
        "print('asks', flush=True); "
        "spark.range(10**12).selectExpr('sum(id)').collect()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text, endpoint.url], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "asks\n"
        time.sleep(1)
        client.kill()
    assert read_totals(remote)[2] == ACCOUNTS // 2


def test_bytes_that_are_no_request_are_refused(endpoint: Endpoint) -> None:
    method = "/spark.connect.SparkConnectService/"
    with grpc.insecure_channel(f"127.0.0.1:{endpoint.port}") as channel:
        for name in ("AnalyzePlan", "Config", "ReleaseExecute", "ReleaseSession", "Nothing"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(method + name)(b"\xff\xff\xff", timeout=60)
            assert caught.value.code() is not grpc.StatusCode.UNKNOWN, name
        for name in ("ExecutePlan", "ReattachExecute"):
            with pytest.raises(grpc.RpcError) as caught:
                list(channel.unary_stream(method + name)(b"\xff\xff\xff", timeout=60))
            assert caught.value.code() is not grpc.StatusCode.UNKNOWN, name


def test_a_token_is_asked_for_and_sigterm_ends_all_processes(bank: Bank) -> None:
    with serving(bank.folder, environment={"VIEWKEEPER_CONNECT_TOKEN": TOKEN}) as endpoint:
        assert endpoint.url == f"sc://localhost:{endpoint.port}/;token=TOKEN"
        for wrong in (f"sc://127.0.0.1:{endpoint.port}", endpoint.url):
            with (
                connecting(wrong) as session,
                pytest.raises(SparkConnectGrpcException, match="the token is missing or wrong"),
            ):
                session.table("odds").count()
        with connecting(endpoint.url.replace("TOKEN", TOKEN)) as session:
            assert session.table("odds").count() == ACCOUNTS // 2
        code, said = endpoint.end(signal.SIGTERM)
        assert code == 0, said
        assert "finishing the answers under way" in said
        wait_for_no_process(endpoint.process.pid)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0.0.0.0:15002"], "set VIEWKEEPER_CONNECT_TOKEN, or --token-file FILE, to a secret"),
        (["0.0.0.0:15002", "--token-file", "token"], "give --certificate FILE and --key FILE"),
        (["--token-file", "nowhere"], "--token-file nowhere: it cannot be read"),
        (["--key", "key.pem"], "--certificate and --key belong together"),
        (["127.0.0.1:x"], 'serve: "x" is not a port'),
    ],
)
def test_wrong_options_are_refused_with_a_hint(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(bank.folder)
    Path("token").write_text(TOKEN)
    result = call("serve", *words)
    assert result.exit_code == 2
    assert said in result.output


def test_the_address_for_clients_says_what_they_need() -> None:
    certificate = (Path("certificate.pem"), Path("key.pem"))
    found = [
        connect_service.ConnectAddress("127.0.0.1", 9, token, files).url
        for token in (None, TOKEN)
        for files in (None, certificate)
    ]
    assert found == [
        "sc://127.0.0.1:9",
        "sc://127.0.0.1:9/;use_ssl=true",
        "sc://localhost:9/;token=TOKEN",
        "sc://127.0.0.1:9/;use_ssl=true;token=TOKEN",
    ]


def test_a_port_that_is_taken_is_said_before_spark_starts(bank: Bank) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = call("--project", str(bank.folder), "serve", address)
    assert result.exit_code == 2
    assert f"cannot listen at {address}" in result.output


def test_a_missing_extra_is_named_with_the_way_to_install_it(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect_service, "LIBRARIES", ("grpc", "not_there"))
    result = call("--project", str(bank.folder), "serve")
    assert result.exit_code == 2
    assert "Spark Connect needs not_there, which is not installed" in result.output
    assert 'pip install "viewkeeper[connect]"' in result.output
