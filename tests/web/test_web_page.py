"""The web page in a headless Chromium: what people see, on a desk and on a phone, by keys alone.

The pictures of the documents are taken here. They are written when there is none yet, or when
VIEWKEEPER_FIGURES is set, so that a run of the tests changes no file.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.web.browser import Page
from tests.web.conftest import Site, maintaining
from tests.web.projects import HOSTILE, make_many, make_shop, run_sql, write_view
from tests.web.test_metrics import wait_until

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
LIVE = "document.body.dataset.number > 0 && document.querySelector('#view-rows tr')"


def take_figure(page: Page, name: str, folder: Path, height_max: int = 2400) -> None:
    """Photograph the page, for the documents where that is wanted."""
    is_wanted = "VIEWKEEPER_FIGURES" in os.environ or not (FIGURES / name).exists()
    path = (FIGURES if is_wanted else folder) / name
    page.photograph(path, height_max)
    assert path.stat().st_size > 5_000


def check_page(page: Page, width: int) -> None:
    """Nothing was complained about, nothing sticks out at the side, everything has a name."""
    assert page.complaints == []
    assert page.ask("document.documentElement.scrollWidth") <= width
    unnamed = page.ask(
        "[...document.querySelectorAll('button, input, textarea, a')].filter(e => !("
        "e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).length"
    )
    assert unnamed == 0
    assert page.ask("document.querySelectorAll('h1').length") == 1
    assert page.ask("document.documentElement.lang") == "en"


def contrast_of(page: Page, selector: str) -> float:
    """How much the text of an element stands out from the page's ground, as WCAG counts it."""
    script = """(selector => {
      const light = text => {
        const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255)
          .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const one = light(getComputedStyle(document.querySelector(selector)).color);
      const other = light(getComputedStyle(document.body).backgroundColor);
      return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    })"""
    return float(page.ask(f"{script}({selector!r})"))


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = make_shop(tmp_path_factory.mktemp("page") / "shop")
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        for number in range(4, 12):
            run_sql(folder / "shop.db", f"INSERT INTO item VALUES ({number}, 2, {number})")
            wait_until(partial(has_batches, site, number - 3))
        yield site


def has_batches(site: Site, count: int) -> bool:
    return int(site.ask("/api/status").facts["totals"]["batches"]) >= count


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_a_healthy_project(
    browser: Page, shop: Site, tmp_path: Path, width: int, dark: bool
) -> None:
    browser.open(shop.address.url, width, dark)
    run_sql(shop.folder / "shop.db", "UPDATE item SET cents = cents + 1 WHERE id = 4")
    browser.wait_for(f"{LIVE} && news.views.every(view => view.freshness.length)")
    browser.wait_for("document.querySelectorAll('#graph-box a').length === 3")
    check_page(browser, width)
    text = browser.text
    for part in ("lines", "totals", "complete over reports", "connected", "sweep"):
        assert part in text
    assert not browser.ask("document.title").startswith("⚠")
    for selector in ("body", ".note", ".good", "nav a"):
        assert contrast_of(browser, selector) >= 4.5
    take_figure(browser, f"web-page-{width}.png", tmp_path, 1900)


def test_it_goes_on_by_itself(browser: Page, shop: Site) -> None:
    browser.open(shop.address.url)
    browser.wait_for(LIVE)
    before = browser.ask("news.totals.batches")
    run_sql(shop.folder / "shop.db", "UPDATE item SET cents = cents + 1 WHERE id = 5")
    browser.wait_for(f"news.totals.batches > {before}")


def test_views_that_advance_apart_and_places_are_shown(browser: Page, shop: Site) -> None:
    browser.open(shop.address.url)
    browser.wait_for(LIVE)
    # What `status` has of a lane comes in `apart`; a shop as small as this one has none.
    change = "news.views.find(view => view.name === 'lines').apart = 'its batches take long'"
    place = "news.sources[0].place = '000017:328'"
    rows = "document.querySelector('#view-rows').innerText"
    script = f"(() => {{ {change}; {place}; openView('lines'); show(); return ["
    facts = "document.querySelector('#view-facts').innerText"
    sources = "document.querySelector('#source-rows').innerText"
    row, window, table = browser.ask(f"{script}{rows}, {facts}, {sources}] }})()")
    assert row.count("advances apart") == 1
    assert "because its batches take long" in window
    assert "000017:328" in table


