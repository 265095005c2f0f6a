"""What a small batch costs: each view once, however many there are beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import viewkeeper
from tests.engine.by_hand import load_views
from tests.engine.shop import Shop
from viewkeeper.engine.batch import batch_runner
from viewkeeper.engine.batch.staged_run import Stage
from viewkeeper.engine.report import SilentObserver


def lookups_of_a_batch(folder: Path, views: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a batch over so many views asks what a stage reads."""
    asked = list[str]()
    names = [f"customers{number}" for number in range(views)]
    shop = Shop(folder, dict.fromkeys(names, "SELECT id, name, city FROM crm.customer"))
    shop.fill()
    found = vars(Stage)["reads"].fget

    def count(stage: Stage) -> Any:
        asked.append(stage.name)
        return found(stage)

    with viewkeeper.open(shop.folder) as project:
        load_views(project, shop)
        shop.execute("crm", "UPDATE customer SET name = 'q' WHERE id = 1")
        with monkeypatch.context() as patch:
            patch.setattr(Stage, "reads", property(count))
            assert project.refresh().rows == 2 * views
    return len(asked)


def test_a_view_costs_a_batch_as_much_beside_many_as_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    few = lookups_of_a_batch(tmp_path / "few", 2, monkeypatch)
    assert lookups_of_a_batch(tmp_path / "many", 8, monkeypatch) == 4 * few


def test_the_freshness_of_views_is_summed_up_once_for_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for ten times a second, and sorts a thousand numbers for each view."""
    shop = Shop(tmp_path, {"customers": "SELECT id, name FROM crm.customer"})
    shop.fill()
    sorted_ages, percentiles = list[object](), batch_runner.percentiles_of

    def count(ages: Any) -> Any:
        sorted_ages.append(ages)
        return percentiles(ages)

    monkeypatch.setattr(batch_runner, "percentiles_of", count)
    with viewkeeper.open(shop.folder) as project:
        load_views(project, shop)
        with project.open_maintainer("test", SilentObserver()) as keeper:
            keeper.start_run()
            for number in (1, 2):
                shop.execute("crm", f"UPDATE customer SET name = 'q' WHERE id = {number}")
                keeper.see_commits()
                keeper.maintain_views()
                for _ in range(3):
                    keeper.tell_progress(now=True)
                assert len(sorted_ages) == number
