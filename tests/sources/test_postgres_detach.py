"""Detaching removes what is ours, object by object, and nothing of anybody else.

Others may keep tables in our schemas, have views over our logs, or read through a publication that
we made. Nobody loses anything by our leaving; who stands in the way is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.sources.postgres_shop import Shop, changed
from viewkeeper.errors import GapError, SchemaError, SourceError
from viewkeeper.sources.postgres.triggers import follow
from viewkeeper.testing.private_servers import PrivatePostgres

T = {"t": ["id", "v"]}


@pytest.fixture
def shop(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(postgres_server, tmp_path)
    opened.table("t (id int PRIMARY KEY, v text)")
    opened.run("INSERT INTO t VALUES (1, 'a')")
    yield opened
    opened.close()


def schemas(shop: Shop) -> list[str]:
    query = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'viewkeeper%' ORDER BY 1"
    return [name for (name,) in shop.writer.execute(query.encode())]


def oid(shop: Shop) -> int:
    row = shop.writer.execute("SELECT 't'::regclass::oid").fetchone()
    assert row is not None
    return int(row[0])


def test_tables_of_others_in_our_schema_stay(shop: Shop) -> None:
    source = shop.source(capture="triggers")
    source.follow_tables(T)
    shop.run(
        "CREATE TABLE viewkeeper.salaries (who text)",
        "INSERT INTO viewkeeper.salaries VALUES ('me')",
        "CREATE FUNCTION viewkeeper.capture_1() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    )
    done = source.detach_source()
    assert done.capture_dropped
    assert done.left == (
        "function viewkeeper.capture_1() in schema viewkeeper",
        "table viewkeeper.salaries in schema viewkeeper",
    )
    assert shop.rows("viewkeeper.salaries", ["who"]) == {("me",): 1}
    ours = "SELECT relname FROM pg_class WHERE relnamespace = 'viewkeeper'::regnamespace"
    kept = f"{ours} AND relkind = 'r' UNION SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
    assert shop.writer.execute(kept.encode()).fetchall() == [("salaries",)]
    # The schema is there, and can be used again.
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (2, 'b')")
    assert source.look_for_transactions(start)[0].changes == 1
    shop.run("DROP TABLE viewkeeper.salaries", "DROP FUNCTION viewkeeper.capture_1()")
    assert source.detach_source().left == ()
    assert schemas(shop) == []


@pytest.mark.parametrize("others", [False, True])
def test_what_depends_on_our_log_is_named_and_nothing_happens(shop: Shop, others: bool) -> None:
    source = shop.source(capture="triggers")
    start = source.follow_tables(T)
    if others:
        shop.run("CREATE TABLE u (id int PRIMARY KEY)")
        shop.source("two", capture="triggers").follow_tables({"u": ["id"]})
    shop.run(f"CREATE VIEW audit AS SELECT * FROM viewkeeper.log_{oid(shop)}")
    with pytest.raises(SchemaError, match="depend on its capture") as refused:
        source.detach_source()
    assert "view audit depends on table" in (refused.value.detail or "")
    shop.run("INSERT INTO t VALUES (2, 'b')")
    (boundary,) = source.look_for_transactions(start)
    assert changed(source, "t", ["id", "v"], start, boundary.position) == [(2, "b", 1)]
    assert shop.rows("audit", ["sign"]) == {(1,): 1}
    shop.run("DROP VIEW audit")
    assert source.detach_source().was_following
    shop.run("INSERT INTO t VALUES (3, 'c')")


def test_a_trigger_of_others_on_our_function_is_named(shop: Shop) -> None:
    source = shop.source(capture="triggers")
    source.follow_tables(T)
    call = f"EXECUTE FUNCTION viewkeeper.capture_{oid(shop)}()"
    shop.run("CREATE TABLE u (id int)", f"CREATE TRIGGER mine AFTER TRUNCATE ON u {call}")
    with pytest.raises(SchemaError, match="depend on its capture"):
        source.detach_source()
    shop.run("DROP TABLE u")
    assert source.detach_source().left == ()


def test_a_second_project_goes_on(shop: Shop) -> None:
    one, two = (shop.source(reader, capture="triggers") for reader in ("one", "two"))
    shop.run("CREATE TABLE u (id int PRIMARY KEY)")
    one.follow_tables({**T, "u": ["id"]})
    start = two.follow_tables({"t": ["id"]})
    one.detach_source()
    shop.run("INSERT INTO t VALUES (2, 'b')", "INSERT INTO u VALUES (1)")
    assert sum(boundary.changes for boundary in two.look_for_transactions(start)) == 1
    # By force everything goes, and who still followed is told.
    one.follow_tables(T)
    done = one.detach_source(force=True)
    assert done.other_readers == (f"two@{shop.database}",)
    with pytest.raises(GapError, match="not followed any more"):
        two.look_for_transactions(start)
    assert schemas(shop) == []


def test_a_table_that_is_not_ours_is_never_taken_for_ours(shop: Shop) -> None:
    shop.run("CREATE SCHEMA viewkeeper", "CREATE TABLE viewkeeper.reader (name text)")
    source = shop.source(capture="triggers")
    with pytest.raises(SchemaError, match="is not a table of Viewkeeper"):
        source.follow_tables(T)
    assert shop.rows("viewkeeper.reader", ["name"]) == {}


def test_a_publication_that_others_may_read_through_stays(shop: Shop) -> None:
    one, two = (shop.source(reader, publication="both") for reader in ("one", "two"))
    one.follow_tables(T)
    start = two.follow_tables(T)
    done = one.detach_source()
    assert done.capture_dropped
    assert ['publication "both"' in left for left in done.left] == [True]
    shop.run("INSERT INTO t VALUES (2, 'b')")
    assert [
        boundary.changes for boundary in two.look_for_transactions(start) if boundary.changes
    ] == [1]


def test_what_others_put_beside_our_event_triggers_stays(shop: Shop) -> None:
    source = shop.source()
    source.follow_tables(T)
    (name,) = schemas(shop)
    shop.run(f"CREATE TABLE {name}.mine (a int)")
    assert source.detach_source().left == (f"table {name}.mine in schema {name}",)
    assert shop.writer.execute("SELECT evtname FROM pg_event_trigger").fetchall() == []
    source.follow_tables(T)
    shop.run(f"DROP TABLE {name}.mine")
    assert source.detach_source().left == ()
    assert schemas(shop) == []


def test_a_detach_that_cannot_get_its_locks_changes_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_DETACH_ATTEMPTS", 2)
    source = shop.source(capture="triggers")
    start = source.follow_tables(T)
    with psycopg.connect(shop.url) as writing:
        writing.execute("INSERT INTO t VALUES (2, 'b')")
        with pytest.raises(SourceError, match="stays locked"):
            source.detach_source()
        writing.commit()
    assert source.look_for_transactions(start)[0].changes == 1
