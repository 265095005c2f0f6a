"""A project loaded, maintained and verified on executors of their own; run as a program.

`local-cluster` starts a master, two workers and their executors as separate processes: what a
standalone cluster does, on one machine. Nothing of the driver's memory is there in the tasks.
"""

from __future__ import annotations

import sys
from pathlib import Path

import viewkeeper
from tests.engine.shop import LINES, Shop, rows_of

SETTINGS = """batch: {inline_rows: 0}
spark: {master: "local-cluster[2,1,1024]"}
"""


def main(folder: Path) -> None:
    shop = Shop(folder, {"lines": LINES}, SETTINGS)
    shop.fill(customers=80, orders=400, products=50)
    with viewkeeper.open(folder) as project:
        assert project.refresh().loaded == {"lines": 300}
        shop.execute("crm", "UPDATE customer SET name = name || 'x'")
        shop.execute("shop", "DELETE FROM item WHERE order_id < 20")
        report = project.refresh()
        assert (report.batches, report.batches_on_spark, report.waiting) == (1, 1, {})
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
        assert all(verdict.ok for verdict in project.verify())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
