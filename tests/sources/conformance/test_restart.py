"""What is acknowledged is done; everything else is delivered again, exactly, after a restart.

A restart is another source object over the same database and the same folder, as after a crash.
What a `verify` beside the maintainer holds stays readable until it lets go.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.sources.conformance.changes import Change, Delete, Insert, Update, Word, inserts
from tests.sources.conformance.database import Database
from tests.sources.conformance.reading import Follower, look_all

STOCK: dict[str, Word] = {"sku": "int", "name": "text", "price": "decimal"}
ROWS = [(n, f"name {n}", Decimal(n)) for n in range(10)]
TRANSACTIONS: list[list[Change]] = [
    [Insert("stock", ROWS[4]), Insert("stock", ROWS[5])],
    [Update("stock", ROWS[0], ROWS[6]), Delete("stock", ROWS[4])],
    [Insert("stock", ROWS[4]), Insert("stock", ROWS[4])],
    [Delete("stock", ROWS[5]), Update("stock", ROWS[1], ROWS[7])],
]


@pytest.fixture
def follower(database: Database) -> Follower:
    """Four transactions, each looked at on its own."""
    database.table("stock", STOCK)
    database.commit(*inserts("stock", ROWS[:4]))
    follower = Follower(database)
    for transaction in TRANSACTIONS:
        database.commit(*transaction)
        follower.look()
    return follower


def middle(follower: Follower) -> int:
    """A position with states before and after it."""
    return sorted(follower.states)[2]


def forget_before(follower: Follower, position: int) -> None:
    follower.states = {at: state for at, state in follower.states.items() if at >= position}


def test_what_was_not_acknowledged_is_delivered_again(follower: Follower) -> None:
    told = look_all(follower.source, middle(follower))
    follower.restart()
    assert look_all(follower.source, middle(follower)) == told
    follower.check_intervals()
    for after in follower.states:
        follower.check_snapshot(after)


def test_after_an_acknowledgement_it_goes_on(follower: Follower) -> None:
    acknowledged = middle(follower)
    told = look_all(follower.source, acknowledged)
    follower.source.acknowledge_position(acknowledged)
    forget_before(follower, acknowledged)
    assert look_all(follower.source, acknowledged) == told
    follower.check_intervals()
    follower.restart()
    assert look_all(follower.source, acknowledged) == told
    follower.check_intervals()
    for after in follower.states:
        follower.check_snapshot(after)
    follower.database.commit(Insert("stock", ROWS[9]))
    follower.look()
    follower.check_intervals()


def test_everything_acknowledged_is_a_good_place_to_stop(follower: Follower) -> None:
    follower.source.acknowledge_position(follower.newest)
    forget_before(follower, follower.newest)
    follower.source.close()
    follower.database.commit(Insert("stock", ROWS[8]))
    follower.database.commit(Delete("stock", ROWS[8]), Insert("stock", ROWS[9]))
    follower.restart()
    follower.look()
    follower.check_intervals()
    follower.check_snapshot(follower.newest)


def test_acknowledging_again_or_less_changes_nothing(follower: Follower) -> None:
    acknowledged = middle(follower)
    for position in (acknowledged, acknowledged, follower.start):
        follower.source.acknowledge_position(position)
    forget_before(follower, acknowledged)
    follower.check_intervals()
    follower.restart()
    follower.source.acknowledge_position(acknowledged)
    follower.check_intervals()
    follower.check_snapshot(acknowledged)


def test_following_again_after_a_restart_keeps_what_is_due(follower: Follower) -> None:
    follower.source.acknowledge_position(middle(follower))
    forget_before(follower, middle(follower))
    told = look_all(follower.source, middle(follower))
    follower.restart()
    assert follower.source.follow_tables(follower.tables) >= follower.newest
    assert look_all(follower.source, middle(follower)) == told
    follower.check_intervals()


def test_a_hold_keeps_what_a_reader_beside_us_needs(follower: Follower) -> None:
    """As `verify` does it: another source object, while the maintainer acknowledges and goes on."""
    beside = follower.database.source()
    beside.begin_hold("verify", 60.0)
    held = dict(follower.states)
    follower.source.acknowledge_position(follower.newest)
    follower.database.commit(Insert("stock", ROWS[9]))
    follower.look()
    for after in held:
        with beside.prepare_snapshots(after, follower.tables) as opener:
            follower.check_opener(opener, after)
    beside.end_hold("verify")
    beside.end_hold("verify")
    beside.close()
    follower.source.acknowledge_position(follower.newest)
    follower.database.commit(Delete("stock", ROWS[9]))
    follower.look()


def test_two_warehouses_do_not_disturb_each_other(follower: Follower) -> None:
    other = Follower(follower.database, follower.database.source(home="other"))
    follower.source.acknowledge_position(follower.newest)
    follower.database.commit(Insert("stock", ROWS[9]))
    other.look()
    follower.look()
    other.source.acknowledge_position(other.newest)
    follower.source.acknowledge_position(follower.newest)
    follower.database.commit(Update("stock", ROWS[9], ROWS[8]))
    forget_before(other, other.newest)
    forget_before(follower, follower.newest)
    other.look()
    other.source.detach_source()
    follower.look()
    follower.check_intervals()
    follower.check_snapshot(follower.newest)
