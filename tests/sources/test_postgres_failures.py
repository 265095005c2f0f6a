"""What goes wrong ends in "continued exact" or "stopped with the named cause and the way out".

Servers are killed, restored from a copy of their data folder, and robbed of our slot; connections
are cut; privileges are missing. No change may be lost or doubled silently, and no error may show a
password.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.sources.postgres_shop import Shop, as_of, changed
from viewkeeper.errors import GapError, SchemaError, SourceAwayError, ViewkeeperError
from viewkeeper.sources.postgres.decoding import source_stream as postgres_look
from viewkeeper.sources.postgres.decoding.slot import derived_name
from viewkeeper.testing.private_servers import PrivatePostgres, free_port

T = {"t": ["id", "v"]}
COLUMNS = ["id", "v"]


@pytest.fixture
def shop(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(postgres_server, tmp_path)
    opened.table("t (id int, v text)")
    yield opened
    opened.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[PrivatePostgres]:
    """A server that a test may stop."""
    server = PrivatePostgres(tmp_path / "own" / "server")
    server.start()
    yield server
    server.kill()


def slot(shop: Shop) -> str:
    return derived_name(shop.settings(), f"me@{shop.database}")


def wait_until_free(shop: Shop) -> None:
    """The server notices a little later that a connection has ended."""
    active = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
    for _ in range(100):
        if shop.writer.execute(active, (slot(shop),)).fetchone() == (False,):
            return
        time.sleep(0.02)
    raise AssertionError("the slot stays active")


def test_a_restart_goes_on_after_what_was_committed(shop: Shop) -> None:
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
    first, second = source.look_for_transactions(start)
    source.acknowledge_position(first.position)
    source.close()
    shop.run("INSERT INTO t VALUES (3, 'c')")
    again = shop.source()
    assert again.look_for_transactions(second.position)[0].changes == 1
    assert again.look_for_transactions(first.position)[0].position == second.position
    last = again.look_for_transactions(second.position)[0].position
    assert changed(again, "t", COLUMNS, first.position, last) == [(2, "b", 1), (3, "c", 1)]
    with again.prepare_snapshots(first.position, T) as opener:
        assert as_of(opener, "t", COLUMNS, first.position) == Counter({(1, "a"): 1})
    assert again.follow_tables(T) == last
    with pytest.raises(GapError, match="is not one of this server's stream"):
        again.look_for_transactions(start)


def test_acknowledged_log_is_given_back(shop: Shop) -> None:
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 20000) n")
    (boundary,) = source.look_for_transactions(start)
    kept = source.read_health(()).retained
    source.acknowledge_position(boundary.position)
    for number in range(100):
        # The server notes where it could begin again at checkpoints, and once we are past them.
        shop.run("CHECKPOINT", f"INSERT INTO t VALUES ({number}, 'more')")
        (boundary,) = source.look_for_transactions(boundary.position)
        source.acknowledge_position(boundary.position)
        if source.read_health(()).retained < kept / 10:
            break
    health = source.read_health(())
    assert health.retained < kept / 10
    assert health.followed
    assert health.unit == "bytes"
    assert [reader.ours for reader in health.readers if reader.ours] == [True]


def test_the_slot_is_gone(shop: Shop) -> None:
    source = shop.source()
    start = source.follow_tables(T)
    source.close()
    wait_until_free(shop)
    shop.run(f"SELECT pg_drop_replication_slot('{slot(shop)}')", "INSERT INTO t VALUES (1, 'a')")
    again = shop.source()
    with pytest.raises(GapError, match="is gone") as caught:
        again.look_for_transactions(start)
    assert "viewkeeper refresh" in str(caught.value.hint)
    renewed = again.follow_tables(T)
    with again.prepare_snapshots(renewed, T) as opener:
        assert as_of(opener, "t", COLUMNS, renewed) == Counter({(1, "a"): 1})
    with pytest.raises(GapError, match="is not one of this server's stream"):
        again.look_for_transactions(start)


def test_somebody_advanced_the_slot(shop: Shop) -> None:
    source = shop.source()
    start = source.follow_tables(T)
    source.close()
    wait_until_free(shop)
    shop.run("INSERT INTO t VALUES (1, 'a')")
    advance = "SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())"
    shop.writer.execute(advance, (slot(shop),))
    with pytest.raises(GapError, match="advanced its replication slot"):
        shop.source().look_for_transactions(start)


@pytest.mark.parametrize("grown", [False, True])
def test_a_restored_server_is_noticed(own: PrivatePostgres, tmp_path: Path, grown: bool) -> None:
    shop = Shop(own, tmp_path)
    shop.table("t (id int, v text)")
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (1, 'a')")
    (early,) = source.look_for_transactions(start)
    shop.hang_up()
    own.stop()
    copy = tmp_path / "copy"
    shutil.copytree(own._data_folder, copy, symlinks=True)
    own.start()
    writer = psycopg.connect(shop.url, autocommit=True)
    writer.execute("INSERT INTO t VALUES (2, 'lost')")
    source = shop.source()
    (late,) = source.look_for_transactions(early.position)
    source.close()
    writer.close()
    own.stop()
    shutil.rmtree(own._data_folder)
    shutil.copytree(copy, own._data_folder, symlinks=True)
    for path in (own._data_folder, *own._data_folder.rglob("*")):
        owner = own.folder.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
    own.start()
    with psycopg.connect(shop.url, autocommit=True) as writer:
        for number in range(40 if grown else 0):
            writer.execute("INSERT INTO t VALUES (%s, 'other history')", (number,))
    again = shop.source()
    says = "not those that were reported" if grown else "restored to an earlier state"
    with pytest.raises(GapError, match=says):
        again.look_for_transactions(late.position)
    with pytest.raises(GapError):
        again.look_for_transactions(early.position)
    renewed = again.follow_tables(T)
    with again.prepare_snapshots(renewed, T) as opener:
        assert as_of(opener, "t", COLUMNS, renewed).total() == (41 if grown else 1)
    again.close()


def test_a_server_that_dies_and_comes_back(own: PrivatePostgres, tmp_path: Path) -> None:
    shop = Shop(own, tmp_path)
    shop.table("t (id int, v text)")
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (1, 'a')")
    (first,) = source.look_for_transactions(start)
    own.kill()
    with pytest.raises(SourceAwayError):
        source.look_for_transactions(first.position)
    with pytest.raises(SourceAwayError):
        source.read_health(())
    with pytest.raises(SourceAwayError), source.prepare_snapshots(start, T):
        pass
    own.start()
    writer = psycopg.connect(shop.url, autocommit=True)
    writer.execute("INSERT INTO t VALUES (2, 'b')")
    (second,) = source.look_for_transactions(first.position)
    assert changed(source, "t", COLUMNS, start, second.position) == [(1, "a", 1), (2, "b", 1)]
    with source.prepare_snapshots(start, T) as opener:
        assert as_of(opener, "t", COLUMNS, start) == Counter()
    began = time.monotonic()
    writer.close()
    shop.hang_up()
    own.stop()
    assert time.monotonic() - began < 30


def test_a_stream_that_was_cut_is_opened_again(shop: Shop) -> None:
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (1, 'a')")
    (first,) = source.look_for_transactions(start)
    query = "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
    shop.run(f"{query} WHERE slot_name = '{slot(shop)}'")
    shop.run("INSERT INTO t VALUES (2, 'b')")
    (second,) = source.look_for_transactions(first.position)
    assert changed(source, "t", COLUMNS, start, second.position) == [(1, "a", 1), (2, "b", 1)]


def test_a_slot_of_somebody_else_is_not_touched(shop: Shop) -> None:
    name = f"other_{shop.database}"
    shop.run(f"SELECT pg_create_logical_replication_slot('{name}', 'test_decoding')")
    with pytest.raises(SchemaError, match="belongs to something else"):
        shop.source(slot=name).follow_tables(T)
    shop.run(f"SELECT pg_drop_replication_slot('{name}')")


def test_another_process_has_the_slot(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viewkeeper.sources.postgres.decoding.stream._RETRY_SECONDS", 0.2)
    source = shop.source()
    start = source.follow_tables(T)
    other = shop.source()
    with pytest.raises(SourceAwayError, match="used by another process"):
        other.look_for_transactions(start)
    source.close()
    assert other.look_for_transactions(start) == ()


def test_a_reader_beside_the_maintainer_uses_a_copy(shop: Shop) -> None:
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (1, 'a')")
    (first,) = source.look_for_transactions(start)
    beside = shop.source()
    beside.begin_hold("verify", 60)
    shop.run("INSERT INTO t VALUES (2, 'b')")
    (second,) = source.look_for_transactions(first.position)
    source.acknowledge_position(second.position)
    source.look_for_transactions(second.position)
    with beside.prepare_snapshots(first.position, T) as opener:
        assert as_of(opener, "t", COLUMNS, first.position) == Counter({(1, "a"): 1})
    assert [b.position for b in beside.look_for_transactions(start)] == [
        first.position,
        second.position,
    ]
    count = "SELECT count(*) FROM pg_replication_slots WHERE database = %s"
    assert shop.writer.execute(count, (shop.database,)).fetchone() == (2,)
    beside.end_hold("verify")
    beside.end_hold("verify")
    for _ in range(100):
        if shop.writer.execute(count, (shop.database,)).fetchone() == (1,):
            break
        time.sleep(0.05)
    assert shop.writer.execute(count, (shop.database,)).fetchone() == (1,)
    source.begin_hold("mine", 60)
    shop.run("INSERT INTO t VALUES (3, 'c')")
    (third,) = source.look_for_transactions(second.position)
    source.acknowledge_position(third.position)
    with source.prepare_snapshots(second.position, T) as opener:
        assert as_of(opener, "t", ["id"], second.position) == Counter({(1,): 1, (2,): 1})
    source.end_hold("mine")


def test_two_projects_on_one_database(shop: Shop) -> None:
    one, two = shop.source("one"), shop.source("two")
    start, later = one.follow_tables(T), two.follow_tables({"t": ["id"]})
    shop.run("INSERT INTO t VALUES (1, 'a')")
    (first,) = one.look_for_transactions(start)
    one.acknowledge_position(first.position)
    one.look_for_transactions(first.position)
    assert one.detach_source().capture_dropped
    (second,) = two.look_for_transactions(later)
    assert second.position == first.position
    assert changed(two, "t", ["id"], later, second.position) == [(1, 1)]
    assert len({derived_name(shop.settings(), r) for r in ("one", "two")}) == 2
    assert len(derived_name(shop.settings(), "r" * 200)) <= 63
    assert not one.read_health(()).followed
    assert one.detach_source().was_following is False
    left = "SELECT pubname FROM pg_publication"
    assert len(shop.writer.execute(left).fetchall()) == 1


def test_an_idle_source_lets_its_slot_advance(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_look, "IDLE_BYTES", 1 << 20)
    monkeypatch.setattr(postgres_look, "_HOUSEKEEPING_SECONDS", 0.0)
    shop.run("CREATE TABLE other (v text)")
    source = shop.source()
    position = start = source.follow_tables(T)
    for _ in range(4):
        shop.run("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
        for boundary in source.look_for_transactions(position):
            assert boundary.changes == 0
            position = boundary.position
            source.acknowledge_position(position)
    assert position - start > 3 << 20
    shop.run("INSERT INTO t VALUES (1, 'a')")
    (boundary,) = source.look_for_transactions(position)
    assert changed(source, "t", COLUMNS, position, boundary.position) == [(1, "a", 1)]


def test_a_slot_that_keeps_too_much_is_dropped(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_look, "_HOUSEKEEPING_SECONDS", 0.0)
    source = shop.source(retention="1mb")
    start = source.follow_tables(T)
    shop.run("INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(1, 3000) n")
    (warning, *_) = source.read_health(()).warnings
    assert "is dropped at 1.0 MB" in warning
    with pytest.raises(GapError, match="of the log and was dropped") as caught:
        source.look_for_transactions(start)
    assert "viewkeeper refresh" in str(caught.value.hint)
    found = "SELECT count(*) FROM pg_replication_slots WHERE database = %s"
    assert shop.writer.execute(found, (shop.database,)).fetchone() == (0,)
    assert source.follow_tables(T) > start


def test_no_error_shows_the_password(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2%21")
    urls = [
        f"postgresql://postgres:${{SHOP_PASSWORD}}@127.0.0.1:{shop.server.port}/{shop.database}",
        f"postgresql://postgres:${{SHOP_PASSWORD}}@127.0.0.1:{free_port()}/shop",
        "postgresql://postgres:${SHOP_PASSWORD}@127.0.0.1:port/shop",
        "host=127.0.0.1 password=${SHOP_PASSWORD} nonsense",
    ]
    for url in urls:
        source = shop.source(url=url)
        with pytest.raises(ViewkeeperError) as caught:
            source.describe_table("t")
        shown = str(caught.value) + repr(source.diagnose_source(T))
        assert "hunter2" not in shown
        assert caught.value.__cause__ is None


@pytest.mark.parametrize("user", ["postgres:wrong", "nobody:wrong", "postgres"])
def test_a_wrong_password_is_called_so(shop: Shop, user: str) -> None:
    url = f"postgresql://{user}@127.0.0.1:{shop.server.port}/{shop.database}"
    with pytest.raises(SourceAwayError, match="wrong password, or no such user") as caught:
        shop.source(url=url).describe_table("t")
    assert "check both in the url" in str(caught.value.hint)


def test_least_privileges_suffice_and_missing_ones_are_named(shop: Shop) -> None:
    role = f"role_{shop.database}"
    shop.run(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    source = shop.source(url=shop.server.url_of(shop.database, role), publication="pub")

    def says() -> str:
        with pytest.raises(SchemaError) as caught:
            source.follow_tables(T)
        return str(caught.value.hint)

    assert f'GRANT SELECT ON "public"."t" TO "{role}"' in says()
    bad = [finding for finding in source.diagnose_source(T) if finding.state == "bad"]
    assert {finding.check for finding in bad} == {"privileges", "publication", "table t"}
    for finding in bad:
        assert finding.mend is not None
        shop.run(finding.mend)
    assert not [finding for finding in source.diagnose_source(T) if finding.state == "bad"]
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (1, 'a')")
    (boundary,) = source.look_for_transactions(start)
    with source.prepare_snapshots(start, T) as opener:
        assert as_of(opener, "t", COLUMNS, start) == Counter()
    assert changed(source, "t", COLUMNS, start, boundary.position) == [(1, "a", 1)]
    source.detach_source()
    assert shop.writer.execute("SELECT pubname FROM pg_publication").fetchall() == [("pub",)]
    shop.run("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    again = source.follow_tables(T)
    with pytest.raises(SchemaError), source.prepare_snapshots(again, T) as opener:
        as_of(opener, "t", COLUMNS, again)
    source.close()
    shop.run("ALTER TABLE t DISABLE ROW LEVEL SECURITY")
    source.detach_source()


def test_doctor_finds_what_is_missing(own: PrivatePostgres, tmp_path: Path) -> None:
    own.stop()
    own._settings["wal_level"] = "replica"
    own.start()
    shop = Shop(own, tmp_path)
    shop.table("t (id int PRIMARY KEY, v text)", identity="DEFAULT")
    source = shop.source()
    found = {finding.check: finding for finding in source.diagnose_source({"t": ["v"], "x": ["y"]})}
    states = {check: finding.state for check, finding in found.items()}
    assert states["wal_level"] == states["table t"] == states["table x"] == "bad"
    assert states["reachable"] == states["version"] == states["clock"] == "good"
    assert "REPLICA IDENTITY FULL" in str(found["table t"].mend)
    shop.run("ALTER TABLE t REPLICA IDENTITY FULL")
    with pytest.raises(SchemaError, match="does not allow logical decoding"):
        source.follow_tables({"t": ["v"]})
    shop.close()
    own.stop()
    (away,) = source.diagnose_source({})
    assert (away.check, away.state) == ("reachable", "bad")
