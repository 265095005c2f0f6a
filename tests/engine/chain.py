"""Projects that read each other's views, over the shop's databases, for tests.

What a view must show is computed by SQLite from the databases, with the SQL of the views below it
put in their places, so it has nothing to do with Viewkeeper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.engine.shop import Shop

LINES = """SELECT o.id AS order_id, o.customer_id, i.product_id, i.quantity
FROM shop.orders o JOIN shop.item i ON i.order_id = o.id WHERE i.quantity > 0"""
NAMED = """SELECT l.order_id, l.quantity, c.name FROM sales.lines l
JOIN crm.customer c ON c.id = l.customer_id"""
TITLED = """SELECT n.name, n.quantity, p.title FROM people.named n
JOIN catalogue.product p ON p.id = n.order_id"""


def project(
    folder: Path, sources: Mapping[str, str], views: Mapping[str, str], settings: str = ""
) -> Path:
    """A project folder; sources are lines of the project file."""
    (folder / "views").mkdir(parents=True)
    lines = "".join(f"  {name}: {{{facts}}}\n" for name, facts in sources.items())
    text = f"warehouse: ./warehouse\nsources:\n{lines}{settings}"
    (folder / "viewkeeper.yml").write_text(text)
    for name, sql in views.items():
        define(folder, name, sql)
    return folder


def define(folder: Path, name: str, sql: str) -> None:
    text = f"CREATE MATERIALIZED VIEW {name} AS\n{sql};\n"
    (folder / "views" / f"{name}.sql").write_text(text)


def sqlite(name: str) -> str:
    return f"kind: sqlite, path: ../shop/{name}.db"


def warehouse(folder: str) -> str:
    return f"kind: warehouse, path: ../{folder}"


class Chain:
    """`low` has lines over the shop, `middle` names over low and crm, `high` titles over middle
    and the catalogue."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        (folder / "shop").mkdir(parents=True)
        self.shop = Shop(folder / "shop", {})
        self.shop.fill()
        self.low = project(folder / "low", {"shop": sqlite("shop")}, {"lines": LINES}, settings)
        middle = {"sales": warehouse("low"), "crm": sqlite("crm")}
        self.middle = project(folder / "middle", middle, {"named": NAMED}, settings)
        high = {"people": warehouse("middle"), "catalogue": sqlite("catalogue")}
        self.high = project(folder / "high", high, {"titled": TITLED}, settings)

    def expected(self, sql: str) -> Counter[tuple[Any, ...]]:
        """A view's rows by SQLite."""
        for name, below in (("people.named", NAMED), ("sales.lines", LINES)):
            sql = sql.replace(name, f"({below})")
        return self.shop.recomputed(sql)
