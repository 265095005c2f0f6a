"""Views that are served are not called stopped: one that is loaded again, and one whose file is
edited or wrong. The page, the figures, the probe and `status` say the same of each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cli.conftest import call
from tests.engine.test_refresh_swap import SECONDS, held_loads
from tests.web.browser import Page
from tests.web.conftest import Site, maintaining
from tests.web.projects import make_shop, run_sql, write_view
from tests.web.test_metrics import samples_of, value_of, wait_until
from tests.web.test_web_page import LIVE, check_page, contrast_of
from viewkeeper.engine.operations.project_status import STATE_WORDS
from viewkeeper.errors import ExpressionError
from viewkeeper.web.web_app import PAGE

ROW = "[...document.querySelectorAll('#view-rows tr')].find(row => row.dataset.key === 'items')"
MORE = "SELECT id, cents FROM shop.item WHERE cents < 500"


def items_of(site: Site) -> dict[str, Any]:
    """What the page says of the view."""
    views = site.ask("/api/status").facts["views"]
    return dict(next(view for view in views if view["name"] == "items"))


def check_figures(site: Site, state: str, up: float) -> None:
    """The figures and the probe say what the page does."""
    found = samples_of(site.ask("/metrics").body)
    assert value_of(found, "viewkeeper_view_up", view="items") == up
    assert value_of(found, "viewkeeper_view_state", view="items", state=state) == 1.0
    assert value_of(found, "viewkeeper_view_up", view="totals") == 1.0
    assert site.ask("/readyz").status == (200 if up else 503)


def ask_status(site: Site) -> tuple[int, str]:
    """The exit code of `status`, and its lines as one; wide enough that no cell wraps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "300")
        found = call("-p", str(site.folder), "status")
    return found.exit_code, " ".join(found.stdout.split())


def has_state(site: Site, state: str) -> bool:
    return bool(items_of(site)["state"] == state)


