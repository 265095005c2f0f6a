"""Going on from a position that another reader of the database has reported.

Members of a group take the positions of whoever reports a source. One may stand for a transaction
that concerns nothing of ours: looks, snapshots and restarts begin there all the same.
"""

from __future__ import annotations

import pytest

from tests.sources.conformance.changes import Insert
from tests.sources.conformance.database import Database
from tests.sources.conformance.reading import look_all, scanned, snapshot_at
from viewkeeper.updates.source_protocol import Source

YOURS = {"yours": ["id", "v"]}


def foreign(shared: Database, other: Source) -> int:
    """The position of a transaction that only somebody else has seen, passed by `other`."""
    one = shared.source(home="one")
    start = one.follow_tables({"mine": ["id", "v"]})
    began = other.follow_tables(YOURS)
    shared.commit(Insert("yours", (1, "x")))
    shared.commit(Insert("mine", (1, "x")))
    last = look_all(one, start)[-1].position
    look_all(other, began)
    assert other.has_passed(last)
    return last


def test_looks_go_on_from_it(shared: Database) -> None:
    other = shared.source(home="other")
    last = foreign(shared, other)
    assert look_all(other, last) == []
    shared.commit(Insert("yours", (2, "x")))
    assert sum(boundary.changes for boundary in look_all(other, last)) == 1


def test_snapshots_are_taken_from_it(shared: Database) -> None:
    other = shared.source(home="other")
    last = foreign(shared, other)
    shared.commit(Insert("yours", (2, "x")))
    with snapshot_at(other, last, YOURS) as snapshot:
        assert scanned(snapshot, "yours", ["id"], last) == {(1,): 1}


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_restart_begins_there(shared: Database, acknowledged: bool) -> None:
    other = shared.source(home="other")
    last = foreign(shared, other)
    if acknowledged:
        other.acknowledge_position(last)
    other.close()
    again = shared.source(home="other")
    look_all(again, last)
    again.follow_tables(YOURS)
    shared.commit(Insert("yours", (2, "x")))
    assert sum(boundary.changes for boundary in look_all(again, last)) == 1
