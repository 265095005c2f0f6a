"""The stream of every kind: positions that grow, whole commits in their order, changes that add up.

Whatever is asked between two positions is the difference of the states there; what was rolled back,
what happened before, and what happens elsewhere is never seen.
"""

from __future__ import annotations

import importlib
import time
from collections import Counter
from decimal import Decimal

import pytest

from tests.sources.conformance.changes import (
    Bag,
    Change,
    Delete,
    Insert,
    Update,
    Word,
    inserts,
    minus,
)
from tests.sources.conformance.database import Database
from tests.sources.conformance.reading import Follower, look_all

STOCK: dict[str, Word] = {"sku": "int", "name": "text", "price": "decimal"}


def item(number: int, name: str | None = "x", cents: int | None = 150) -> tuple[object, ...]:
    return number, name, None if cents is None else Decimal(cents) / 100


TRANSACTIONS: list[list[Change]] = [
    inserts("stock", [item(1), item(2), item(3, None, None)]),
    [Update("stock", item(1), item(1, "y")), Delete("stock", item(2))],
    [Insert("stock", item(4)), Insert("stock", item(4)), Insert("stock", item(4))],
    [Delete("stock", item(4)), Update("stock", item(4), item(5))],
    [Update("stock", item(3, None, None), item(3, "", 0)), Insert("stock", item(2))],
    [Delete("stock", item(4))],
]


@pytest.fixture
def follower(database: Database) -> Follower:
    """Two tables where a source can have two; the first has rows from before."""
    database.table("stock", STOCK)
    if database.tables_max > 1:
        database.table("orders", {"id": "int", "sku": "int"})
    database.commit(Insert("stock", item(0)))
    return Follower(database)


def test_what_was_there_before_is_no_change(follower: Follower) -> None:
    assert not any(boundary.changes for boundary in follower.look())
    nothing: dict[str, Bag] = {table: Counter() for table in follower.tables}
    assert follower.changes(follower.start, follower.start) == nothing
    follower.check_snapshot(follower.newest)


def test_commits_come_whole_and_in_their_order(follower: Follower) -> None:
    for transaction in TRANSACTIONS:
        follower.database.commit(*transaction)
    boundaries = [boundary for boundary in follower.look() if boundary.changes]
    merged = follower.database.merges_commits
    assert len(boundaries) == (1 if merged else len(TRANSACTIONS))
    follower.check_intervals()


def test_between_any_two_positions_is_the_difference_of_the_states(follower: Follower) -> None:
    for transaction in TRANSACTIONS:
        follower.database.commit(*transaction)
        assert [boundary.changes > 0 for boundary in follower.look()][-1:] == [True]
    assert len(follower.states) > len(TRANSACTIONS)
    follower.check_intervals()


def test_transactions_over_two_tables_are_one(follower: Follower) -> None:
    if follower.database.tables_max < 2:
        pytest.skip("a source of this kind is one table")
    follower.database.commit(Insert("stock", item(1)), Insert("orders", (1, 1)))
    boundaries = [boundary for boundary in follower.look() if boundary.changes]
    assert [boundary.changes for boundary in boundaries] == [2]
    assert follower.states[follower.newest] == follower.state()


def test_looking_again_tells_the_same(follower: Follower) -> None:
    database, source = follower.database, follower.source
    database.commit(*TRANSACTIONS[0])
    database.commit(*TRANSACTIONS[1])
    first = look_all(source, follower.start)
    assert look_all(source, follower.start) == first
    assert look_all(source, first[-1].position) == []
    database.commit(*TRANSACTIONS[2])
    later = look_all(source, follower.start)
    if database.merges_commits:
        assert look_all(source, first[-1].position)[-1].position == later[-1].position
    else:
        assert later[: len(first)] == first
        assert look_all(source, first[-1].position) == later[len(first) :]
    follower.look()
    follower.check_intervals()


