"""A small fleet to try: two databases, two projects over both, and a third over their views.

    python examples/fleet/make.py                      makes shop.db and people.db beside this file
    viewkeeper --project examples/fleet/sales run      one terminal each
    viewkeeper --project examples/fleet/crm run
    viewkeeper --project examples/fleet/report run
    python examples/fleet/make.py write                changes something in both, again and again

`report` joins views that share both databases. It never shows an order before and after a change at
once, because the registry beside the projects gives all three one order.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).parent
TABLES = {
    "shop": "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, amount INTEGER)",
    "people": "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT)",
}
CITIES = ("Porto", "Oslo", "Turin")


def make(folder: Path) -> None:
    for name, table in TABLES.items():
        with closing(sqlite3.connect(folder / f"{name}.db")) as database, database:
            database.execute(table)
            for at in range(1, 9):
                row = (
                    (at, at % 4 + 1, 10 * at) if name == "shop" else (at, f"n{at}", CITIES[at % 3])
                )
                target = "orders" if name == "shop" else "customer"
                database.execute(f"INSERT INTO {target} VALUES (?, ?, ?)", row)


def write(folder: Path, rng: random.Random) -> None:
    """One transaction in each database."""
    with closing(sqlite3.connect(folder / "shop.db", timeout=30)) as shop, shop:
        row = (rng.randint(1, 20), rng.randint(1, 8), rng.randint(1, 99))
        shop.execute("INSERT OR REPLACE INTO orders VALUES (?, ?, ?)", row)
    with closing(sqlite3.connect(folder / "people.db", timeout=30)) as people, people:
        move = (rng.choice(CITIES), rng.randint(1, 8))
        people.execute("UPDATE customer SET city = ? WHERE id = ?", move)


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        chance = random.Random()
        while True:
            write(HERE, chance)
            time.sleep(0.2)
    make(HERE)
