"""What users ask of a maintainer while it runs: to load a view again, to drop one.

The commands run as users call them, beside a maintainer in another thread, which they reach by its
socket; and alone, when nobody runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.cli.conftest import call
from tests.engine.by_hand import load_views
from tests.engine.running_project import SECONDS, running, wait_until
from tests.engine.shop import Shop, rows_of
from tests.engine.test_refresh_swap import Reader, held_loads, loaded_shop
from viewkeeper.engine.project import Project
from viewkeeper.engine.query.query_socket import send_request
from viewkeeper.engine.report import SilentObserver
from viewkeeper.engine.requests.run_requests import RunRequests
from viewkeeper.engine.requests.view_refresh import ViewRefresh
from viewkeeper.errors import RunEndingError, UnexpectedViewError, ViewkeeperError
from viewkeeper.upstream.leases import Lease, take_lease

FEW = "SELECT c.id, c.city FROM crm.customer c WHERE c.id < 3"
MORE = FEW.replace("< 3", "< 6")
CITIES = "SELECT city, count(*) AS n FROM few GROUP BY city"
NAMES = "SELECT c.name FROM crm.customer c"


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    return loaded_shop(tmp_path, spark, {"few": FEW, "names": NAMES})


def follows(project: Project, shop: Shop, name: str) -> None:
    """A view shows what SQLite computes, once the maintainer has caught up."""
    wait_until(lambda: name in project.newest_head().views)
    wait_until(lambda: rows_of(project.view(name)) == shop.recomputed(shop.views[name]))


def ask(shop: Shop, *words: str, typed: str | None = None) -> tuple[int, str]:
    found = call("-p", str(shop.folder), *words, typed=typed)
    return found.exit_code, found.output


def test_a_view_is_loaded_again_as_its_file_says_now(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = shop.recomputed(FEW)
    with running(shop.folder, spark) as project:
        with Reader(project.view("few")).reading() as reader:
            shop.define("few", MORE)
            with held_loads(monkeypatch) as (begun, may_end):
                code, told = ask(shop, "refresh", "few", "--no-wait")
                assert (code, told) == (0, "few: the maintainer loads it again\n")
                assert begun.wait(SECONDS)
                shop.execute("crm", "UPDATE customer SET name = 'q' WHERE id < 5")
                follows(project, shop, "names")
                assert rows_of(project.view("few")) == old
                code, told = ask(shop, "status")
                assert code == 1
                assert "loads again" in told
                may_end.set()
                follows(project, shop, "few")
        assert reader.seen in ([old, shop.recomputed(MORE)], [old])
        code, told = ask(shop, "refresh", "few", "names")
        assert code == 0, told
        assert "names: loaded again, 8 rows" in told
        shop.execute("crm", "UPDATE customer SET city = 'q' WHERE id < 5")
        follows(project, shop, "few")
        assert ask(shop, "status")[0] == 0


def test_what_cannot_be_loaded_again_goes_on_as_it_was(shop: Shop, spark: SparkSession) -> None:
    with running(shop.folder, spark) as project:
        shop.define("few", "SELECT c.nothing FROM crm.customer c")
        code, told = ask(shop, "refresh", "few")
        assert (code, "nothing" in told) == (2, True)
        code, told = ask(shop, "refresh", "fwe")
        assert (code, 'did you mean "few"?' in told) == (2, True)
        # The one that could be must not be taken for what its file says, either.
        shop.define("names", "SELECT c.name FROM crm.customer c WHERE c.id < 2")
        code, told = ask(shop, "refresh", "names", "few")
        assert (code, "nothing" in told) == (2, True)
        shop.define("few", FEW)
        shop.define("names", NAMES)
        shop.execute("crm", "UPDATE customer SET city = 'q', name = 'q' WHERE id < 5")
        follows(project, shop, "few")
        follows(project, shop, "names")


def test_a_load_that_fails_is_said_and_tried_again_when_it_is_mended(
    shop: Shop, spark: SparkSession
) -> None:
    old = shop.recomputed(FEW)
    priced = "SELECT c.id, c.city, p.cents FROM crm.customer c, catalogue.product p WHERE c.id < 3"
    with running(shop.folder, spark) as project:
        shop.execute("catalogue", "UPDATE product SET cents = 'much' WHERE id = 3")
        shop.define("few", priced)
        code, told = ask(shop, "refresh", "few")
        assert code == 1
        assert "much" in told
        assert "it shows its state of ts" in told
        assert rows_of(project.view("few")) == old
        assert "much" in ask(shop, "status")[1]
        shop.execute("catalogue", "UPDATE product SET cents = 7 WHERE id = 3")
        follows(project, shop, "few")


def test_a_new_view_that_could_not_be_loaded_is_when_it_is_mended(
    tmp_path: Path, spark: SparkSession
) -> None:
    prices = "SELECT p.id, p.cents FROM catalogue.product p"
    shop = Shop(tmp_path, {"names": NAMES, "prices": prices})
    shop.fill()
    shop.execute("catalogue", "UPDATE product SET cents = 'much' WHERE id = 3")
    with running(shop.folder, spark) as project:
        follows(project, shop, "names")
        wait_until(lambda: "much" in ask(shop, "status")[1])
        with pytest.raises(ViewkeeperError, match="not loaded yet") as missing:
            project.view("prices").arrow()
        assert "much" in str(missing.value.detail)
        shop.execute("catalogue", "UPDATE product SET cents = 7 WHERE id = 3")
        wait_until(lambda: "prices" in project.newest_head().views)
        follows(project, shop, "prices")


def test_a_view_is_dropped_beside_the_maintainer(shop: Shop, spark: SparkSession) -> None:
    file = shop.folder / "views" / "few.sql"
    with running(shop.folder, spark) as project:
        code, told = ask(shop, "drop", "few", "--yes")
        assert code == 2
        assert "`viewkeeper drop few --file`" in told
        assert ask(shop, "drop", "few", "--file", typed="n\n")[0] == 130
        assert file.exists()
        code, told = ask(shop, "drop", "few", "--file", typed="y\n")
        assert code == 0, told
        assert 'view "few" (3 rows)' in told
        assert "few: dropped" in told
        assert not file.exists()
        shop.execute("crm", "UPDATE customer SET name = 'q' WHERE id < 5")
        follows(project, shop, "names")
        assert [*project.newest_head().views] == ["names"]
    assert ask(shop, "status")[0] == 0


def test_a_view_that_others_read_is_not_dropped(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, {"few": FEW, "cities": CITIES, "names": NAMES})
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    code, told = ask(shop, "drop", "few", "--yes", "--file")
    assert (code, 'view "cities" reads it' in told) == (2, True)
    assert "`viewkeeper drop few cities`" in told
    code, told = ask(shop, "drop", "nowhere", "--yes")
    assert (code, "nothing is stored of it" in told) == (2, True)
    take_lease(shop.folder / "warehouse", Lease("child", 1, "/elsewhere"))
    code, told = ask(shop, "drop", "few", "cities", "--yes", "--file")
    assert (code, "/elsewhere" in told) == (2, True)
    assert ask(shop, "drop", "few", "cities", "--yes", "--file", "--force")[0] == 0
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert [*project.newest_head().views] == ["names"]
        assert not project.refresh().waiting
    # A file that is gone needs no --file.
    (shop.folder / "views" / "names.sql").unlink()
    assert ask(shop, "drop", "names", "--yes", "--force")[0] == 0


def test_alone_a_refresh_needs_nobody_else(shop: Shop) -> None:
    shop.define("few", MORE)
    code, told = ask(shop, "refresh", "few", "--no-wait")
    assert (code, "no maintainer runs here" in told) == (2, True)
    assert "start `viewkeeper run` first" in told
    code, told = ask(shop, "refresh", "few")
    assert code == 0, told
    assert "loaded few (6 rows)" in told


def test_a_request_that_nobody_knows_is_an_error(shop: Shop, spark: SparkSession) -> None:
    with running(shop.folder, spark):
        folder = shop.folder / "warehouse"
        for request in ({"kind": "dance"}, {"kind": ["refresh"]}, {"kind": "refresh"}):
            with pytest.raises(ViewkeeperError, match="request"):
                send_request(folder, request)
        with pytest.raises(ViewkeeperError):
            send_request(folder, {"kind": "refresh", "views": "few"})
        with pytest.raises(ViewkeeperError, match="there is no view"):
            send_request(folder, {"kind": "refresh", "views": ["../few"]})


def test_requests_are_answered_in_the_thread_that_maintains() -> None:
    requests, answers = RunRequests(), list[object]()

    def ask_for(action: Callable[[], object]) -> threading.Thread:
        def wait() -> None:
            try:
                answers.append(requests.ask_maintainer(action, SECONDS))
            except ViewkeeperError as error:
                answers.append(error.message)
            except ZeroDivisionError as error:
                answers.append(str(error))

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def fail() -> None:
        raise ZeroDivisionError("oh")

    asking = [ask_for(threading.get_ident), ask_for(fail)]
    while any(thread.is_alive() for thread in asking):
        requests.answer_all()
    assert {*answers} == {threading.get_ident(), "oh"}
    with pytest.raises(ViewkeeperError, match="busy for 0 s"):
        requests.ask_maintainer(fail, 0.0)
    requests.answer_all()
    late = ask_for(threading.get_ident)
    wait_until(lambda: bool(requests._waiting))
    requests.close()
    late.join(SECONDS)
    assert answers[-1] == "the run is ending"
    with pytest.raises(ViewkeeperError, match="the run is ending"):
        requests.ask_maintainer(fail)


def test_an_interrupt_answers_who_waits() -> None:
    """The user's Ctrl-C meets the maintaining thread while it answers somebody."""
    requests, answers = RunRequests(), list[Exception]()

    def interrupt() -> None:
        raise KeyboardInterrupt

    def ask() -> None:
        try:
            requests.ask_maintainer(interrupt, SECONDS)
        except RunEndingError as error:
            answers.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()

    def answer() -> None:
        while asking.is_alive():
            requests.answer_all()

    with pytest.raises(KeyboardInterrupt):
        answer()
    asking.join(SECONDS)
    assert len(answers) == 1


def test_what_a_request_meets_unexpectedly_is_said_and_its_traceback_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, {"names": NAMES})
    shop.fill()
    told = SilentObserver()
    troubles = list[ViewkeeperError]()
    setattr(told, "on_trouble", troubles.append)  # noqa: B010 - the others stay silent

    def fail(_: ViewRefresh, names: Sequence[str]) -> None:
        raise ZeroDivisionError(f"oh {names}")

    monkeypatch.setattr(ViewRefresh, "request_refresh", fail)
    with viewkeeper.open(shop.folder) as project:
        load_views(project, shop)
        with project.open_maintainer("test", told) as keeper:
            keeper.start_run()
            with pytest.raises(UnexpectedViewError, match="ZeroDivisionError: oh"):
                keeper.service.refresh_views(["names"])
    assert [error.message for error in troubles] == [
        "view \"names\": unexpected ZeroDivisionError: oh ['names']"
    ]
    assert "in fail" in (shop.folder / "warehouse" / "tracebacks" / "view-names.txt").read_text()
