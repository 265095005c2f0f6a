"""The page, the figures and the SQL box while writers write, the maintainer is killed again and
again, and the PostgreSQL server goes and comes back.

Money moves between accounts in PostgreSQL and names change in SQLite; a view joins the two, another
one sums it by city. So every answer of the SQL box must have the same sum, whoever gives it and
whatever was killed before. A page that was opened once sees all of it without being touched.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests.faults.processes import Process, command
from tests.web.browser import Page
from tests.web.conftest import Site
from tests.web.projects import run_sql, write_view
from tests.web.test_web_page import LIVE, check_page, contrast_of, take_figure
from tests.web.watcher import Look, Watcher, falling_counters, read_stream
from viewkeeper.testing.private_servers import PrivatePostgres, free_port
from viewkeeper.web.web_server import WebAddress

ACCOUNTS, EACH = 12, 100
KILLS = int(os.environ.get("VIEWKEEPER_WEB_KILLS", "2"))
SUM = "SELECT sum(cents) AS cents, count(*) AS accounts FROM holdings"
SHOWS_AWAY = "document.querySelector('#attention-list').innerText.includes('bank')"
IS_LOST = "document.querySelector('#connection').innerText.startsWith('not connected')"
IS_LIVE = "document.querySelector('#connection').textContent === 'live'"


class BankWriter:
    """Moves money in PostgreSQL and renames people in SQLite, in a thread, through every outage."""

    def __init__(self, url: str, crm: Path) -> None:
        self._url, self._crm = url, crm
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.moves = 0

    def __enter__(self) -> BankWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _write(self) -> None:
        rng = random.Random(43)
        while not self._stop.is_set():
            # The server is away at times.
            with suppress(psycopg.Error), psycopg.connect(self._url, connect_timeout=5) as bank:
                while not self._stop.wait(rng.uniform(0.02, 0.1)):
                    self._move(bank, rng)
            self._stop.wait(0.2)

    def _move(self, bank: psycopg.Connection, rng: random.Random) -> None:
        one, other = rng.sample(range(ACCOUNTS), 2)
        with bank.transaction():
            for account, cents in ((one, -1), (other, 1)):
                change = "UPDATE account SET cents = cents + %s WHERE id = %s"
                bank.execute(change, (cents, account))
        self.moves += 1
        with closing(sqlite3.connect(self._crm, timeout=60)) as crm, crm:
            crm.execute("UPDATE person SET name = name || '.' WHERE id = ?", (one,))


@pytest.fixture
def bank(tmp_path: Path, own_postgres: PrivatePostgres) -> Path:
    folder = tmp_path / "bank"
    (folder / "views").mkdir(parents=True)
    with psycopg.connect(own_postgres.url_of(), autocommit=True) as connection:
        connection.execute("CREATE TABLE account (id integer PRIMARY KEY, cents integer)")
        connection.execute("ALTER TABLE account REPLICA IDENTITY FULL")
        fill = f"INSERT INTO account SELECT i, {EACH} FROM generate_series(0, {ACCOUNTS - 1}) i"
        connection.execute(fill)
    people = ", ".join(f"({i}, 'p{i}', 'city{i % 3}')" for i in range(ACCOUNTS))
    run_sql(
        folder / "crm.db",
        "CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, city TEXT)",
        f"INSERT INTO person VALUES {people}",
    )
    (folder / "viewkeeper.yml").write_text(
        "warehouse: ./warehouse\nsources:\n  crm: {kind: sqlite, path: crm.db}\n"
        f"  bank: {{kind: postgres, url: '{own_postgres.url_of()}'}}\n"
    )
    write_view(
        folder,
        "holdings",
        "SELECT a.id, p.name, p.city, a.cents FROM bank.account a JOIN crm.person p ON p.id = a.id",
    )
    write_view(folder, "city_totals", "SELECT city, sum(cents) AS c FROM holdings GROUP BY city")
    write_view(folder, "people", "SELECT id, name FROM crm.person")
    return folder


@contextmanager
def maintaining(folder: Path, site: Site) -> Iterator[Process]:
    """The program itself, with its page at the address that it had before."""
    with command(folder, "run", "--web", f"127.0.0.1:{site.address.port}") as process:
        yield process


def is_settled(look: Look) -> bool:
    return look.ready == 200 and look.sum_of("viewkeeper_batches_total") >= 3


def is_away(look: Look) -> bool:
    return look.sum_of("viewkeeper_source_up", source="bank") == 0 and look.alive == 200


def has_caught_up(look: Look) -> bool:
    return look.ready == 200 and look.sum_of("viewkeeper_source_up", source="bank") == 1


def test_the_page_lives_through_kills_and_outages(
    browser: Page, bank: Path, own_postgres: PrivatePostgres, tmp_path: Path
) -> None:
    site = Site(WebAddress("127.0.0.1", free_port()), bank)
    with (
        BankWriter(own_postgres.url_of(), bank / "crm.db") as writer,
        Watcher(site, SUM) as watcher,
    ):
        with maintaining(bank, site):
            watcher.wait_for_look(is_settled, 240)
            browser.open(site.address.url, 400, dark=True)
            browser.wait_for(LIVE)
        for number in range(KILLS):
            browser.wait_for(IS_LOST)
            if number == 0:
                assert contrast_of(browser, "#connection") >= 4.5
                take_figure(browser, "web-lost-400.png", tmp_path, 900)
            with maintaining(bank, site) as process:
                watcher.wait_for_look(is_settled)
                browser.wait_for(IS_LIVE)
                first, second = read_stream(site, 2)
                assert int(str(second["number"])) > int(str(first["number"]))
                time.sleep(number * 0.4)
                process.kill()
        live_through_outage(browser, site, own_postgres, watcher, tmp_path)
    assert writer.moves > 20
    check_looks(watcher)


def live_through_outage(
    browser: Page, site: Site, server: PrivatePostgres, watcher: Watcher, tmp_path: Path
) -> None:
    """The server goes while all is well; the maintainer is killed and begins without it."""
    browser.resize(1280)
    with maintaining(site.folder, site) as process:
        watcher.wait_for_look(is_settled)
        browser.wait_for(IS_LIVE)
        server.stop()
        watcher.wait_for_look(is_away)
        browser.wait_for(SHOWS_AWAY)
        process.kill()
    with maintaining(site.folder, site):
        watcher.wait_for_look(is_away)
        browser.wait_for(f"{IS_LIVE} && {SHOWS_AWAY}")
        browser.wait_for("news.views.find(view => view.name === 'holdings').state === 'waiting'")
        people = "news.views.find(view => view.name === 'people')"
        browser.wait_for(f"{people}.state !== 'waiting'")
        take_figure(browser, "web-outage-1280.png", tmp_path, 1100)
        server.start()
        watcher.wait_for_look(has_caught_up)
        browser.wait_for(f"{IS_LIVE} && !{SHOWS_AWAY}")
        browser.wait_for("document.querySelector('#event-list').innerText.includes('is back')")
        browser.wait_for("!document.title.startsWith('⚠')")
        browser.complaints.clear()
        browser.resize(400)
        check_page(browser, 400)
        watcher.wait_for_look(is_settled)


def check_looks(watcher: Watcher) -> None:
    """What holds of all that was answered, of every process and together."""
    assert watcher.errors == []
    assert watcher.refused > 0
    lives = watcher.lives
    assert len(lives) == KILLS + 3
    assert {look.alive for look in watcher.looks} == {200}
    assert {look.ready for look in watcher.looks} <= {200, 503}
    wrong = [look.answer for look in watcher.looks if not is_right(look)]
    assert wrong == []
    grew = 0
    for looks in lives.values():
        assert falling_counters(looks) == []
        counts = [look.sum_of("viewkeeper_freshness_seconds_count") for look in looks]
        grew += counts[-1] > counts[0]
        lags = [look.sum_of("viewkeeper_view_lag_seconds") for look in looks]
        assert min(lags) >= 0.0
    assert grew >= KILLS


def is_right(look: Look) -> bool:
    """The one sum that there is; before the first load there is no view, and no answer."""
    missing = ("no view of this project is loaded yet", "holdings is not a view of this project")
    return look.answer == [ACCOUNTS * EACH, ACCOUNTS] or (
        look.ready == 503 and any(words in str(look.answer[0]) for words in missing)
    )
