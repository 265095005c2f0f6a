"""A running maintainer takes up what changes in its project's files, each view by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.cli.conftest import call
from tests.engine.shop import LINES, Shop, rows_of
from tests.engine.test_run import Gate, eventually, running
from tests.sources.postgres_shop import Shop as PostgresShop
from viewkeeper.engine.query.query_socket import NAME, send_request
from viewkeeper.engine.reload import project_reload
from viewkeeper.engine.report import SilentObserver, StateChange
from viewkeeper.errors import ViewkeeperError
from viewkeeper.testing.private_servers import PrivatePostgres

CITIES = """SELECT c.city, o.id AS order_id FROM crm.customer c
JOIN shop.orders o ON o.customer_id = c.id"""
NAMES = "SELECT c.id, c.name FROM crm.customer c"
COUNTS = "SELECT c.city, count(*) AS n FROM crm.customer c GROUP BY c.city"


class Heard(SilentObserver):
    def __init__(self) -> None:
        self.changes: list[StateChange] = []

    def on_state_change(self, change: StateChange) -> None:
        self.changes.append(change)

    def has(self, kind: str, word: str = "") -> bool:
        return any(each.kind == kind and word in each.text for each in [*self.changes])


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    shop = Shop(tmp_path, {"cities": CITIES, "lines": LINES})
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    return shop


@pytest.fixture
def live(shop: Shop, spark: SparkSession) -> Iterator[tuple[viewkeeper.Project, Heard]]:
    heard = Heard()
    with viewkeeper.open(shop.folder, spark=spark) as project, running(project, heard):
        eventually(lambda: (shop.folder / "warehouse" / NAME).exists())
        yield project, heard


def put(shop: Shop, name: str, text: str) -> None:
    (shop.folder / "views" / f"{name}.sql").write_text(text)


def is_right(project: viewkeeper.Project, shop: Shop, name: str) -> Callable[[], bool]:
    def holds() -> bool:
        if name not in project.newest_head().shown_views:
            return False
        return rows_of(project.view(name)) == shop.recomputed(shop.views[name])

    return holds


class Writing:
    """A writer that goes on, and how long the slowest of its changes was not seen."""

    def __init__(self, shop: Shop, project: viewkeeper.Project) -> None:
        self._shop, self._project = shop, project
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.written = 0

    def _write(self) -> None:
        while not self._stop.wait(0.02):
            self.written += 1
            city = f"city{self.written}"
            self._shop.execute("crm", f"UPDATE customer SET city = '{city}' WHERE id < 4")

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)


Live = tuple[viewkeeper.Project, Heard]


def test_a_new_file_is_loaded_while_writers_go_on(shop: Shop, live: Live) -> None:
    project, heard = live
    with Writing(shop, project):
        shop.define("names", NAMES)
        shop.define("counts", COUNTS)
        eventually(lambda: {"names", "counts"} <= project.newest_head().shown_views.keys())
    for name in ("names", "counts", "cities", "lines"):
        eventually(is_right(project, shop, name))
    assert heard.has("view_taken", '"names" is added')
    assert not heard.has("view_stopped")
    assert {*project.catalogue} == {"cities", "lines", "names", "counts"}


def test_others_stay_fresh_while_a_new_view_is_loaded(
    shop: Shop, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, _ = live
    gate = Gate(monkeypatch)
    shop.define("names", NAMES)
    assert gate.reached.wait(timeout=120)
    for number in range(3):
        shop.execute("crm", f"UPDATE customer SET city = 'c{number}' WHERE id < 4")
        eventually(is_right(project, shop, "cities"))
    assert "names" not in project.newest_head().views
    gate.open.set()
    eventually(is_right(project, shop, "names"))


def test_a_bad_file_disturbs_nobody_and_is_taken_when_mended(shop: Shop, live: Live) -> None:
    project, heard = live
    put(shop, "names", "CREATE MATERIALIZED VIEW names AS SELCT")
    eventually(lambda: heard.has("view_refused", "names"))
    shop.execute("crm", "UPDATE customer SET city = 'there' WHERE id < 4")
    eventually(is_right(project, shop, "cities"))
    put(shop, "names", "CREATE MATERIALIZED VIEW names AS SELECT c.nme FROM crm.customer c")
    eventually(lambda: heard.has("view_refused", "nme"))
    shop.define("names", NAMES)
    eventually(is_right(project, shop, "names"))
    refused = [each for each in heard.changes if each.kind == "view_refused"]
    assert len(refused) == 2
    put(shop, "lines", "what")
    eventually(lambda: heard.has("view_refused", '"lines"'))
    shop.execute("crm", "UPDATE customer SET name = 'new' WHERE id < 4")
    eventually(is_right(project, shop, "lines"))


def test_a_half_written_file_is_not_taken(shop: Shop, live: Live) -> None:
    project, heard = live
    text = f"CREATE MATERIALIZED VIEW names AS {NAMES} WHERE c.id >= 0"
    for end in range(10, len(text) + 1, 4):
        put(shop, "names", text[:end])
        time.sleep(0.05)
    put(shop, "names", text)
    shop.views["names"] = f"{NAMES} WHERE c.id >= 0"
    eventually(is_right(project, shop, "names"))
    assert not heard.has("view_refused")


def test_an_edited_and_a_removed_file(shop: Shop, live: Live) -> None:
    project, heard = live
    same = "CREATE MATERIALIZED VIEW cities AS\n-- another word\n" + CITIES
    put(shop, "cities", same)
    eventually(lambda: heard.has("view_taken", '"cities" is edited'))
    assert project.newest_head().views["cities"].definition == same
    other = CITIES + " AND c.city <> 'x'"
    shop.define("cities", other)
    eventually(lambda: heard.has("view_refused", "its SQL is not the one"))
    shop.views["cities"] = CITIES
    shop.execute("crm", "UPDATE customer SET city = 'there' WHERE id < 4")
    eventually(is_right(project, shop, "cities"))
    status = call("-p", str(shop.folder), "status")
    assert "viewkeeper refresh cities" in status.stdout
    shop.views["cities"] = other
    answer = call("-p", str(shop.folder), "refresh", "cities")
    assert answer.exit_code == 0, answer.output
    eventually(is_right(project, shop, "cities"))
    (shop.folder / "views" / "lines.sql").unlink()
    eventually(lambda: "lines" not in project.newest_head().views)
    assert heard.has("view_taken", '"lines" is dropped')
    assert {*project.catalogue} == {"cities"}
    shop.execute("crm", "UPDATE customer SET city = 'here' WHERE id < 3")
    eventually(is_right(project, shop, "cities"))


def test_the_project_file_broken_and_mended(shop: Shop, live: Live) -> None:
    project, heard = live
    file = shop.folder / "viewkeeper.yml"
    whole = file.read_text()
    file.write_text(whole + "freshnes: 1s\n")
    eventually(lambda: heard.has("project_refused", 'unknown key "freshnes"'))
    shop.define("names", NAMES)
    shop.execute("crm", "UPDATE customer SET city = 'there' WHERE id < 4")
    eventually(is_right(project, shop, "cities"))
    with pytest.raises(ViewkeeperError, match="freshnes"):
        send_request(shop.folder / "warehouse", {"kind": "reload"})
    assert "names" not in project.newest_head().views
    file.write_text(whole + "freshness: 50ms\nspark: {memory: 3g}\n")
    eventually(is_right(project, shop, "names"))
    assert heard.has("project_taken", "freshness")
    assert heard.has("project_refused", "needs a restart: spark")
    assert project.settings.freshness == 0.05
    assert project.settings.spark.memory == "2g"


def test_a_new_source_and_a_removed_one(shop: Shop, live: Live) -> None:
    project, heard = live
    file = shop.folder / "viewkeeper.yml"
    whole = file.read_text()
    file.write_text(whole + "  crm2: {kind: sqlite, path: crm.db}\n")
    put(shop, "again", "CREATE MATERIALIZED VIEW again AS SELECT c.id, c.name FROM crm2.customer c")
    shop.views["again"] = NAMES
    eventually(is_right(project, shop, "again"))
    shop.execute("crm", "UPDATE customer SET name = 'there' WHERE id < 4")
    eventually(is_right(project, shop, "again"))
    file.write_text(whole)
    eventually(lambda: heard.has("view_refused", 'unknown source "crm2"'))
    before = rows_of(project.view("again"))
    shop.execute("crm", "UPDATE customer SET name = 'here' WHERE id < 4")
    eventually(is_right(project, shop, "lines"))
    assert rows_of(project.view("again")) == before


def test_reload_says_what_became_of_each_view(shop: Shop, live: Live) -> None:
    project, _ = live
    folder = str(shop.folder)
    shop.define("names", NAMES)
    put(shop, "bad", "CREATE MATERIALIZED VIEW bad AS SELECT c.nme FROM crm.customer c")
    answer = call("-p", folder, "reload")
    assert answer.exit_code == 1, answer.output
    assert "added      names" in answer.stdout
    assert "refused    bad" in answer.stdout
    assert "unchanged  2 views" in answer.stdout
    assert call("-p", folder, "status").exit_code == 1
    # The table has the column now: a file that did not change is tried again when asked for.
    shop.execute("crm", "ALTER TABLE customer ADD COLUMN nme TEXT")
    answer = call("-p", folder, "reload")
    assert answer.exit_code == 0, answer.output
    eventually(lambda: "bad" in project.newest_head().views)


def test_reload_without_a_maintainer_says_so(shop: Shop) -> None:
    answer = call("-p", str(shop.folder), "reload")
    assert answer.exit_code == 2
    assert "no maintainer of this project runs" in answer.stderr
    assert "hint: `viewkeeper run`" in answer.stderr


def test_a_load_that_would_be_lost_is_waited_for(
    shop: Shop, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, _ = live
    monkeypatch.setattr(project_reload, "LOAD_SECONDS", 0.0)
    gate = Gate(monkeypatch)
    put(
        shop,
        "top",
        "CREATE MATERIALIZED VIEW top AS SELECT l.name, count(*) AS n FROM lines l GROUP BY l.name",
    )
    assert gate.reached.wait(timeout=120)
    shop.define("names", NAMES)
    shop.execute("crm", "UPDATE customer SET city = 'there' WHERE id < 4")
    eventually(is_right(project, shop, "cities"))
    time.sleep(2.0)
    assert "names" not in project.catalogue
    gate.open.set()
    eventually(lambda: {"top", "names"} <= project.newest_head().shown_views.keys())
    eventually(is_right(project, shop, "names"))


def test_all_files_broken_or_gone_changes_nothing(shop: Shop, live: Live) -> None:
    project, heard = live
    texts = {file: file.read_text() for file in (shop.folder / "views").glob("*.sql")}
    for file in texts:
        file.unlink()
    eventually(lambda: heard.has("project_refused", "no views"))
    shop.execute("crm", "UPDATE customer SET city = 'there' WHERE id < 4")
    eventually(is_right(project, shop, "cities"))
    for file in texts:
        file.write_text("what")
    eventually(lambda: heard.has("view_refused", '"lines"') and heard.has("view_refused", "cities"))
    shop.execute("crm", "UPDATE customer SET city = 'here' WHERE id < 4")
    eventually(is_right(project, shop, "cities"))
    for file, text in texts.items():
        file.write_text(text)
    assert call("-p", str(shop.folder), "reload").exit_code == 0
    assert project.catalogue.written.refused == {}


@pytest.fixture
def reviews(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[PostgresShop]:
    database = PostgresShop(postgres_server, tmp_path / "pg")
    database.table("review (id integer PRIMARY KEY, customer_id integer, stars integer)")
    database.run(
        "INSERT INTO review SELECT n, n % 8, n % 5 FROM generate_series(1, 500) AS n",
        "ANALYZE review",
    )
    yield database
    database.close()


def test_a_new_source_over_postgresql_is_followed(
    shop: Shop, reviews: PostgresShop, live: Live
) -> None:
    project, heard = live
    file = shop.folder / "viewkeeper.yml"
    source = f"  reviews: {{kind: postgres, url: '{reviews.url}'}}\n"
    put(
        shop,
        "starred",
        "CREATE MATERIALIZED VIEW starred AS SELECT r.id, r.stars, c.name "
        "FROM reviews.review r JOIN crm.customer c ON c.id = r.customer_id",
    )
    eventually(lambda: heard.has("view_refused", 'unknown source "reviews"'))
    file.write_text(file.read_text() + source)
    planned = call("-p", str(shop.folder), "plan", spark=project.spark.get_session())
    if planned.exit_code:
        # It may be loaded already; then there is nothing to do.
        assert "reads reviews.review: about 500 rows, about" in planned.stdout
    eventually(lambda: "starred" in project.newest_head().views)
    assert project.view("starred").head.rows == 500
    reviews.run("DELETE FROM review WHERE id <= 100")
    eventually(lambda: project.view("starred").head.rows == 400)
    # A reload goes on with the slot that is there.
    shop.define("names", NAMES)
    reviews.run("DELETE FROM review WHERE id <= 200")
    eventually(is_right(project, shop, "names"))
    eventually(lambda: project.view("starred").head.rows == 300)
    assert not heard.has("view_stopped")


def test_two_hundred_files(tmp_path: Path, spark: SparkSession) -> None:
    views = {f"v{number}": f"{NAMES} WHERE c.id <> {number}" for number in range(200)}
    shop = Shop(tmp_path, views)
    shop.fill()
    heard = Heard()
    with viewkeeper.open(shop.folder, spark=spark) as project, running(project, heard):
        eventually(lambda: len(project.newest_head().shown_views) == 200)
        for number in range(0, 200, 50):
            put(shop, f"v{number}", "what is this")
        shop.define("names", NAMES)
        (shop.folder / "views" / "v7.sql").unlink()
        eventually(is_right(project, shop, "names"))
        assert sum(each.kind == "view_refused" for each in heard.changes) >= 4
        shop.execute("crm", "UPDATE customer SET name = 'new' WHERE id < 4")
        for name in ("v0", "v1", "v199", "names"):
            eventually(is_right(project, shop, name))
        for number in range(0, 200, 50):
            shop.define(f"v{number}", views[f"v{number}"])
        answer = call("-p", str(shop.folder), "reload")
        assert answer.exit_code == 0, answer.output
        eventually(lambda: "v7" not in project.newest_head().views)
        assert len(project.newest_head().shown_views) == 200


def test_settings_that_a_program_gave_stay_until_the_file_changes(
    shop: Shop, spark: SparkSession
) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.settings = replace(project.settings, freshness=0.07)
        with running(project, Heard()):
            shop.define("names", NAMES)
            eventually(is_right(project, shop, "names"))
            assert project.settings.freshness == 0.07
            file = shop.folder / "viewkeeper.yml"
            file.write_text(file.read_text() + "freshness: 20ms\n")
            eventually(lambda: project.settings.freshness == 0.02)
