"""Connections for answers are kept between snapshots, and never for longer than they are good."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sources.postgres_shop import Shop, ask
from viewkeeper.errors import ViewkeeperError
from viewkeeper.sources.postgres.answers import snapshot as postgres_snapshot
from viewkeeper.testing.private_servers import PrivatePostgres
from viewkeeper.updates.source_protocol import Source
from viewkeeper.view.definition import Relation

TABLES = {"items": ["id", "price"]}
WAYS = ("few", "many")


@pytest.fixture
def shop(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(postgres_server, tmp_path)
    opened.table("items (id int PRIMARY KEY, price int)")
    opened.run("INSERT INTO items SELECT g, g * 10 FROM generate_series(1, 9) AS g")
    yield opened
    opened.close()


@dataclass
class Followed:
    """A source that has exported a snapshot once, and who was connected to its server then."""

    shop: Shop
    source: Source
    after: int
    others: set[int]

    def kept_backends(self) -> set[int]:
        """Who answers questions, as the server counts them."""
        query = "SELECT pid FROM pg_stat_activity WHERE datname = %s"
        found = self.shop.writer.execute(query.encode(), (self.shop.database,))
        return {pid for (pid,) in found} - self.others

    def wait_until_gone(self) -> None:
        """A server takes its time to notice that somebody has hung up."""
        end = time.monotonic() + 60
        while self.kept_backends():
            assert time.monotonic() < end, "somebody is still connected"
            time.sleep(0.02)


@pytest.fixture
def followed(shop: Shop) -> Followed:
    source = shop.source()
    after = source.follow_tables(TABLES)
    with source.prepare_snapshots(after, TABLES):
        found = Followed(shop, source, after, set())
        found.others = found.kept_backends()
    return found


def ask_item(source: Source, after: int, item: int = 3) -> list[object]:
    with source.prepare_snapshots(after, TABLES) as opener, closing(opener()) as snapshot:
        keys = pa.table({"id": pa.array([item], pa.int32())})
        return ask(snapshot, "items", ("price",), keys, after).rows["price"].to_pylist()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "many":
        monkeypatch.setattr(postgres_snapshot, "_MANY_KEYS", 0)
    return str(request.param)


def test_the_next_snapshot_takes_the_same_connection(followed: Followed, way: str) -> None:
    source, after = followed.source, followed.after
    assert ask_item(source, after) == [30]
    kept = followed.kept_backends()
    assert len(kept) == 1
    followed.shop.run("UPDATE items SET price = 31 WHERE id = 3")
    (boundary,) = source.look_for_transactions(after)
    assert ask_item(source, boundary.position) == [31], "an old snapshot was asked"
    assert followed.kept_backends() == kept
    source.close()
    followed.wait_until_gone()


def test_a_connection_that_was_ended_meanwhile_is_replaced(followed: Followed, way: str) -> None:
    assert ask_item(followed.source, followed.after) == [30]
    (kept,) = followed.kept_backends()
    followed.shop.writer.execute("SELECT pg_terminate_backend(%s)", (kept,))
    followed.wait_until_gone()
    assert ask_item(followed.source, followed.after) == [30]
    (other,) = followed.kept_backends()
    assert other != kept


def test_a_failed_question_spoils_no_later_one(
    followed: Followed, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = postgres_snapshot.query_of
    with monkeypatch.context() as patch:
        patch.setattr(postgres_snapshot, "query_of", lambda *a, **o: f"{right(*a, **o)} + 1 / 0")
        with pytest.raises(ViewkeeperError):
            ask_item(followed.source, followed.after)
    assert ask_item(followed.source, followed.after) == [30]


def test_a_connection_whose_answer_was_left_unread_is_closed(followed: Followed) -> None:
    source, after = followed.source, followed.after
    with source.prepare_snapshots(after, TABLES) as opener:
        snapshot = opener()
        scan = snapshot.scan_relation(Relation("shop", "items"), ["price"], after)
        assert next(iter(scan.batches)).num_rows
        snapshot.close()
        followed.wait_until_gone()
    assert ask_item(source, after) == [30]
