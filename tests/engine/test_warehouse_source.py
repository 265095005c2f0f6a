"""Projects over the views of other projects: each state exact, through schema changes and upkeep.

SQLite's own join over the databases says what the views at the end must show; `verify` compares
every state with recomputation from the parents' views.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.chain import LINES, NAMED, TITLED, Chain, define, project, sqlite, warehouse
from tests.engine.shop import rows_of
from viewkeeper.engine.operations.project_status import gather_status
from viewkeeper.engine.report import Report
from viewkeeper.errors import ProjectError, UnsupportedError
from viewkeeper.upstream.source import WarehouseSource
from viewkeeper.warehouse.store import Store


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def refreshed(folder: Path, spark: SparkSession) -> Report:
    with viewkeeper.open(folder, spark=spark) as opened:
        return opened.refresh(strict=False)


def shown(folder: Path, view: str, spark: SparkSession) -> Counter[tuple[Any, ...]]:
    with viewkeeper.open(folder, spark=spark) as opened:
        return rows_of(opened.view(view))


def write(chain: Chain, chance: random.Random) -> None:
    """A few transactions in all databases."""
    for _ in range(chance.randrange(1, 4)):
        order = chance.randrange(60)
        where = chance.choice(["crm", "shop", "shop", "catalogue"])
        if where == "crm":
            name = f"n{chance.randrange(1000)}"
            chain.shop.execute("crm", f"UPDATE customer SET name = '{name}' WHERE id = {order % 8}")
        elif where == "catalogue":
            title = f"t{chance.randrange(1000)}"
            chain.shop.execute(
                "catalogue", f"INSERT OR REPLACE INTO product VALUES ({order}, '{title}', 7)"
            )
        else:
            quantity = chance.randrange(3)
            chain.shop.execute(
                "shop",
                f"INSERT OR REPLACE INTO orders VALUES ({order}, {order % 8}, '2024-01-31')",
                f"INSERT INTO item VALUES ({order}, {order % 5}, {quantity})",
                f"DELETE FROM item WHERE order_id = {(order + 7) % 60}",
            )


def test_a_chain_of_three_projects_shows_what_the_databases_say(
    chain: Chain, spark: SparkSession
) -> None:
    folders = [chain.low, chain.middle, chain.high]
    opened = [viewkeeper.open(folder, spark=spark) for folder in folders]
    for each in opened:
        assert each.refresh().waiting == {}
    chance = random.Random(1)
    for _ in range(5):
        write(chain, chance)
        for each in opened:
            if chance.random() < 0.7:
                each.refresh()
    for each in opened:
        each.refresh()
    low, middle, high = opened
    assert rows_of(low.view("lines")) == chain.expected(LINES)
    assert rows_of(middle.view("named")) == chain.expected(NAMED)
    assert rows_of(high.view("titled")) == chain.expected(TITLED)
    [found] = high.verify(every_state=True)
    assert found.ok
    assert found.states > 1
    for each in opened:
        each.close()


def test_a_parent_folds_its_past_only_as_far_as_its_children_allow(
    tmp_path: Path, spark: SparkSession
) -> None:
    chain = Chain(tmp_path, "retention: 0\n")
    chance = random.Random(2)
    with (
        viewkeeper.open(chain.low, spark=spark) as low,
        viewkeeper.open(chain.middle, spark=spark) as middle,
    ):
        low.refresh()
        middle.refresh()
        taken = middle.newest_head().views["named"].positions["sales"]
        for _ in range(3):
            write(chain, chance)
            chain.shop.execute("shop", "INSERT INTO item VALUES (3, 1, 9)")
            low.refresh()
        told: list[str] = []
        low.compact(told.append)
        lines = low.newest_head().views["lines"]
        assert lines.horizon == taken < lines.ts
        assert any(str(chain.middle) in line for line in told), "it says for whom"
        assert [str(lease) for lease in gather_status(low.settings, time.time()).leases] == [
            str(chain.middle)
        ]
        assert middle.refresh().waiting == {}
        assert rows_of(middle.view("named")) == chain.expected(NAMED)
        low.compact()
        lines = low.newest_head().views["lines"]
        assert lines.horizon == lines.ts == middle.newest_head().views["named"].positions["sales"]
        write(chain, chance)
        low.refresh()
        middle.refresh()
        assert rows_of(middle.view("named")) == chain.expected(NAMED)
        assert all(each.ok for each in middle.verify())


PIECES = LINES.replace("i.quantity\n", "i.pieces AS quantity\n").replace("i.quantity", "i.pieces")


def test_what_a_parent_followed_does_not_concern_its_child_and_what_it_lost_does(
    chain: Chain, spark: SparkSession
) -> None:
    define(chain.low, "lines", LINES.replace("i.quantity\n", "i.quantity, o.placed\n"))
    define(chain.middle, "named", NAMED.replace("c.name", "c.name, l.placed"))
    for folder, view in ((chain.low, "lines"), (chain.middle, "named")):
        wish = f"views: {{{view}: {{evolution: {{dispensable: {{columns: [placed]}}}}}}}}\n"
        file = folder / "viewkeeper.yml"
        file.write_text(file.read_text() + wish)
    low, middle = (viewkeeper.open(f, spark=spark) for f in (chain.low, chain.middle))
    low.refresh()
    middle.refresh()
    versions = len(middle.newest_head().views["named"].versions)
    chain.shop.execute("shop", "ALTER TABLE item RENAME COLUMN quantity TO pieces")
    chain.shop.execute("shop", "UPDATE item SET pieces = 8 WHERE order_id = 3")
    low.refresh()
    middle.refresh()
    assert len(middle.newest_head().views["named"].versions) == versions, "it never learned of it"
    now = NAMED.replace("sales.lines", f"({PIECES})")
    shorter = Counter[tuple[Any, ...]]()
    for row, count in rows_of(middle.view("named")).items():
        shorter[row[:3]] += count
    assert shorter == chain.shop.recomputed(now)
    chain.shop.execute(
        "shop",
        "CREATE TABLE fresh (id INTEGER PRIMARY KEY, customer_id INTEGER)",
        "INSERT INTO fresh SELECT id, customer_id FROM orders",
        "DROP TABLE orders",
        "ALTER TABLE fresh RENAME TO orders",
    )
    chain.shop.execute("shop", "UPDATE item SET pieces = 2 WHERE order_id = 5")
    assert low.refresh().waiting == {}
    assert "placed" not in low.newest_head().views["lines"].schema.names
    assert middle.refresh().waiting == {}
    assert middle.newest_head().views["named"].schema.names == ["order_id", "quantity", "name"]
    assert rows_of(middle.view("named")) == chain.shop.recomputed(now)
    middle.close()
    low.close()


def test_a_parent_that_loads_its_view_again_is_read_again(
    chain: Chain, spark: SparkSession
) -> None:
    refreshed(chain.low, spark)
    refreshed(chain.middle, spark)
    fewer = LINES.replace("> 0", "> 1")
    define(chain.low, "lines", fewer)
    with viewkeeper.open(chain.low, spark=spark) as low:
        low.refresh(full_refresh=["lines"])
        chain.shop.execute("shop", "UPDATE item SET quantity = 6 WHERE order_id = 6")
        low.refresh()
    with viewkeeper.open(chain.middle, spark=spark) as middle:
        assert middle.refresh().waiting == {}
        expected = chain.shop.recomputed(NAMED.replace("sales.lines", f"({fewer})"))
        assert rows_of(middle.view("named")) == expected
        assert all(each.ok for each in middle.verify())


class KilledError(SystemExit):
    """Stands for the end of a process."""


@pytest.mark.parametrize("step", ["write_plan", "commit", "acknowledge_position"])
def test_a_child_that_dies_between_steps_goes_on_where_it_was(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    chain = Chain(tmp_path, "retention: 0\n")
    refreshed(chain.low, spark)
    refreshed(chain.middle, spark)
    chance = random.Random(3)
    for _ in range(2):
        write(chain, chance)
        chain.shop.execute("shop", "INSERT INTO item VALUES (3, 1, 9)")
        refreshed(chain.low, spark)

    def dies(*arguments: object, **facts: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        place = WarehouseSource if step == "acknowledge_position" else Store
        patched.setattr(place, step, dies)
        with pytest.raises(KilledError):
            refreshed(chain.middle, spark)
    with viewkeeper.open(chain.low, spark=spark) as low:
        chain.shop.execute("shop", "DELETE FROM item WHERE order_id = 4")
        low.refresh()
        low.compact()
    assert refreshed(chain.middle, spark).waiting == {}
    assert shown(chain.middle, "named", spark) == chain.expected(NAMED)


def test_a_parent_that_is_away_delays_only_what_depends_on_it(
    chain: Chain, spark: SparkSession
) -> None:
    define(chain.middle, "cities", "SELECT c.id, c.city FROM crm.customer c")
    refreshed(chain.low, spark)
    refreshed(chain.middle, spark)
    before = shown(chain.middle, "named", spark)
    away = chain.low.with_name("elsewhere")
    chain.low.rename(away)
    chain.shop.execute("crm", "UPDATE customer SET city = 'q', name = 'z' WHERE id = 1")
    waiting = refreshed(chain.middle, spark).waiting
    assert set(waiting) == {"named"}
    assert shown(chain.middle, "named", spark) == before
    assert shown(chain.middle, "cities", spark) == chain.shop.recomputed(
        "SELECT id, city FROM crm.customer"
    )
    away.rename(chain.low)
    assert refreshed(chain.middle, spark).waiting == {}
    assert shown(chain.middle, "named", spark) == chain.expected(NAMED)


def test_dependent_sources_are_refused_where_nobody_orders_them(
    chain: Chain, tmp_path: Path, spark: SparkSession
) -> None:
    refreshed(chain.low, spark)
    both = "SELECT l.order_id, o.placed FROM sales.lines l JOIN shop.orders o ON o.id = l.order_id"
    sources = {"sales": warehouse("low"), "shop": sqlite("shop")}
    diamond = project(tmp_path / "diamond", sources, {"both": both})
    with (
        viewkeeper.open(diamond, spark=spark) as opened,
        pytest.raises(UnsupportedError, match='"sales" and "shop" are both') as raised,
    ):
        opened.refresh()
    assert 'made from "shop"' in str(raised.value)
    assert "registry:" in str(raised.value)
    sources = {"sales": warehouse("low"), "shop": f"{sqlite('shop')}, global: another"}
    apart = project(tmp_path / "apart", sources, {"both": both})
    assert refreshed(apart, spark).waiting == {}


def test_a_project_does_not_read_itself(tmp_path: Path, spark: SparkSession) -> None:
    folder = project(tmp_path / "low", {"me": warehouse("low")}, {"v": "SELECT x.a FROM me.x x"})
    with (
        viewkeeper.open(folder, spark=spark) as opened,
        pytest.raises(ProjectError, match="the project itself"),
    ):
        opened.refresh()
