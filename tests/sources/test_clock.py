"""The clock as a source: ticks are transactions, nothing is lost, time never runs backwards."""

from __future__ import annotations

import datetime
import pickle
from collections import Counter

import pytest

from viewkeeper.errors import SchemaError, SourceAwayError
from viewkeeper.sources.clock.source import ClockSource
from viewkeeper.sources.clock.ticks import FIELDS, MINUTES, position_at, row_at
from viewkeeper.updates.source_protocol import COUNT, LOOK_TRANSACTIONS, POSITION, Lookup
from viewkeeper.view.definition import Relation

NOON = datetime.datetime(2026, 2, 27, 12, 0, 30, tzinfo=datetime.UTC)
COLUMNS = tuple(field.name for field in FIELDS)


class MovedClock:
    def __init__(self, moment: datetime.datetime = NOON) -> None:
        self.moment = moment

    def __call__(self) -> float:
        return self.moment.timestamp()

    def move(self, **step: float) -> None:
        self.moment += datetime.timedelta(**step)


def followed(clock: MovedClock, *tables: str) -> tuple[ClockSource, int]:
    source = ClockSource("clock", clock)
    return source, source.follow_tables(dict.fromkeys(tables, COLUMNS))


def state_of(source: ClockSource, table: str, after: int) -> Counter[tuple[object, ...]]:
    """What a lookup and a scan say that a table was at a position; both must say the same."""
    relation = Relation("clock", table)
    with source.prepare_snapshots(after, {table: COLUMNS}) as opener:
        snapshot = pickle.loads(pickle.dumps(opener))()
        answer = snapshot.answer_lookup(Lookup(0, relation, COLUMNS, (), (), None), after)
        scan = snapshot.scan_relation(relation, COLUMNS, after)
        found = Counter(tuple(row.values()) for row in answer.rows.to_pylist())
        for row in answer.tail.to_pylist():
            found[tuple(row[name] for name in COLUMNS)] -= row[COUNT]
        scanned = Counter(
            tuple(row.values()) for batch in scan.batches for row in batch.to_pylist()
        )
        for batch in scan.tail:
            for row in batch.to_pylist():
                assert row[POSITION] > after
                scanned[tuple(row[name] for name in COLUMNS)] -= row[COUNT]
    assert +found == +scanned
    assert not -found
    return +found


@pytest.mark.parametrize("table", MINUTES)
def test_every_tick_is_a_transaction(table: str) -> None:
    clock = MovedClock()
    source, start = followed(clock, table)
    assert source.look_for_transactions(start) == ()
    clock.move(days=3)
    seen = source.look_for_transactions(start)
    assert len(seen) == 3 * 24 * 60 // MINUTES[table]
    assert [each.position % MINUTES[table] for each in seen] == [0] * len(seen)
    assert all(each.committed_at == each.position * 60 for each in seen)
    # The changes of each tick make of the row before it the row after it.
    rows = Counter([row_at(table, start)])
    for before, tick in zip([start, *(e.position for e in seen)], seen, strict=False):
        for name, batch in source.read_changes({table: COLUMNS}, before, tick.position):
            assert name == table
            for change in batch.to_pylist():
                rows[change["today"], change["instant"]] += change[COUNT]
        assert +rows == Counter([row_at(table, tick.position)])


def test_states_of_the_past_are_known_whenever_they_are_asked_for() -> None:
    clock = MovedClock()
    source, start = followed(clock, "day", "hour", "minute")
    clock.move(days=1, hours=13, minutes=5)
    for table in MINUTES:
        for position in (start, start + 60, start + 12 * 60, position_at(clock())):
            assert state_of(source, table, position) == Counter([row_at(table, position)])


def test_only_what_is_followed_ticks() -> None:
    clock = MovedClock()
    source, start = followed(clock, "hour")
    clock.move(hours=2)
    assert len(source.look_for_transactions(start)) == 2
    source.follow_tables({"day": COLUMNS})
    assert len(source.look_for_transactions(start)) == 2
    assert followed(clock, "day")[0].look_for_transactions(start) == ()
    assert ClockSource("clock", clock).look_for_transactions(start) == ()


def test_a_restart_finds_all_ticks_that_were_missed() -> None:
    clock = MovedClock()
    _, start = followed(clock, "minute")
    clock.move(days=20)
    again, now = followed(clock, "minute")
    seen, at = 0, start
    while found := again.look_for_transactions(at):
        assert len(found) <= LOOK_TRANSACTIONS
        seen, at = seen + len(found), found[-1].position
    assert seen == 20 * 24 * 60
    assert at == now


def test_time_does_not_run_backwards() -> None:
    clock = MovedClock()
    source, start = followed(clock, "day")
    clock.move(days=2)
    last = source.look_for_transactions(start)[-1].position
    clock.move(days=-5)
    assert source.look_for_transactions(last) == ()
    assert state_of(source, "day", last) == Counter([row_at("day", last)])
    (warning,) = source.read_health([last]).warnings
    assert "time stands still" in warning
    clock.move(days=6)
    assert [each.position for each in source.look_for_transactions(last)] == [last + 24 * 60]
    assert source.read_health([last]).warnings == ()


def test_a_clock_far_ahead_is_not_believed() -> None:
    clock = MovedClock()
    source, start = followed(clock, "day")
    clock.move(days=5000)
    with pytest.raises(SourceAwayError, match="the last tick was 2026-02-27") as caught:
        source.look_for_transactions(start)
    assert "ahead_days: 5001" in (caught.value.hint or "")
    believing = ClockSource("clock", clock, ahead_days=5001)
    believing.follow_tables({"day": COLUMNS})
    assert len(believing.look_for_transactions(start)) == 5000


def test_other_tables_are_refused() -> None:
    with pytest.raises(SchemaError, match='table "days" does not exist'):
        ClockSource("clock").follow_tables({"days": COLUMNS})