def test_a_view_that_is_loaded_again_is_up(
    browser: Page, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_shop(tmp_path / "shop")
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        with held_loads(monkeypatch) as (begun, may_end):
            assert call("-p", str(folder), "refresh", "items", "--no-wait").exit_code == 0
            assert begun.wait(SECONDS)
            wait_until(partial(has_state, site, "refreshing"))
            found = items_of(site)
            assert found["up"]
            assert "it shows its state of ts" in found["problem"]
            check_figures(site, "refreshing", 1.0)
            code, told = ask_status(site)
            assert (code, "loads again, " in told, "stopped" in told) == (1, True, False)
            browser.open(site.address.url)
            browser.wait_for(f"{LIVE} && {ROW}.innerText.includes('loads again')")
            # It ends by itself: there is nothing that somebody should do.
            assert browser.ask("document.querySelector('#attention').hidden")
            assert browser.ask(f"{ROW}.querySelector('.warn') !== null")
            browser.ask(f"{ROW}.querySelector('button').click()")
            shown = "document.querySelector('#view-problem').innerText"
            browser.wait_for(f"{shown}.includes('being loaded again')")
            check_page(browser, 1280)
            # The old state is there to be read.
            rows = site.ask("/api/query", {"sql": "SELECT count(*) FROM items"}).facts["rows"]
            assert rows == [[3]]
            may_end.set()
        wait_until(partial(has_state, site, "fresh"))
        check_figures(site, "maintained", 1.0)
        assert ask_status(site)[0] == 0


def test_a_load_that_fails_again_and_again_has_stopped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_shop(tmp_path / "shop")

    def fail(*_: object) -> None:
        raise ExpressionError("it cannot be loaded", hint="mend it")

    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        monkeypatch.setattr("viewkeeper.engine.load.loader.load_view", fail)
        assert call("-p", str(folder), "refresh", "items", "--no-wait").exit_code == 0
        wait_until(partial(has_state, site, "stopped"))
        found = items_of(site)
        assert (found["up"], found["hint"].splitlines()[0]) == (False, "mend it")
        assert found["problem"].startswith("being loaded again: it cannot be loaded")
        check_figures(site, "stopped", 0.0)
        code, told = ask_status(site)
        assert (code, "stopped, " in told) == (1, True)


def break_file(folder: Path) -> None:
    write_view(folder, "items", "SELCT id, cents FROM shop.item")


def edit_file(folder: Path) -> None:
    write_view(folder, "items", MORE)


@pytest.mark.parametrize(
    ("change", "problem", "hint"),
    [
        (break_file, "refused: ", "did you mean SELECT"),
        (edit_file, "its SQL is not the one", "`viewkeeper refresh items` loads it again"),
    ],
)
def test_a_view_goes_on_by_its_stored_sql_and_is_up(
    browser: Page,
    spark: SparkSession,
    tmp_path: Path,
    change: Callable[[Path], None],
    problem: str,
    hint: str,
) -> None:
    folder = make_shop(tmp_path / "shop")
    written = (folder / "views" / "items.sql").read_text()
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        change(folder)
        kinds = "viewkeeper_state_changes_total"
        # The maintainer has taken up the file, and refused it.
        wait_until(
            lambda: (
                value_of(samples_of(site.ask("/metrics").body), kinds, kind="view_refused") == 1.0
            )
        )
        run_sql(folder / "shop.db", "INSERT INTO item VALUES (7, 2, 900)")
        wait_until(lambda: items_of(site)["rows"] == 4)
        found = items_of(site)
        assert (found["state"], found["up"]) == ("refused", True)
        assert found["problem"].startswith(problem)
        assert hint in f"{found['problem']} {found['hint']}"
        check_figures(site, "refused", 1.0)
        code, told = ask_status(site)
        assert (code, "goes on by its stored SQL" in told) == (1, True), told
        assert hint in told
        assert "stopped" not in told
        browser.open(site.address.url, 400, dark=True)
        browser.wait_for(f"{LIVE} && {ROW}.innerText.includes('goes on by its stored SQL')")
        attention = "document.querySelector('#attention').innerText"
        browser.wait_for(f"{attention}.includes({problem!r})")
        assert hint in browser.ask(attention)
        assert browser.ask("document.querySelectorAll('#attention .bad').length") == 0
        assert browser.ask("document.title").startswith("⚠")
        assert contrast_of(browser, ".warn") >= 4.5
        check_page(browser, 400)
        (folder / "views" / "items.sql").write_text(written)
        wait_until(partial(has_state, site, "fresh"))
        assert ask_status(site)[0] == 0


def test_a_stored_view_whose_sql_has_no_source_any_more_is_down(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = make_shop(tmp_path / "shop")
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        settings = folder / "viewkeeper.yml"
        settings.write_text(settings.read_text().replace("  crm:", "  people:"))
        lines = partial(
            lambda: next(
                view for view in site.ask("/api/status").facts["views"] if view["name"] == "lines"
            )
        )
        wait_until(lambda: lines()["state"] == "stopped")
        assert "unknown source" in lines()["problem"]
        assert site.ask("/readyz").status == 503


def test_the_page_has_the_words_of_the_status() -> None:
    script = (PAGE / "page.js").read_text()
    found = dict(re.findall(r'(\w+): \["\w*", "\S", "([^"]+)"\]', script))
    words = {state: text for state, text in STATE_WORDS.items() if state != "maintained"}
    assert {state: found[state] for state in words} == words


def test_json_has_states_and_places(spark: SparkSession, tmp_path: Path) -> None:
    folder = make_shop(tmp_path / "shop")
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        run_sql(folder / "shop.db", *(f"INSERT INTO item VALUES ({n}, 2, 1)" for n in (8, 9)))
        break_file(folder)
        wait_until(partial(has_state, site, "refused"))
        shown = json.loads(call("-p", str(folder), "status", "--json").stdout)
        sources = {each["name"]: each for each in site.ask("/api/status").facts["sources"]}
    views = {view["name"]: view for view in shown["views"]}
    assert (views["items"]["state"], views["items"]["up"]) == ("refused", True)
    assert (views["totals"]["state"], views["totals"]["up"]) == ("maintained", True)
    for source in shown["sources"]:
        assert source["place"] == f"{source['position']:,}"
        assert sources[source["name"]]["place"] == source["place"]
