"""Projects over the views of other projects: each state exact, through schema changes and upkeep.

SQLite's own join over the databases says what the views at the end must show; `verify` compares
every state with recomputation from the parents' views.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.chain import LINES, NAMED, TITLED, Chain
from tests.engine.shop import rows_of


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def refreshed(folder: Path, spark: SparkSession) -> Any:
    with viewkeeper.open(folder, spark=spark) as opened:
        return opened.refresh()


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
    for _ in range(8):
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
    for each in opened:
        found = each.verify(every_state=True)
        assert all(one.ok for one in found)
        assert all(one.states > 1 for one in found)
        each.close()