def test_a_look_reports_a_limited_number(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = follower.database
    if database.limited is None:
        pytest.skip("a look reports one transaction")
    monkeypatch.setattr(importlib.import_module(database.limited), "LOOK_TRANSACTIONS", 3)
    for number in range(8):
        database.commit(Insert("stock", item(number)))
        if database.merges_commits:
            follower.look()
    reported = follower.source.look_for_transactions(follower.start)
    assert 0 < len(reported) <= 3
    assert len(follower.source.look_for_transactions(reported[-1].position)) <= 3
    if not database.merges_commits:
        follower.look()
    boundaries = look_all(follower.source, follower.start)
    assert len([boundary for boundary in boundaries if boundary.changes]) == 8
    follower.check_intervals()


def test_only_the_asked_columns_come_in_the_asked_order(follower: Follower) -> None:
    database = follower.database
    for transaction in TRANSACTIONS[:3]:
        database.commit(*transaction)
    follower.look()
    for columns in (["price"], ["name", "sku"], ["price", "name", "sku"], []):
        some = Follower(database, follower.source, {"stock": columns})
        wanted = minus(some.state()["stock"], some.state(0)["stock"])
        found = follower.changes(follower.start, follower.newest, some.tables)
        assert found == {"stock": wanted}, columns


def test_rolled_back_transactions_are_nothing(follower: Follower) -> None:
    database = follower.database
    database.abandon(Insert("stock", item(7)), Update("stock", item(0), item(8)))
    assert not any(boundary.changes for boundary in follower.look())
    database.commit(Insert("stock", item(9)))
    database.abandon(Insert("stock", item(10)))
    follower.look()
    follower.check_intervals()
    follower.check_snapshot(follower.newest)


def test_other_columns_and_tables_do_not_matter(database: Database) -> None:
    database.table("stock", STOCK)
    if database.tables_max > 1:
        database.table("orders", {"id": "int", "sku": "int"})
    database.commit(*inserts("stock", [item(1), item(2)]))
    follower = Follower(database, tables={"stock": ["sku", "price"]})
    database.commit(Update("stock", item(1), item(1, "another name")))
    if database.tables_max > 1:
        database.commit(*inserts("orders", [(1, 1), (2, 2)]))
    boundaries = look_all(follower.source, follower.start)
    for boundary in boundaries:
        found = follower.changes(follower.start, boundary.position)
        assert found == {"stock": {}}
    database.commit(Insert("stock", item(3)))
    until = look_all(follower.source, follower.start)[-1].position
    found = follower.changes(follower.start, until)
    assert found == {"stock": {(3, Decimal("1.5")): 1}}


def test_following_more_loses_nothing(follower: Follower) -> None:
    """A second view reads columns that the first does not."""
    database = follower.database
    narrow = Follower(database, database.source(home="other"), {"stock": ["sku"]})
    database.commit(*TRANSACTIONS[0])
    narrow.look()
    wide = Follower(database, narrow.source, {"stock": ["name", "sku"]})
    assert wide.start >= narrow.newest
    database.commit(*TRANSACTIONS[1])
    narrow.look()
    wide.look()
    narrow.check_intervals()
    wide.check_intervals()
    wide.check_snapshot(wide.start)
    narrow.check_snapshot(narrow.newest)


def test_reports_know_when_they_were_committed(follower: Follower) -> None:
    before = time.time()
    follower.database.commit(*TRANSACTIONS[0])
    after = time.time()
    (boundary,) = [boundary for boundary in follower.look() if boundary.changes]
    # Some logs keep whole seconds.
    assert before - 1 <= boundary.committed_at <= after + 1


def test_a_large_transaction_is_one(follower: Follower) -> None:
    database = follower.database
    database.commit(*inserts("stock", [item(n % 50, f"n{n % 3}", n) for n in range(3_000)]))
    boundaries = [boundary for boundary in follower.look() if boundary.changes]
    assert [boundary.changes for boundary in boundaries] == [3_000]
    follower.check_snapshot(follower.start)
    follower.check_snapshot(follower.newest)
