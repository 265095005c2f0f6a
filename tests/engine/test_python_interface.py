"""What somebody sees of a project at a Python prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow.compute import field

import viewkeeper
from tests.cli.conftest import call
from tests.engine.shop import Shop
from viewkeeper.errors import HorizonError, NotLoadedError


def test_the_tab_key_shows_what_there_is_to_use() -> None:
    assert dir(viewkeeper) == sorted(viewkeeper.__all__)
    assert all(hasattr(viewkeeper, name) for name in dir(viewkeeper))


def test_a_project_and_its_views_say_what_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    assert call("init", str(folder)).exit_code == 0
    with viewkeeper.open(folder) as project:
        assert repr(project) == f"<Project {folder}: berlin_bulk, order_lines, customer_totals>"
        assert list(project.views) == ["berlin_bulk", "order_lines", "customer_totals"]
        assert repr(project.views["order_lines"]) == "<View order_lines: not loaded yet>"
        assert {view.name for view in project.views.values()} == set(project.views)


def test_a_condition_is_an_expression_of_arrow(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    assert call("init", str(folder)).exit_code == 0
    for name in ("order_lines", "customer_totals"):
        (folder / "views" / f"{name}.sql").unlink()
    text: Any = "quantity > 3"
    with viewkeeper.open(folder) as project:
        project.refresh()
        view = project.view("berlin_bulk")
        with pytest.raises(viewkeeper.ViewkeeperError, match="an expression of Arrow, not a str"):
            view.arrow(where=text)
        assert view.arrow(where=field("quantity") > 3).num_rows == 2


def test_a_stored_view_keeps_a_join_without_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was accepted once; only who writes such a view now is asked what is meant."""
    folder = tmp_path / "shop"
    assert call("init", str(folder)).exit_code == 0
    for file in (folder / "views").iterdir():
        file.unlink()
    text = "CREATE MATERIALIZED VIEW pairs AS SELECT o.id, i.quantity FROM shop.orders o JOIN "
    (folder / "views" / "pairs.sql").write_text(text + "shop.item i")
    with pytest.raises(viewkeeper.ViewkeeperError, match="a JOIN without ON"):
        viewkeeper.open(folder)
    with monkeypatch.context() as earlier:
        earlier.setattr("viewkeeper.view.sql.view_statement.check_joins", lambda _: None)
        with viewkeeper.open(folder) as project:
            assert project.refresh().loaded.keys() == {"pairs"}
    with viewkeeper.open(folder) as project:
        assert project.refresh().waiting == {}
    (folder / "views" / "pairs.sql").write_text(text + "shop.item j")
    with viewkeeper.open(folder) as project, pytest.raises(viewkeeper.ViewkeeperError) as caught:
        project.refresh()
    assert "a JOIN without ON" in str(caught.value)


def test_a_view_that_cannot_be_loaded_is_an_error_of_the_refresh(tmp_path: Path) -> None:
    shop = Shop(
        tmp_path,
        {
            "names": "SELECT c.id, c.name FROM crm.customer c",
            "prices": "SELECT p.id, p.cents FROM catalogue.product p",
            "cheap": "SELECT p.id, p.cents FROM catalogue.product p WHERE p.cents < 20",
        },
    )
    shop.fill()
    shop.execute("catalogue", "UPDATE product SET cents = 'much' WHERE id = 1")
    with viewkeeper.open(shop.folder) as project:
        with pytest.raises(NotLoadedError) as refused:
            project.refresh()
        assert {*refused.value.reasons} == {"prices", "cheap"}
        assert "much" in refused.value.reasons["prices"]
        assert 'view "cheap": ' in str(refused.value.detail)
        assert "strict=False" in str(refused.value.hint)
        assert project.view("names").arrow().num_rows == 8, "the others are there"
        report = project.refresh(strict=False)
        assert {*report.waiting} == {"prices", "cheap"}
        for read in (project.view("prices").arrow, project.view("prices").df):
            with pytest.raises(HorizonError, match="not loaded yet") as missing:
                read()
            assert "much" in str(missing.value.detail)
        shop.execute("catalogue", "UPDATE product SET cents = 10 WHERE id = 1")
        assert project.refresh().loaded.keys() == {"prices", "cheap"}
        shop.execute("catalogue", "UPDATE product SET cents = 'much' WHERE id = 2")
        # What was loaded once is there: that it waits is said by the report.
        assert {*project.refresh().waiting} == {"prices", "cheap"}