def test_a_view_is_opened_and_left_by_keys(browser: Page, shop: Site, tmp_path: Path) -> None:
    browser.open(shop.address.url)
    browser.wait_for(LIVE)
    for _ in range(40):
        browser.press("Tab")
        if browser.ask("document.activeElement.dataset.view") == "totals":
            break
    assert browser.ask("document.activeElement.dataset.view") == "totals"
    # News must not take the focus away.
    number = browser.ask("news.number")
    run_sql(shop.folder / "shop.db", "UPDATE item SET cents = cents + 1 WHERE id = 6")
    browser.wait_for(f"news.number > {number}")
    assert browser.ask("document.activeElement.dataset.view") == "totals"
    browser.press("Enter")
    browser.wait_for("document.querySelector('#view-dialog').open")
    browser.wait_for("document.querySelector('#view-history li')")
    shown = browser.ask("document.querySelector('#view-dialog').innerText")
    for part in ("GROUP BY name", "version 1", "fold", "consistency", "batch_sweep"):
        assert part in shown
    browser.wait_for("document.querySelector('#view-chart polyline')")
    take_figure(browser, "web-view-1280.png", tmp_path, 900)
    browser.press("Escape")
    browser.wait_for("!document.querySelector('#view-dialog').open")
    assert browser.complaints == []


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT name, cents FROM lines WHERE item_id = 3", HOSTILE),
        ("SELECT count(*) AS n FROM items", "1 row in"),
        ("DELETE FROM lines", "only SELECT"),
        ("SELECT * FROM nothing", "hint: views:"),
    ],
)
def test_the_views_are_asked(browser: Page, shop: Site, sql: str, words: str) -> None:
    browser.open(shop.address.url)
    browser.wait_for(LIVE)
    browser.ask(f"document.querySelector('#sql-text').value = {sql!r}")
    browser.ask("document.querySelector('#sql-form').requestSubmit()")
    browser.wait_for("!document.querySelector('#sql-answer').textContent.startsWith('running')")
    assert words in browser.ask("document.querySelector('#sql').innerText")
    assert browser.ask("document.querySelectorAll('img').length") == 0
    assert browser.ask("document.title") != "1"


def test_what_comes_from_databases_is_text(
    browser: Page, spark: SparkSession, tmp_path: Path
) -> None:
    folder = make_shop(tmp_path / f"shop{HOSTILE.replace('/', '')}")
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        run_sql(folder / "shop.db", f"ALTER TABLE item RENAME TO '{HOSTILE}'")
        browser.open(site.address.url)
        browser.wait_for(f"{LIVE} && document.querySelector('#event-list').innerText.length > 20")
        assert browser.ask("document.querySelectorAll('img, script').length") == 1
        assert HOSTILE.split("/")[0] in browser.ask("document.querySelector('h1').textContent")
        assert browser.ask("document.title") != "1"


@pytest.fixture(scope="module")
def troubled(spark: SparkSession) -> Iterator[Site]:
    """A source that is away, a view that has stopped, one that is held, and an edited one."""
    settings = "views:\n  remarks: {evolution: {policy: approve}}\n"
    # Pictures of it show its path.
    folder = make_shop(Path(tempfile.mkdtemp(prefix="viewkeeper-")) / "shop", settings)
    write_view(folder, "remarks", "SELECT id, note FROM shop.orders")
    write_view(folder, "buyers", "SELECT id, customer FROM shop.orders")
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        run_sql(
            folder / "shop.db",
            "ALTER TABLE orders RENAME COLUMN note TO remark",
            "DROP TABLE item",
        )
        wait_until(lambda: site.ask("/api/status").facts["proposals"] != [])
        (folder / "crm.db").rename(folder / "gone.db")
        write_view(folder, "buyers", "SELECT id, customer FROM shop.orders WHERE customer > 1")

        def states() -> set[str]:
            facts = site.ask("/api/status").facts
            return {each["state"] for each in (*facts["views"], *facts["sources"])}

        wait_until(lambda: states() >= {"held", "stopped", "away", "refused"})
        yield site
        (folder / "gone.db").rename(folder / "crm.db")
    shutil.rmtree(folder.parent)


@pytest.mark.parametrize("width", [1280, 400])
def test_a_project_in_trouble(browser: Page, troubled: Site, tmp_path: Path, width: int) -> None:
    browser.open(troubled.address.url, width)
    browser.wait_for(f"{LIVE} && document.querySelector('#proposal-list article')")
    browser.wait_for("document.querySelector('#attention-list').innerText.includes('crm')")
    check_page(browser, width)
    attention = browser.ask("document.querySelector('#attention').innerText")
    for part in ("items", "viewkeeper approve remarks", "viewkeeper refresh buyers"):
        assert part in attention
    assert browser.ask("document.title").startswith("⚠")
    assert "-SELECT id, note" in browser.ask("document.querySelector('#proposals').innerText")
    assert contrast_of(browser, ".bad") >= 4.5
    take_figure(browser, f"web-trouble-{width}.png", tmp_path, 1700)


