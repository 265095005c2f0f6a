"""A parent's view as a source: its feed and answers equal to its states at every ts.

The parents are real warehouses, written one commit at a time; what their views show is computed
beside them.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.registry.parents import Bag, BuiltParent, Row
from viewkeeper.errors import SourceAwayError
from viewkeeper.order.mediator import OrderMark
from viewkeeper.updates.source_protocol import Boundary, Lookup
from viewkeeper.upstream.order_marks import EVERYTHING
from viewkeeper.upstream.parent_project import ParentFiles, ParentProject
from viewkeeper.upstream.source import WarehouseSource
from viewkeeper.view.definition import Relation
from viewkeeper.warehouse.lake import data_files
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.coordination import Coordination, GroupSpan, write_coordination
from viewkeeper.warehouse.retention import clean_warehouse
from viewkeeper.warehouse.rows import file_search as find

TABLES = {"lines": ["k", "name"]}


def bag(table: pa.Table) -> Bag:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def state(source: WarehouseSource, at: int, view: str = "lines") -> Bag:
    """All rows as of a ts, as a scan gives them."""
    with source.prepare_snapshots(at, TABLES) as opener:
        scan = opener().scan_relation(Relation("sales", view), ["k", "name"], at)
    assert scan.cut.position == at
    assert sum(batch.num_rows for batch in scan.tail) == 0
    return sum((bag(pa.Table.from_batches([b])) for b in scan.batches), Counter())


def feed(source: WarehouseSource, after: int, until: int) -> dict[int, Bag]:
    """The changes by ts; counts are +1 and -1."""
    found: dict[int, Bag] = {}
    last = after
    for handle, batch in source.read_changes(TABLES, after, until):
        assert handle == "lines"
        for row in batch.to_pylist():
            *values, count, ts = row.values()
            assert count in (1, -1)
            assert last <= ts, "in ts order"
            last = ts
            found.setdefault(ts, Counter())[tuple(values)] += count
    return found


def asked(source: WarehouseSource, at: int, keys: list[int | None], null_safe: bool) -> Bag:
    table = pa.table({"k": pa.array(keys, pa.int64())})
    lookup = Lookup(0, Relation("sales", "lines"), ("k", "name"), ("k",), (null_safe,), table)
    with source.prepare_snapshots(at, TABLES) as opener:
        answer = opener().answer_lookup(lookup, at)
    assert (answer.cut.position, answer.tail.num_rows) == (at, 0)
    return bag(answer.rows)


def some_changes(chance: random.Random, before: Bag) -> dict[Row, int]:
    gone = chance.sample(sorted(before, key=repr), k=min(len(before), chance.randrange(3)))
    keys = [None, *range(6)]
    new = [(chance.choice(keys), chance.choice("abc")) for _ in range(chance.randrange(3))]
    found: Counter[Row] = Counter()
    for row in gone:
        found[row] -= before[row]
    for row in new:
        found[row] += chance.randrange(1, 3)
    return {row: count for row, count in found.items() if count}


def written(parent: BuiltParent, chance: random.Random) -> None:
    """One commit of one to three transactions, some of them without changes."""
    first, count = parent.last + 1, chance.randrange(1, 4)
    state, changes = parent.states["lines"][parent.last], dict[int, dict[Row, int]]()
    for ts in range(first, first + count):
        changes[ts] = some_changes(chance, state) if chance.random() < 0.7 else {}
        state = Counter(state)
        for row, number in changes[ts].items():
            state[row] += number
        state = Counter({row: number for row, number in state.items() if number})
    parent.commit({"lines": changes}, count)


def test_feed_and_answers_are_the_states_of_every_ts(
    parent: BuiltParent, child: WarehouseSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "ROWS_PER_GROUP", 3)
    chance = random.Random(7)
    begin = known = child.follow_tables(TABLES)
    reported: list[Boundary] = []
    for step in range(25):
        written(parent, chance)
        if step % 6 == 5:
            merge_tail(parent.store, "lines")
        if chance.random() < 0.6:
            reported += child.look_for_transactions(known)
            known = reported[-1].position
    reported += child.look_for_transactions(known)
    states = parent.states["lines"]
    assert [b.position for b in reported] == list(range(begin + 1, parent.last + 1))
    assert [b.committed_at for b in reported] == [1000.0 + b.position for b in reported]
    changes = feed(child, begin, parent.last)
    for boundary in reported:
        at = boundary.position
        difference = Counter(states[at])
        difference.subtract(states[at - 1])
        expected = {row: count for row, count in difference.items() if count}
        assert changes.get(at, {}) == expected
        assert bool(boundary.changes) == bool(expected), "empty transactions are there, and empty"
        assert state(child, at) == states[at]
        for null_safe in (True, False):
            wanted = [2, 5, None]
            found = asked(child, at, wanted, null_safe)
            keys = {2, 5, None} if null_safe else {2, 5}
            must = {row: count for row, count in states[at].items() if row[0] in keys}
            assert {row: found[row] for row in must} == must
            assert all(found[row] <= states[at][row] for row in found)
    assert child.has_passed(parent.last)
    assert not child.has_passed(parent.last + 1)


def test_a_look_at_an_idle_parent_reads_nothing(
    parent: BuiltParent, child: WarehouseSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = child.follow_tables(TABLES)
    child.look_for_transactions(at)
    opened: list[str] = []
    monkeypatch.setattr(ParentProject, "load_head", lambda self: opened.append("head"))
    monkeypatch.setattr(ParentProject, "load_journal", lambda self: opened.append("journal"))
    monkeypatch.setattr(
        "viewkeeper.upstream.parent_project.plans_after", lambda *a: opened.append("p")
    )
    for _ in range(3):
        assert child.look_for_transactions(at) == ()
    assert opened == []


def test_plans_are_read_once_and_folded_ones_only_where_they_were_missed(
    parent: BuiltParent,
) -> None:
    ledger = ParentFiles(ParentProject("sales", parent.folder), time.monotonic)
    for _ in range(3):
        parent.commit({"lines": {}})
    ledger.current_head()
    assert (ledger.readings, ledger.last_ts) == (1, parent.last)
    for _ in range(3):
        parent.commit({"lines": {}})
        ledger.current_head()
    parent.store.group.flush_tables()
    clean_warehouse(parent.store, retention_s=0.0, fold_at_least=1)
    parent.commit({"lines": {}})
    ledger.current_head()
    assert (ledger.readings, ledger.last_ts) == (1, parent.last), "all were seen before the fold"
    parent.commit({"lines": {}})
    parent.store.group.flush_tables()
    clean_warehouse(parent.store, retention_s=0.0, fold_at_least=1)
    parent.commit({"lines": {}})
    ledger.current_head()
    assert (ledger.readings, ledger.last_ts) == (2, parent.last)


def test_ts_that_share_a_state_are_one_transaction(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    at = child.follow_tables(TABLES)
    parent.commit({"lines": {parent.last + 3: {(9, "x"): 1}}}, 3, exact=False)
    parent.commit({"lines": {}})
    assert [b.position for b in child.look_for_transactions(at)] == [at + 3, at + 4]
    assert child.look_for_transactions(at)[0].changes == 1


def test_the_slowest_view_says_how_far_all_are_taken(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    parent.create("slow", {(7, "s"): 1})
    at = child.follow_tables({**TABLES, "slow": ["k"]})
    parent.commit({"lines": {at + 1: {(8, "x"): 1}}}, 2)
    assert child.look_for_transactions(at) == ()
    with pytest.raises(SourceAwayError, match="no state as of"):
        state(child, at + 1, "slow")
    parent.advance("slow", {})
    assert [b.position for b in child.look_for_transactions(at)] == [at + 1, at + 2]


def test_states_that_are_not_common_to_all_views_are_not_reported(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    parent.create("slow", {})
    at = child.follow_tables({**TABLES, "slow": ["k"]})
    parent.commit({"slow": {}}, 1)
    parent.commit({"lines": {parent.last + 2: {(8, "x"): 1}}}, 2, exact=False)
    assert child.look_for_transactions(at) == (), (
        "lines has no state of its own before ts 4, slow stands at 2"
    )
    parent.advance("slow", {})
    assert [b.position for b in child.look_for_transactions(at)] == [at + 3]


def test_a_file_that_vanishes_while_it_is_read_is_read_from_the_next_head(
    parent: BuiltParent, child: WarehouseSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = child.follow_tables(TABLES)
    for number in range(3):
        parent.commit({"lines": {parent.last + 1: {(number, "n"): 1}}})
    child.look_for_transactions(at)
    read = ParentProject.load_head
    left = [1]

    def late(self: ParentProject) -> object:
        head = read(self)
        if left:
            left.pop()
            merge_tail(parent.store, "lines")
            clean_warehouse(parent.store, retention_s=-1.0)
        return head

    monkeypatch.setattr(ParentProject, "load_head", late)
    assert state(child, parent.last) == parent.states["lines"][parent.last]
    assert not left


def test_a_damaged_file_is_a_parent_that_is_away_until_it_is_mended(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    child.follow_tables(TABLES)
    [data] = (parent.root / "views").rglob("*.parquet")
    good = data.read_bytes()
    data.write_bytes(b"PAR1 no")
    with pytest.raises(SourceAwayError, match="cannot be read"):
        state(child, parent.last)
    data.write_bytes(good)
    assert state(child, parent.last) == parent.states["lines"][parent.last]


def test_marks_stand_for_the_numbers_of_a_group(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    child.follow_tables(TABLES)
    assert child.group_marks("one") is None
    parent.commit({"lines": {}})
    since = parent.last
    spans = (GroupSpan("g", "one", since, 9, since + 2),)
    write_coordination(parent.root, Coordination("orders", spans))
    assert child.group_marks("other") is None
    assert child.group_marks("one") == ([OrderMark(0, since)], 0), (
        "the ledger is not committed that far"
    )
    parent.commit({"lines": {}}, 2, numbers={since + 1: 4, since + 2: 7})
    first, last = OrderMark(4, since + 1), OrderMark(7, since + 2)
    assert child.group_marks("one") == ([OrderMark(0, since), first, last], 9)
    assert child.group_marks("one", beyond=first) == ([last], 9)
    moved = (*spans, GroupSpan("h", "two", since + 2, 0, since + 2))
    write_coordination(parent.root, Coordination("orders", moved))
    parent.commit({"lines": {}}, 2, exact=False, numbers={since + 3: 1, since + 4: 2})
    assert child.group_marks("one") == (
        [
            OrderMark(0, since, False),
            OrderMark(4, since + 1, False),
            OrderMark(7, since + 2, False),
        ],
        EVERYTHING,
    )
    new = [OrderMark(0, since + 2, False), OrderMark(1, since + 3, False), OrderMark(2, since + 4)]
    assert child.group_marks("two") == (new, 2)


def test_a_base_is_known_by_its_global_name(parent: BuiltParent) -> None:
    parent.commit({"lines": {}}, 3)
    lines = parent.store.head.views["lines"]
    assert ParentProject("sales", parent.folder).bases_of(lines) == {"company"}


def test_a_lookup_reads_only_what_statistics_allow(
    parent: BuiltParent, child: WarehouseSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "ROWS_PER_GROUP", 10)
    at = child.follow_tables(TABLES)
    parent.commit({"lines": {at + 1: {(k, "x"): 1 for k in range(100, 200)}}})
    parent.store.group.flush_tables()
    child.look_for_transactions(at)
    read: list[tuple[str, ...]] = []
    columns = find._read_columns

    def watched(file: Any, names: Sequence[str]) -> pa.Table:
        read.append(tuple(names))
        return columns(file, names)

    monkeypatch.setattr(find, "_read_columns", watched)
    assert asked(child, parent.last, [150], False) == {(150, "x"): 1}
    assert read == [("k",), ("name", "_count")], "one row group of ten"
