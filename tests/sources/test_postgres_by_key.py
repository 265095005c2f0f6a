"""Tables that go by key: the old values exist nowhere, so only the key says which row went.

A row that went has `_count` 0 and its key; what came in its place is complete, or the source says
which transaction must be read together with it. Nothing is ever guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.postgres_shop import Row, Shop, as_of, changed
from viewkeeper.errors import BarrierError, SchemaError
from viewkeeper.testing.private_servers import PrivatePostgres
from viewkeeper.updates.source_protocol import Source

T = {"t": ["id", "v", "big"]}
BIG = "x" * 20_000


@pytest.fixture
def shop(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(postgres_server, tmp_path)
    opened.table("t (id int PRIMARY KEY, v text, big text)", identity="DEFAULT")
    opened.run("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    opened.run(f"INSERT INTO t VALUES (1, 'a', '{BIG}'), (2, 'b', NULL)")
    yield opened
    opened.close()


def by_key(shop: Shop) -> Source:
    return shop.source(delete_by_key=["t"])


def rows(source: Source, after: int, until: int) -> list[Row]:
    """The changes, with a large value shown by its size."""
    found = changed(source, "t", T["t"], after, until)
    return [(i, v, len(str(big)) if big else None, count) for i, v, big, count in found]


def test_deletes_and_updates_name_the_key(shop: Shop) -> None:
    source = by_key(shop)
    start = source.follow_tables(T)
    shop.run("DELETE FROM t WHERE id = 2", "UPDATE t SET v = 'c', big = 'small'")
    shop.run("UPDATE t SET id = 7", "INSERT INTO t VALUES (8, 'd', 'e')")
    gone, set_, moved, new = source.look_for_transactions(start)
    assert [each.keyed for each in (gone, set_, moved, new)] == [("t",), ("t",), ("t",), ()]
    assert rows(source, start, gone.position) == [(2, None, None, 0)]
    assert rows(source, gone.position, set_.position) == [(1, None, None, 0), (1, "c", 5, 1)]
    assert rows(source, set_.position, moved.position) == [(1, None, None, 0), (7, "c", 5, 1)]
    assert rows(source, moved.position, new.position) == [(8, "d", 1, 1)]


def test_a_keyed_change_is_a_barrier_for_what_lies_before(shop: Shop) -> None:
    source = by_key(shop)
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (3, 'new', NULL)")
    (first,) = source.look_for_transactions(start)
    with source.prepare_snapshots(start, T) as opener:
        assert as_of(opener, "t", ["id"], start).total() == 2
    shop.run("DELETE FROM t WHERE id = 2")
    (second,) = source.look_for_transactions(first.position)
    with source.prepare_snapshots(start, T) as opener, pytest.raises(BarrierError) as caught:
        as_of(opener, "t", ["id"], start)
    assert caught.value.position == second.position
    with source.prepare_snapshots(second.position, T) as opener:
        assert set(as_of(opener, "t", ["id"], second.position)) == {(1,), (3,)}


def test_a_large_value_that_did_not_change_is_read_by_key(shop: Shop) -> None:
    source = by_key(shop)
    start = source.follow_tables(T)
    shop.run("UPDATE t SET v = 'c' WHERE id = 1", "UPDATE t SET v = 'other' WHERE id = 2")
    first, last = source.look_for_transactions(start)
    assert rows(source, start, first.position) == [(1, None, None, 0), (1, "c", 20_000, 1)]
    assert rows(source, start, last.position)[1] == (1, "c", 20_000, 1)


def test_what_was_changed_again_is_not_guessed(shop: Shop) -> None:
    source = by_key(shop)
    start = source.follow_tables(T)
    shop.run("UPDATE t SET v = 'c' WHERE id = 1", "UPDATE t SET v = 'd' WHERE id = 1")
    shop.run("DELETE FROM t WHERE id = 2")
    first, second, third = source.look_for_transactions(start)
    with pytest.raises(BarrierError) as caught:
        rows(source, start, first.position)
    assert (caught.value.table, caught.value.position) == ("t", second.position)
    assert rows(source, start, third.position) == [
        (1, None, None, 0),
        (1, "c", None, 1),
        (1, None, None, 0),
        (1, "d", 20_000, 1),
        (2, None, None, 0),
    ]
    shop.run("DELETE FROM t WHERE id = 1")
    (fourth,) = source.look_for_transactions(third.position)
    with pytest.raises(BarrierError) as caught:
        rows(source, start, third.position)
    assert caught.value.position == fourth.position
    assert rows(source, start, fourth.position)[3] == (1, "d", None, 1)


def test_a_table_needs_a_primary_key_to_go_by_it(shop: Shop) -> None:
    shop.run("CREATE TABLE u (id int)")
    with pytest.raises(SchemaError, match="cannot go by key"):
        shop.source(delete_by_key=["public.u"]).follow_tables({"u": ["id"]})
    with pytest.raises(SchemaError, match="old values") as caught:
        shop.source().follow_tables(T)
    assert "delete_by_key" in str(caught.value.hint)


def test_a_full_identity_tells_everything_also_where_keys_would_do(shop: Shop) -> None:
    shop.run("ALTER TABLE t REPLICA IDENTITY FULL")
    source = by_key(shop)
    start = source.follow_tables(T)
    shop.run("UPDATE t SET v = 'c' WHERE id = 1")
    (boundary,) = source.look_for_transactions(start)
    assert boundary.keyed == ()
    assert rows(source, start, boundary.position) == [(1, "a", 20_000, -1), (1, "c", 20_000, 1)]
