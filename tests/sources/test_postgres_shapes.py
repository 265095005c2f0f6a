"""Schema changes of followed tables, in every way to follow them: reported, and followed through.

All cases are gone through while the source is looked at, and while nobody is there. Whatever
happens, writers never fail, the other table goes on, and what is asked is answered exactly or is a
broken query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.sources.postgres_shapes import (
    CASES,
    COLUMNS,
    TABLES,
    Ordeal,
    first_row,
    is_broken,
    look_all,
    merged,
    net,
    states,
    told,
)
from tests.sources.postgres_shop import Row, Shop, changed
from viewkeeper.testing.private_servers import PrivatePostgres
from viewkeeper.updates.source_protocol import names_now_of

pytest_plugins = ("tests.servers",)

WAYS = [(way, when) for way in ("watched", "unwatched", "triggers") for when in ("running", "down")]


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def ordeal(
    request: pytest.FixtureRequest,
    postgres_server: PrivatePostgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ordeal]:
    shop = Shop(postgres_server, tmp_path_factory.mktemp("shapes"))
    yield Ordeal(shop, *request.param)
    shop.close()


@pytest.mark.parametrize("name", CASES)
def test_it_is_reported(ordeal: Ordeal, name: str) -> None:
    found = merged(told(ordeal.found, TABLES[name]))
    assert found == CASES[name].expected(ordeal.way, TABLES[name])


@pytest.mark.parametrize("name", CASES)
def test_what_was_kept_can_be_asked_for(ordeal: Ordeal, name: str) -> None:
    source, table, start, last = ordeal.source, TABLES[name], ordeal.start, ordeal.last
    kept = CASES[name].kept(ordeal.way)
    if kept:
        assert net(changed(source, table, kept, start, last)) == first_row(kept)
        assert ordeal.states[start][table] == Counter()
        assert ordeal.states[last][table] == first_row(kept)
    for column in set(COLUMNS) - set(kept):
        assert is_broken(source, table, [column], start, last)


@pytest.mark.parametrize("name", CASES)
def test_a_new_handle_has_what_happened_before_it(ordeal: Ordeal, name: str) -> None:
    source, table, case = ordeal.source, TABLES[name], CASES[name]
    became, kept = names_now_of(source, table), case.kept(ordeal.way)
    assert (became is None) == case.gone
    if became is None:
        return
    names, now = dict(case.renamed), case.now.format(t=table)
    assert became.table == now
    assert {c: became.columns[c] for c in kept} == {c: names.get(c, c) for c in kept}
    handle = source.handle_of(now)
    agrees = {c: became.columns.get(c) for c in COLUMNS} == {c: c for c in COLUMNS}
    assert handle == (now if agrees else f"{now}#2")
    columns = [became.columns[c] for c in kept]
    source.follow_tables({handle: columns})
    found = changed(source, handle, columns, ordeal.start, ordeal.last)
    assert found == changed(source, table, kept, ordeal.start, ordeal.last)
    assert [source.describe_table(handle).fields[0].name] == [names.get("id", "id")]


def test_other_tables_go_on(ordeal: Ordeal) -> None:
    start, last = ordeal.start, ordeal.last
    found = changed(ordeal.source, "other", ["id", "v"], start, last)
    assert found == [(1, "x", 1), (2, "y", 1)]
    assert ordeal.states[start]["other"] == Counter()
    assert ordeal.states[last]["other"] == Counter([(1, "x"), (2, "y")])
    assert told(ordeal.found, "other") == []


def test_new_handles_answer_for_every_position(ordeal: Ordeal) -> None:
    asked, expected = {}, {}
    for name, case in CASES.items():
        became, kept = names_now_of(ordeal.source, TABLES[name]), case.kept(ordeal.way)
        if became is not None:
            handle = ordeal.source.handle_of(became.table)
            asked[handle] = [became.columns[c] for c in kept]
            expected[handle] = first_row(kept)
    ordeal.source.follow_tables(asked)
    assert states(ordeal.source, asked, ordeal.last) == expected
    nothing: dict[str, Counter[Row]] = {handle: Counter() for handle in asked}
    assert states(ordeal.source, asked, ordeal.start) == nothing


def test_a_restart_reports_the_same_again(ordeal: Ordeal) -> None:
    reports = {table: told(ordeal.found, table) for table in TABLES.values()}
    ordeal.restart()
    again = look_all(ordeal.source, ordeal.start)
    assert {table: told(again, table) for table in TABLES.values()} == reports
    last = again[-1].position
    ordeal.source.acknowledge_position(last)
    assert [b.reshaped for b in look_all(ordeal.source, last) if b.reshaped] == []
    ordeal.restart()
    assert [b.reshaped for b in look_all(ordeal.source, last) if b.reshaped] == []
