"""Two projects at one database: positions mean the same to both, whatever each of them follows.

One reports its positions to others, who must be able to say that they have passed them, and to cut
their own stream there: also over transactions that concern only what somebody else follows.
"""

from __future__ import annotations

from itertools import pairwise

from tests.sources.conformance.changes import Insert
from tests.sources.conformance.database import Database
from tests.sources.conformance.reading import look_all
from viewkeeper.updates.source_protocol import COUNT, POSITION


def test_a_position_of_another_reader_is_passed(shared: Database) -> None:
    one, other = shared.source(home="one"), shared.source(home="other")
    start = one.follow_tables({"mine": ["id", "v"]})
    began = other.follow_tables({"yours": ["id", "v"]})
    for number in range(3):
        shared.commit(Insert("mine", (number, "x")))
    seen = look_all(one, start)
    assert seen
    last = seen[-1].position
    assert not other.has_passed(last)
    look_all(other, began)
    assert other.has_passed(last)
    assert other.has_passed(began)


def test_a_stream_is_cut_where_another_reader_reported(shared: Database) -> None:
    """Both write in turns; what one reports is where the other cuts."""
    one, other = shared.source(home="one"), shared.source(home="other")
    start = one.follow_tables({"mine": ["id", "v"]})
    began = other.follow_tables({"yours": ["id", "v"]})
    cuts, at = [max(start, began)], start
    for number in range(4):
        shared.commit(Insert("yours", (number, "x")))
        shared.commit(Insert("mine", (number, "x")))
        seen = look_all(one, at)
        at = seen[-1].position
        cuts.append(at)
    look_all(other, began)
    found = []
    for after, until in pairwise(cuts):
        assert other.has_passed(until)
        batches = [batch for _, batch in other.read_changes({"yours": ["id", "v"]}, after, until)]
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert all(after < row[POSITION] <= until and row[COUNT] == 1 for row in rows)
        found.append([row["id"] for row in rows])
    assert found == [[0], [1], [2], [3]]
