"""The one invariant: rows minus tail is the relation as of the asked position, whatever goes on.

For scans and for lookups, for every position that is not acknowledged, here and in another process,
for one snapshot or several at once, while a writer that waits for nobody goes on writing.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sources.conformance.changes import Bag, Delete, Insert, Update, Word, bag_of, inserts
from tests.sources.conformance.database import NAME, Database
from tests.sources.conformance.reading import (
    Follower,
    answered,
    in_rows_minus,
    lookup_of,
    read_elsewhere,
    rows_of,
    scanned,
    snapshot_at,
)
from viewkeeper.updates.answer_pages import Paging
from viewkeeper.updates.source_protocol import COUNT
from viewkeeper.view.definition import Relation

STOCK: dict[str, Word] = {"sku": "int", "name": "text", "price": "decimal"}
COLUMNS = list(STOCK)
ROWS = [(n % 7, f"name {n % 5}", Decimal(n)) for n in range(20)]


@pytest.fixture
def follower(database: Database) -> Follower:
    """Some rows from before, three positions, and a commit that no look has seen."""
    database.table("stock", STOCK, indexes=[["sku"]])
    if database.tables_max > 1:
        database.table("orders", {"id": "int", "sku": "int"}, key=["id"])
    database.commit(*inserts("stock", ROWS))
    follower = Follower(database)
    database.commit(Update("stock", ROWS[0], (0, "new", None)), Delete("stock", ROWS[1]))
    follower.look()
    database.commit(Insert("stock", ROWS[2]), Insert("stock", ROWS[2]), Delete("stock", ROWS[3]))
    follower.look()
    write_on(database)
    return follower


def write_on(database: Database, number: int = 100) -> None:
    """A transaction that nobody has been told of."""
    database.commit(Insert("stock", (number, "late", None)), Insert("stock", ROWS[2]))


def test_rows_minus_tail_is_the_state_as_of_every_position(follower: Follower) -> None:
    assert len(follower.states) >= 3
    for after in follower.states:
        follower.check_snapshot(after)


def matching(state: Bag, skus: Sequence[int]) -> Bag:
    return bag_of(row for row, count in state.items() for _ in range(count) if row[0] in skus)


def test_answers_have_all_rows_of_the_keys_and_each_once(follower: Follower) -> None:
    for after, state in follower.states.items():
        with snapshot_at(follower.source, after, follower.tables) as snapshot:
            for skus in ([], [2], [0, 3, 100, 999], list(range(200))):
                keys = pa.table({"sku": pa.array(skus, pa.int64())})
                answer = snapshot.answer_lookup(lookup_of("stock", COLUMNS, keys), after)
                found = matching(answered(answer, COLUMNS, after), skus)
                assert found == matching(state["stock"], skus)


def test_pages_are_the_answer(follower: Follower, tmp_path: Path) -> None:
    """The pages of one answer are read, twice, after the next question has been answered."""
    after, state = list(follower.states.items())[-1]
    keys = pa.table({"sku": pa.array([0, 2, 3, 100], pa.int64())})
    with snapshot_at(follower.source, after, follower.tables) as snapshot:
        for asked_keys in (keys, None):
            lookup = lookup_of("stock", COLUMNS, asked_keys)
            paged = replace(lookup, paging=Paging(3, str(tmp_path)))
            answer = snapshot.answer_lookup(paged, after)
            snapshot.answer_lookup(paged, after)
            assert answer.pages is not None, "more rows than a page has"
            assert answer.rows.num_rows == 0
            for _ in range(2):
                whole = replace(answer, rows=pa.concat_tables(answer.pages), pages=None)
                assert whole.row_count == answer.row_count
                found = answered(whole, COLUMNS, after)
                skus = [0, 2, 3, 100] if asked_keys else [row[0] for row in state["stock"]]
                assert matching(found, skus) == matching(state["stock"], skus)
    assert not list(tmp_path.glob("*.arrow"))


def test_any_columns_can_be_asked_for(follower: Follower) -> None:
    keys = pa.table({"sku": pa.array([1, 2], pa.int64())})
    for columns in (["price"], ["name", "sku"], []):
        narrow = Follower(follower.database, follower.source, {"stock": columns})
        narrow.check_snapshot(narrow.start)
        with snapshot_at(narrow.source, narrow.start, narrow.tables) as snapshot:
            answer = snapshot.answer_lookup(lookup_of("stock", columns, keys), narrow.start)
            found = answered(answer, columns, narrow.start)
        wanted = matching(follower.database.state["stock"], [1, 2])
        assert sum(found.values()) >= sum(wanted.values()) > 0, columns


def test_an_opener_works_in_another_process(
    follower: Follower, elsewhere: ProcessPoolExecutor
) -> None:
    after = sorted(follower.states)[1]
    with follower.source.prepare_snapshots(after, follower.tables) as opener:
        packed = pickle.dumps(opener)
        write_on(follower.database, 200)
        found = elsewhere.submit(read_elsewhere, packed, follower.tables, after).result(60)
    state = follower.states[after]
    assert found == {table: (state[table], state[table]) for table in follower.tables}


def test_several_snapshots_at_once(follower: Follower) -> None:
    """Opened one after the other, with commits in between, and read by several threads."""
    after = follower.start
    with (
        follower.source.prepare_snapshots(after, follower.tables) as one,
        follower.source.prepare_snapshots(follower.newest, follower.tables) as other,
        ThreadPoolExecutor(3) as pool,
    ):
        reading = []
        for number, (opener, position) in enumerate([(one, after), (other, follower.newest)] * 2):
            reading.append(pool.submit(follower.check_opener, opener, position))
            write_on(follower.database, 300 + number)
        for each in reading:
            each.result(60)


def test_writers_go_on_while_a_snapshot_is_read(follower: Follower) -> None:
    """Its locks have a time limit far below ours: were it kept out, it would fail."""
    after, database = follower.newest, follower.database
    with follower.source.prepare_snapshots(after, follower.tables) as opener:
        write_on(database, 400)
        with closing(opener()) as snapshot:
            write_on(database, 401)
            scan = snapshot.scan_relation(Relation(NAME, "stock"), COLUMNS, after)
            batches = scan.batches
            rows = rows_of(next(batches), COLUMNS)
            write_on(database, 402)
            rows += [row for batch in batches for row in rows_of(batch, COLUMNS)]
            write_on(database, 403)
            tail = [row for batch in scan.tail for row in rows_of(batch, [*COLUMNS, COUNT])]
            assert in_rows_minus(rows, tail) == follower.states[after]["stock"]
            write_on(database, 404)
            assert scanned(snapshot, "stock", COLUMNS, after) == follower.states[after]["stock"]
    follower.look()
    follower.check_intervals()


def test_a_look_and_a_snapshot_do_not_wait_for_each_other(follower: Follower) -> None:
    after = follower.newest
    source, tables = follower.source, follower.tables
    with source.prepare_snapshots(after, tables) as opener, closing(opener()) as snapshot:
        batches = snapshot.scan_relation(Relation(NAME, "stock"), COLUMNS, after).batches
        first = next(batches)
        write_on(follower.database, 500)
        follower.look()
        follower.check_opener(opener, after)
        rest = [row for batch in batches for row in rows_of(batch, COLUMNS)]
        assert len(rows_of(first, COLUMNS)) + len(rest) >= len(ROWS)
    follower.check_snapshot(follower.newest)


def test_a_scan_that_is_given_up_disturbs_nobody(follower: Follower) -> None:
    for _ in range(3):
        with snapshot_at(follower.source, follower.start, follower.tables) as snapshot:
            next(snapshot.scan_relation(Relation(NAME, "stock"), COLUMNS, follower.start).batches)
    write_on(follower.database, 600)
    follower.look()
    follower.check_snapshot(follower.start)


def test_a_snapshot_of_an_empty_table(database: Database) -> None:
    database.table("stock", STOCK)
    follower = Follower(database)
    follower.check_snapshot(follower.start)
    database.commit(*inserts("stock", ROWS[:2]))
    follower.check_snapshot(follower.start)
    follower.look()
    follower.check_snapshot(follower.newest)
