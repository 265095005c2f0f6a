"""A maintainer that is killed while it takes up files, or does what is asked of it, leaves nothing
wrong behind."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.cli.conftest import call
from tests.engine.shop import LINES, Shop, rows_of
from tests.samples import keep_some

VIEWS = {
    "lines": LINES,
    "names": "SELECT c.id, c.name FROM crm.customer c",
    "cities": "SELECT c.city, o.id FROM crm.customer c JOIN shop.orders o ON o.customer_id = c.id",
    "orders": "SELECT o.id, o.customer_id FROM shop.orders o",
}
RUN = """
import sys
from tests.engine.shop import Shop
from viewkeeper.engine.project import open_project
from viewkeeper.engine.report import SilentObserver
from viewkeeper.engine.spark.spark_session import SparkHandle
# Plain joins of small tables need no Spark: one that is never started cannot be in the way.
SparkHandle.begin_start = lambda self: None
open_project(sys.argv[1]).run(SilentObserver())
"""


@pytest.mark.parametrize("seed", keep_some(range(2), [0]))
def test_killed_while_files_are_taken_up(seed: int, tmp_path: Path, spark: SparkSession) -> None:
    rng = random.Random(seed)
    # One file is always right: a start where every view is refused is an error.
    shop = Shop(tmp_path, {"lines": LINES, "base": "SELECT o.id FROM shop.orders o"})
    shop.fill()
    _kill_again_and_again(shop, rng, partial(_change_file, shop, rng))
    shop.define("lines", LINES)
    _finish_in_peace(shop, spark)


@pytest.mark.parametrize("seed", keep_some(range(2), [0]))
def test_killed_while_views_are_loaded_again_and_dropped(
    seed: int, tmp_path: Path, spark: SparkSession
) -> None:
    rng = random.Random(seed)
    shop = Shop(tmp_path, VIEWS)
    shop.fill()
    _kill_again_and_again(shop, rng, partial(_ask_maintainer, shop, rng))
    for name, sql in VIEWS.items():
        shop.define(name, sql)
    with viewkeeper.open(tmp_path, spark=spark) as project:
        edited = {*project.newest_head().shown_views} & {"names", "orders"}
        project.refresh(full_refresh=sorted(edited))
    _finish_in_peace(shop, spark)


def _kill_again_and_again(shop: Shop, rng: random.Random, act: Callable[[], None]) -> None:
    """Six maintainers, each killed after three acts and as many writes."""
    root = Path(__file__).parents[2]
    for number in range(6):
        (shop.folder / "warehouse" / "query.socket").unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, "-c", RUN, str(shop.folder)], cwd=root)
        try:
            _wait_for_head(shop.folder)
            for _ in range(3):
                act()
                shop.execute("crm", f"UPDATE customer SET name = 'n{number}' WHERE id < 5")
                time.sleep(rng.uniform(0.0, 1.5))
        finally:
            process.kill()
            process.wait(60)


def _finish_in_peace(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh()
        assert report.waiting == {}
        assert {*project.newest_head().shown_views} == {*shop.views}
        for name, sql in shop.views.items():
            assert rows_of(project.view(name)) == shop.recomputed(sql), name
        assert all(each.ok for each in project.verify(every_state=True))


def _wait_for_head(folder: Path) -> None:
    until = time.monotonic() + 120
    while not (folder / "warehouse" / "query.socket").exists():
        assert time.monotonic() < until, "it never began"
        time.sleep(0.05)


def _change_file(shop: Shop, rng: random.Random) -> None:
    """Add, remove, break or mend a file; `lines` always stays."""
    name = rng.choice([name for name in VIEWS if name != "lines"])
    file = shop.folder / "views" / f"{name}.sql"
    if file.exists() and rng.random() < 0.4:
        file.unlink()
        del shop.views[name]
        return
    if rng.random() < 0.3:
        (shop.folder / "views" / "lines.sql").write_text("half of")
    shop.define(name, VIEWS[name])


def _ask_maintainer(shop: Shop, rng: random.Random) -> None:
    """Load a view again, as it is or with other SQL, or drop it or put it back."""
    name, folder = rng.choice(["names", "orders"]), str(shop.folder)
    if not (shop.folder / "views" / f"{name}.sql").exists():
        shop.define(name, VIEWS[name])
    elif rng.random() < 0.3:
        assert call("-p", folder, "drop", name, "--file", "--yes").exit_code in (0, 2)
    else:
        shop.define(name, VIEWS[name] + rng.choice(["", " WHERE 1 = 1", " WHERE id > 2"]))
        assert call("-p", folder, "refresh", name, "--no-wait").exit_code in (0, 2)
