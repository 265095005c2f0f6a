"""Algorithms beside and after each other on one project: what one leaves, the next one builds on.

Views are maintained one after the other and may change their algorithm between two runs. What is
compared with is SQLite's own answer, and what is stored: a count below one is not shown, so a wrong
one can hide until another change meets it.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import Shop, rows_of
from tests.engine.test_algorithms import (
    SOLD,
    before_answers,
    change,
    die_ahead,
    opened,
    shop_with_keys,
)
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import SilentObserver
from viewkeeper.errors import ProjectError
from viewkeeper.warehouse.rows.view_state import read_stored

PAIRED = """SELECT a.id AS one, b.id AS other, o.id AS order_id, b.quantity FROM shop.line a
JOIN shop.line b ON a.product_id = b.order_id JOIN shop.orders o ON o.id = b.order_id"""

WITH_CITY = SOLD.replace("l.quantity\n", "l.quantity, c.city\n")


def is_right(project: Project, shop: Shop, name: str) -> bool:
    """Whether a view whose stored rows have all keys shows the right rows and hides none."""
    view = project.view(name)
    counts = set(read_stored(project.settings.warehouse, view.head)["_count"].to_pylist())
    return counts <= {1} and rows_of(view) == shop.recomputed(shop.views[name])


@pytest.mark.parametrize("seed", range(3))
def test_eca_takes_many_transactions_that_waited(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    shop = shop_with_keys(tmp_path, {"paired": PAIRED})
    rng = random.Random(seed)
    with opened(shop, spark, "eca") as project:
        project.refresh()
        with project.open_maintainer("test", SilentObserver()) as maintainer:
            maintainer.start_run()
            for _ in range(8):
                change(shop, rng)
                maintainer.see_commits()
            maintainer.maintain_views()
        assert is_right(project, shop, "paired")


@pytest.mark.parametrize("algorithm", ["t_strobe", "recompute"])
def test_views_that_read_arrival_order_share_their_sources(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """What the answers for one view have shown is delivered to the next one too."""
    shop = shop_with_keys(tmp_path, {"sold": SOLD, "told": WITH_CITY})
    rng, left, lock = random.Random(0), [0], threading.Lock()

    def interfere() -> None:
        with lock:
            if left[0]:
                left[0] -= 1
                change(shop, rng)

    with opened(shop, spark, algorithm) as project:
        project.refresh()
        before_answers(monkeypatch)(interfere)
        for _ in range(3):
            left[0] = 3
            for _ in range(3):
                change(shop, rng)
            project.refresh()
            left[0] = 0
            project.refresh()
            for name, sql in shop.views.items():
                assert rows_of(project.view(name)) == shop.recomputed(sql)


@pytest.mark.parametrize("algorithm", ["eca", "t_strobe", "recompute"])
def test_what_lacks_below_commits_ahead_comes_first(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """A view with all keys in it may go from PVM to any algorithm, also after a crash."""
    shop = shop_with_keys(tmp_path, {"paired": PAIRED})
    die_ahead(shop, spark, before_answers(monkeypatch), monkeypatch)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert project.view("paired").head.ahead
    with opened(shop, spark, algorithm) as project:
        project.refresh()
        assert not project.view("paired").head.ahead
        assert is_right(project, shop, "paired")


def test_an_algorithm_that_is_refused_drops_nothing(tmp_path: Path, spark: SparkSession) -> None:
    shop = shop_with_keys(tmp_path, {"sold": SOLD})
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        project.settings = project.settings.with_algorithm("strobe", None)
        with pytest.raises(ProjectError, match="strobe promises convergence here"):
            project.refresh(full_refresh=["sold"])
        assert rows_of(project.view("sold")) == shop.recomputed(SOLD)


def test_every_state_can_be_verified_beside_views_that_read_other_columns(
    tmp_path: Path, spark: SparkSession
) -> None:
    """What is kept of a relation does not depend on the view that it was read for."""
    shop = shop_with_keys(tmp_path, {"sold": SOLD, "told": WITH_CITY})
    with (shop.folder / "viewkeeper.yml").open("a") as file:
        file.write("views:\n  sold: {algorithm: sweep}\n")
    rng = random.Random(4)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        for _ in range(6):
            change(shop, rng)
            project.refresh()
        found = project.verify(every_state=True)
        assert all(verification.ok for verification in found)
        assert {verification.states for verification in found} == {7}
