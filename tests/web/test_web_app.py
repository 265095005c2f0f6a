"""What the web server of a running maintainer answers: to programs, strangers and slow readers."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest
import uvicorn
from pyspark.sql import SparkSession

from tests.cli.conftest import call
from tests.web.conftest import Site, maintaining
from tests.web.projects import HOSTILE, make_shop, run_sql
from tests.web.test_metrics import wait_until
from viewkeeper.engine.project import open_project
from viewkeeper.engine.query.bounded_query import BoundedQueries, QueryBounds
from viewkeeper.engine.settings.project_file import Settings, read_settings
from viewkeeper.errors import DefinitionError, ExpressionError, ProjectError, WarehouseError
from viewkeeper.web import project_monitor, web_app, web_server
from viewkeeper.web.project_monitor import StatusReader
from viewkeeper.web.web_server import WebAddress, serving_web

TOKEN = "correct horse battery staple"


@pytest.fixture(scope="module")
def site(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = make_shop(tmp_path_factory.mktemp("app") / "shop")
    with maintaining(folder, spark) as found:
        wait_until(lambda: found.ask("/readyz").status == 200)
        yield found


def rows_of(site: Site, sql: str, **more: object) -> list[list[object]]:
    found = site.ask("/api/query", {"sql": sql, **more})
    assert found.status == 200, found.body
    return list(found.facts["rows"])


def test_everything_is_in_the_status(site: Site) -> None:
    run_sql(site.folder / "shop.db", "UPDATE item SET cents = cents + 1 WHERE id = 3")
    wait_until(lambda: site.ask("/api/status").facts["batches"] != [])
    facts = site.ask("/api/status").facts
    lines = next(view for view in facts["views"] if view["name"] == "lines")
    assert lines["state"] == "fresh"
    assert (lines["rows"], lines["inline"] >= 1, lines["on_spark"]) == (3, True, 0)
    assert lines["level"].startswith("complete")
    assert (lines["reads"], lines["parents"]) == (["crm", "shop"], [])
    totals = next(view for view in facts["views"] if view["name"] == "totals")
    assert totals["parents"] == ["lines"]
    assert [stage["kind"] for stage in totals["stages"]][-1] == "Fold"
    assert {source["name"]: source["state"] for source in facts["sources"]} == {
        "crm": "followed",
        "shop": "followed",
    }
    batch = facts["batches"][0]
    assert {"read", "sweep", "commit"} <= batch["phases"].keys()
    assert sum(batch["phases"].values()) <= batch["seconds"]
    assert facts["totals"]["batches"] >= 1


@pytest.mark.parametrize(
    ("settings", "where"), [("", "inline"), ("batch: {inline_rows: 0}\n", "on_spark")]
)
def test_lookups_of_views_add_up_to_those_of_sources(
    spark: SparkSession, tmp_path: Path, settings: str, where: str
) -> None:
    folder = make_shop(tmp_path / "shop", settings)
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        run_sql(folder / "shop.db", "INSERT INTO item VALUES (4, 2, 5)")
        run_sql(folder / "crm.db", "UPDATE customer SET name = 'Eve' WHERE id = 1")
        wait_until(lambda: rows_of(site, "SELECT count(*) FROM lines WHERE name = 'Eve'") == [[2]])
        wait_until(lambda: rows_of(site, "SELECT count(*) FROM lines") == [[4]])
        wait_until(lambda: site.ask("/api/status").facts["totals"]["lookups"] > 0)
        facts = site.ask("/api/status").facts
    views = {view["name"]: view for view in facts["views"]}
    assert views["lines"][where] >= 1
    assert views["lines"]["lookups"] > 0
    assert views["items"]["lookups"] == 0
    total = sum(view["lookups"] for view in views.values())
    assert total == sum(source["lookups"] for source in facts["sources"])
    assert total == facts["totals"]["lookups"]


def test_a_view_has_its_definition_its_history_and_its_freshness(site: Site) -> None:
    found = site.ask("/api/views/lines").facts
    assert found["sql"].startswith("CREATE MATERIALIZED VIEW lines")
    assert [version["number"] for version in found["versions"]] == [1]
    assert {column["name"] for column in found["columns"]} >= {"name", "cents"}
    missing = site.ask("/api/views/nothing")
    assert (missing.status, "nothing" in missing.facts["error"]) == (404, True)


def test_queries_are_answered_without_and_with_spark(site: Site) -> None:
    assert rows_of(site, "SELECT name FROM lines WHERE item_id = 3") == [[HOSTILE]]
    found = site.ask("/api/query", {"sql": "SELECT upper(name) FROM totals ORDER BY 1 DESC"})
    assert found.facts["where"] == "spark"
    assert found.facts["rows"] == [["ADA"], [HOSTILE.upper()]]
    assert rows_of(site, "SELECT count(*) FROM items", as_of=1) == [[3]]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"sql": "DROP TABLE lines"}, "only SELECT"),
        ({"sql": "SELECT * FROM csv.`/etc/passwd`"}, "not a view"),
        ({"sql": "SELECT reflect('java.lang.System', 'exit', 1)"}, "reflect"),
        ({"sql": "SELECT * FROM nothing"}, "not a view"),
        ({"sql": "SELECT 1; SELECT 2"}, "2 statements"),
        ({"sql": "SELECT assert_true(cents > 100000) FROM lines"}, ""),
        ({"sql": "SELECT * FROM lines", "as_of": 10**9}, ""),
        ({"sql": "SELECT 'x" + "x" * 20_001 + "'"}, "characters"),
        ({"sql": 7}, "must be a text"),
        ({"sql": "SELECT 1", "as_of": "now"}, "must be a text"),
        ([], "must be a text"),
        ("{", "must be a text"),
        ("[" * 50_000, "must be a text"),
        ("x" * 70_000, "bytes"),
    ],
)
def test_what_is_no_query_is_refused(site: Site, body: object, words: str) -> None:
    found = site.ask("/api/query", body)
    assert found.status == 400
    assert words in found.facts["error"]


def test_answers_are_bounded_in_rows_and_time(spark: SparkSession, site: Site) -> None:
    with open_project(site.folder, spark) as project:
        queries = BoundedQueries(project.settings.warehouse, project.spark)
        found = queries.answer_query("SELECT id FROM items", QueryBounds(2, 30.0))
        assert (len(found.rows), found.has_more, found.where) == (2, True, "kernel")
        found = queries.answer_query("SELECT upper('a') FROM items", QueryBounds(2, 30.0))
        assert (len(found.rows), found.has_more, found.where) == (2, True, "spark")
        # 3 to the power of 15 rows, one after the other: it needs time, and no memory.
        places = " CROSS JOIN ".join(f"items i{number}" for number in range(15))
        endless = f"SELECT sum(length(upper(cast(i0.id AS STRING)))) FROM {places}"
        with pytest.raises(ExpressionError, match=r"longer than 0\.5 seconds"):
            queries.answer_query(endless, QueryBounds(2, 0.5))
        with pytest.raises(DefinitionError):
            queries.answer_query("SELECT", QueryBounds(2, 1.5))
        assert queries.answer_query("SELECT id FROM items", QueryBounds(9, 30.0)).rows


@pytest.mark.parametrize("path", ["/", "/page.js", "/api/status", "/metrics", "/api/nothing"])
def test_every_answer_forbids_what_it_does_not_need(site: Site, path: str) -> None:
    headers = site.ask(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers


def test_foreign_names_and_pages_are_refused(site: Site) -> None:
    assert site.ask("/api/status", Host="evil.test").status == 403
    assert site.ask("/", Host="evil.test:8484").status == 403
    query = {"sql": "SELECT 1"}
    assert site.ask("/api/query", query, Origin="http://evil.test").status == 403
    assert site.ask("/api/query", json.dumps(query), Content_Type="text/plain").status == 403
    assert site.ask("/api/query", method="GET").status == 405
    assert site.ask("/../../etc/passwd").status == 404
    assert site.ask("/page.css/../web_app.py").status == 404


def wait_for_batch(site: Site, before: int) -> int:
    """Wait until there are more batches; how many there are."""
    wait_until(lambda: site.ask("/api/status").facts["totals"]["batches"] > before)
    return int(site.ask("/api/status").facts["totals"]["batches"])


def test_a_page_that_does_not_read_holds_up_nobody(site: Site) -> None:
    address = (site.address.host, site.address.port)
    with socket.create_connection(address) as slow, socket.create_connection(address) as silent:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        slow.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        silent.sendall(b"POST /api/query HTTP/1.1\r\nHost: localhost\r\nContent-Le")
        before = int(site.ask("/api/status").facts["totals"]["batches"])
        for _ in range(3):
            run_sql(site.folder / "shop.db", "UPDATE item SET cents = cents + 1")
            before = wait_for_batch(site, before)
        assert slow.recv(20).startswith(b"HTTP/1.1 200")


def test_news_come_as_events(site: Site) -> None:
    address = (site.address.host, site.address.port)
    with socket.create_connection(address) as stream:
        stream.settimeout(60)
        stream.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        text = ""
        while text.count("data: ") < 2:
            text += stream.recv(65536).decode(errors="replace")
    assert "content-type: text/event-stream" in text


def test_with_a_token_nobody_gets_in_without(spark: SparkSession, tmp_path: Path) -> None:
    folder = make_shop(tmp_path / "shop")
    with maintaining(folder, spark, TOKEN) as site:
        assert site.ask("/api/status").status == 401
        assert site.ask("/metrics").status == 401
        assert site.ask("/api/query", {"sql": "SELECT 1"}).status == 401
        assert site.ask("/healthz").status == 200
        # It is the path of the request that is open, and not what an address made of it has.
        assert site.ask("/healthz%3F/api/status").status == 401
        front = site.ask("/")
        assert (front.status, front.headers["location"]) == (303, "/login")
        form = {"Content_Type": "application/x-www-form-urlencoded"}
        assert site.ask("/login", "token=wrong", **form).status == 401
        inside = site.ask("/login", f"token={TOKEN.replace(' ', '+')}", **form)
        cookie = inside.headers["set-cookie"]
        assert inside.status == 303
        assert "httponly" in cookie.lower()
        assert "samesite=strict" in cookie.lower()
        assert TOKEN not in cookie
        assert "secure" not in cookie.lower()
        safe = site.ask("/login", f"token={TOKEN}", Origin="https://a.test", Host="a.test", **form)
        assert "secure" in safe.headers["set-cookie"].lower()
        assert site.ask("/api/status", Cookie=cookie.partition(";")[0]).status == 200
        assert site.ask("/metrics", Authorization=f"Bearer {TOKEN}").status == 200
        # Another page cannot log somebody in.
        other = site.ask("/login", f"token={TOKEN}", Origin="http://evil.test", **form)
        assert other.status == 403


def test_a_proposal_is_decided_as_it_was_shown(spark: SparkSession, tmp_path: Path) -> None:
    folder = make_shop(tmp_path / "shop", "evolution: {policy: approve}\n")
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        run_sql(folder / "shop.db", "ALTER TABLE orders RENAME COLUMN note TO remark")
        wait_until(lambda: site.ask("/api/status").facts["proposals"] != [])
        (proposal, *_) = site.ask("/api/status").facts["proposals"]
        path = f"/api/proposals/{proposal['view']}"
        wrong = site.ask(path, {"decision": "approve", "id": "another"})
        assert (wrong.status, "any more" in wrong.facts["error"]) == (400, True)
        assert site.ask(path, {"decision": "perhaps", "id": proposal["id"]}).status == 400
        wait_until(lambda: site.ask("/readyz").status == 503)
        wait_until(lambda: "held" in {v["state"] for v in site.ask("/api/status").facts["views"]})
        held = next(v for v in site.ask("/api/status").facts["views"] if v["state"] == "held")
        assert "viewkeeper approve" in held["hint"]
        for each in site.ask("/api/status").facts["proposals"]:
            done = site.ask(
                f"/api/proposals/{each['view']}", {"decision": "approve", "id": each["id"]}
            )
            assert done.status == 200
        wait_until(lambda: site.ask("/api/status").facts["proposals"] == [])
        wait_until(lambda: site.ask("/readyz").status == 200)
        assert len(site.ask("/api/views/lines").facts["versions"]) == 2


def test_a_port_that_is_taken_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    folder = make_shop(tmp_path / "shop")
    with open_project(folder, spark) as project, socket.create_server(("127.0.0.1", 0)) as taken:
        address = WebAddress("127.0.0.1", taken.getsockname()[1])
        with (
            pytest.raises(ProjectError, match="cannot listen"),
            serving_web(project, address, None),
        ):
            pass


def test_a_server_that_does_not_start_in_time_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start_late(*_: object, **__: object) -> None:
        await asyncio.sleep(0.3)

    monkeypatch.setattr(uvicorn.Server, "startup", start_late)
    monkeypatch.setattr(web_server, "START_SECONDS", 0.0)
    before = set(threading.enumerate())
    with open_project(make_shop(tmp_path / "shop")) as project:
        address = WebAddress("127.0.0.1", 0)
        with (
            pytest.raises(ProjectError, match="did not start"),
            serving_web(project, address, None),
        ):
            pass
    left = set(threading.enumerate()) - before
    assert "viewkeeper-web" not in {thread.name for thread in left}


def test_probes_that_wait_take_no_threads_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_app, "FIGURE_AGE", (0.0, 300.0))
    answer, waits = threading.Event(), threading.Event()

    def gather_late(*_: object, **__: object) -> NoReturn:
        waits.set()
        answer.wait(300)
        raise WarehouseError("late")

    monkeypatch.setattr(project_monitor, "gather_status", gather_late)
    with (
        open_project(make_shop(tmp_path / "shop")) as project,
        serving_web(project, WebAddress("127.0.0.1", 0), None) as served,
        ThreadPoolExecutor(60) as probes,
    ):
        site = Site(served.address, tmp_path / "shop")
        found = [probes.submit(site.ask, "/readyz") for _ in range(60)]
        assert waits.wait(60)
        assert site.ask("/api/views/lines").status == 404
        assert not any(each.done() for each in found)
        answer.set()
        assert {each.result().status for each in found} == {503}


def test_an_unexpected_error_of_the_status_is_shown_and_read_over(tmp_path: Path) -> None:
    settings = read_settings(make_shop(tmp_path / "shop"))
    answers = [settings]

    def settings_now() -> Settings:
        if answers:
            return answers.pop()
        answers.append(settings)
        raise RuntimeError("odd")

    reader = StatusReader(settings_now)
    with reader.reading_status():
        readings = [reader.read_latest(0.0, 60.0) for _ in range(3)]
    assert [each.number for each in readings] == [1, 2, 3]
    odd = "the status met an unexpected RuntimeError: odd"
    assert [each.trouble for each in readings] == [None, odd, None]
    assert readings[1].status == readings[0].status


def test_run_refuses_what_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    folder = str(make_shop(tmp_path / "shop"))
    open_to_all = call("-p", folder, "run", "--web", "0.0.0.0:0", spark=spark)
    assert open_to_all.exit_code == 2
    assert "VIEWKEEPER_WEB_TOKEN" in open_to_all.stderr
    assert call("-p", folder, "run", "--web", "--once", spark=spark).exit_code == 2
    unused = call("-p", folder, "run", "--once", "--web-token-file", "token", spark=spark)
    assert (unused.exit_code, "needs --web" in unused.stderr) == (2, True)
    monkeypatch.setattr("viewkeeper.cli.commands.run_command.WEB_LIBRARIES", ("not.there",))
    missing = call("-p", folder, "run", "--web", spark=spark)
    assert missing.exit_code == 2
    assert 'pip install "viewkeeper[web]"' in missing.stderr