def test_a_proposal_is_approved_by_a_button(
    browser: Page, spark: SparkSession, tmp_path: Path
) -> None:
    folder = make_shop(tmp_path / "shop", "views: {lines: {evolution: {policy: approve}}}\n")
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        run_sql(folder / "shop.db", "ALTER TABLE orders RENAME COLUMN note TO remark")
        browser.open(site.address.url)
        browser.wait_for("document.querySelector('[data-decide=approve][data-of=lines]')")
        browser.wait_for("news.views.find(view => view.name === 'lines').state === 'held'")
        assert site.ask("/readyz").status == 503
        browser.ask("document.querySelector('[data-decide=approve]').click()")
        answer = "document.querySelector('#proposal-answer').innerText"
        browser.wait_for(f"{answer}.includes('lines: approved')")
        browser.wait_for("news.proposals.length === 0")
        browser.wait_for("!document.querySelector('#proposal-list article')")
        browser.wait_for("news.views.every(view => view.up)")
        run_sql(folder / "shop.db", "UPDATE orders SET remark = 'later' WHERE id = 1")
        wait_until(lambda: note_of(site) == [["later"]])
        assert len(site.ask("/api/views/lines").facts["versions"]) == 2
        assert browser.complaints == []


def note_of(site: Site) -> list[list[object]]:
    """What the view shows in the column that was renamed."""
    found = site.ask("/api/query", {"sql": "SELECT DISTINCT note FROM lines WHERE order_id = 1"})
    return list(found.facts["rows"])


def test_a_proposal_is_rejected_by_a_button(browser: Page, troubled: Site) -> None:
    browser.open(troubled.address.url)
    browser.wait_for("document.querySelector('[data-decide=reject]')")
    browser.ask("document.querySelector('[data-decide=reject]').click()")
    browser.wait_for("document.querySelector('#proposal-answer').innerText.includes('rejected')")
    browser.wait_for("news.proposals.length === 0")


@pytest.mark.parametrize("width", [1280, 400])
def test_two_hundred_views(browser: Page, many: Site, tmp_path: Path, width: int) -> None:
    browser.open(many.address.url, width)
    browser.wait_for("document.querySelectorAll('#view-rows tr').length === 200", 120)
    check_page(browser, width)
    assert browser.ask("document.querySelectorAll('#graph-box a').length") == 200
    take_figure(browser, f"web-many-{width}.png", tmp_path, 1500)
    browser.ask("document.querySelector('#filter').value = '_19'")
    browser.ask("document.querySelector('#filter').dispatchEvent(new Event('input'))")
    assert browser.ask("document.querySelectorAll('#view-rows tr').length") == 10
    before = browser.ask("news.totals.batches")
    run_sql(many.folder / "shop.db", "UPDATE item SET cents = cents + 1")
    browser.wait_for(f"news.totals.batches > {before}", 120)


@pytest.fixture(scope="module")
def many(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = make_many(tmp_path_factory.mktemp("page") / "many", 200)
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200, 240)
        yield site


def test_the_page_says_when_the_maintainer_has_ended(
    browser: Page, spark: SparkSession, tmp_path: Path
) -> None:
    folder = make_shop(tmp_path / "shop")
    with maintaining(folder, spark) as site:
        browser.open(site.address.url)
        browser.wait_for(LIVE)
        assert browser.ask("document.querySelector('#connection').textContent") == "live"
    browser.wait_for("document.querySelector('#connection').innerText.startsWith('not connected')")
    assert "lines" in browser.text


TOKEN = "correct horse battery staple"


def give_token(browser: Page, token: str) -> None:
    browser.wait_for("document.querySelector('#token')")
    browser.ask(f"document.querySelector('#token').value = {token!r}")
    browser.ask("document.querySelector('form').requestSubmit()")


def test_the_token_is_asked_for_in_a_form(
    browser: Page, spark: SparkSession, tmp_path: Path
) -> None:
    folder = make_shop(tmp_path / "shop")
    with maintaining(folder, spark, TOKEN) as site:
        browser.open(site.address.url)
        give_token(browser, "wrong")
        browser.wait_for("document.querySelector('#token')?.value === ''")
        give_token(browser, TOKEN)
        browser.wait_for(f"document.querySelector('#views') && {LIVE}")
    # Whoever maintains next does not know the page: it leads to the form by itself.
    with maintaining(folder, spark, TOKEN, site.address.port):
        browser.wait_for("location.pathname === '/login'")
        give_token(browser, TOKEN)
        browser.wait_for(f"document.querySelector('#views') && {LIVE}")
