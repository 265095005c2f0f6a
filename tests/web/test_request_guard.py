"""Who may ask the web page what: names, tokens, and requests that another page makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from viewkeeper.errors import ProjectError
from viewkeeper.web.request_guard import RequestGuard, WebRequest
from viewkeeper.web.web_server import OPTION, parse_address

TOKEN = "a token of some length"
HERE = {"host": "127.0.0.1:8484"}
JSON = {"content-type": "application/json"}


def status_of(guard: RequestGuard, request: WebRequest) -> int:
    refusal = guard.refusal_of(request)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8484", 200),
        ("localhost:8484", 200),
        ("localhost", 200),
        ("[::1]:8484", 200),
        ("127.9.9.9", 200),
        ("evil.test", 403),
        ("127.0.0.1.evil.test", 403),
        ("localhost.evil.test:8484", 403),
        ("192.168.0.7:8484", 403),
        ("", 403),
        ("[", 403),
        ("evil.test@127.0.0.1", 403),
    ],
)
def test_without_a_token_only_names_of_this_machine_are_answered(host: str, status: int) -> None:
    assert status_of(RequestGuard(None), WebRequest("GET", "/api/status", {"host": host})) == status


@pytest.mark.parametrize("path", ["/", "/page.js", "/metrics", "/api/status", "/api/events"])
@pytest.mark.parametrize(
    ("headers", "cookie", "status"),
    [
        ({}, None, 401),
        ({"authorization": f"Bearer {TOKEN}"}, None, 200),
        ({"authorization": f"bearer  {TOKEN} "}, None, 200),
        ({"authorization": f"Basic {TOKEN}"}, None, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, None, 401),
        ({"authorization": "Bearer "}, None, 401),
        ({}, TOKEN, 401),
        ({}, "session", 200),
    ],
)
def test_with_a_token_everybody_needs_it(
    path: str, headers: dict[str, str], cookie: str | None, status: int
) -> None:
    guard = RequestGuard(TOKEN)
    known = guard.session if cookie == "session" else cookie
    request = WebRequest("GET", path, {"host": "views.example.test", **headers}, known)
    assert status_of(guard, request) == status


def test_the_cookie_of_another_start_is_worth_nothing() -> None:
    old = RequestGuard(TOKEN).session
    assert old != TOKEN
    request = WebRequest("GET", "/", HERE, old)
    assert status_of(RequestGuard(TOKEN), request) == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_need_no_token(path: str) -> None:
    assert status_of(RequestGuard(TOKEN), WebRequest("GET", path, {"host": "10.0.0.9"})) == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (JSON, 200),
        ({**JSON, "origin": "http://127.0.0.1:8484"}, 200),
        ({**JSON, "origin": "http://127.0.0.1:8484", "sec-fetch-site": "same-origin"}, 200),
        ({**JSON, "origin": "http://evil.test"}, 403),
        ({**JSON, "origin": "http://127.0.0.1:9999"}, 403),
        ({**JSON, "origin": "null"}, 403),
        ({**JSON, "origin": "http://["}, 403),
        ({**JSON, "sec-fetch-site": "cross-site"}, 403),
        ({**JSON, "sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 403),
        ({"content-type": "application/x-www-form-urlencoded"}, 403),
        ({}, 403),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_only_the_page_itself_changes_something(
    method: str, headers: dict[str, str], status: int
) -> None:
    request = WebRequest(method, "/api/query", {**HERE, **headers})
    assert status_of(RequestGuard(None), request) == status


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ("127.0.0.1", 8484)),
        ("9000", ("127.0.0.1", 9000)),
        ("0.0.0.0", ("0.0.0.0", 8484)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("views.example.test:81", ("views.example.test", 81)),
        ("[::1]:82", ("::1", 82)),
        ("[::1]", ("::1", 8484)),
        ("::1", ("::1", 8484)),
    ],
)
def test_addresses_are_read(text: str, wanted: tuple[str, int]) -> None:
    found = parse_address(text)
    assert (found.host, found.port) == wanted


@pytest.mark.parametrize("text", ["127.0.0.1:x", "127.0.0.1:65536", "a:-1"])
def test_wrong_ports_are_refused(text: str) -> None:
    with pytest.raises(ProjectError, match="is not a port"):
        parse_address(text)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "views.example.test"])
def test_an_address_that_others_reach_needs_a_token(host: str) -> None:
    with pytest.raises(ProjectError, match="everybody who reaches"):
        OPTION.require_secret(host, None)
    OPTION.require_secret(host, TOKEN)
    OPTION.require_secret("localhost", None)


def test_tokens_come_from_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIEWKEEPER_WEB_TOKEN", f" {TOKEN}\n")
    assert OPTION.read_secret(None) == TOKEN
    monkeypatch.setenv("VIEWKEEPER_WEB_TOKEN", "short")
    with pytest.raises(ProjectError, match="fewer than 16"):
        OPTION.read_secret(None)
    monkeypatch.setenv("VIEWKEEPER_WEB_TOKEN", f"{TOKEN}\n{TOKEN}")
    with pytest.raises(ProjectError, match="is not one line of printable text"):
        OPTION.read_secret(None)
    monkeypatch.delenv("VIEWKEEPER_WEB_TOKEN")
    assert OPTION.read_secret(None) is None
    with pytest.raises(ProjectError, match="gone: it cannot be read") as found:
        OPTION.read_secret(tmp_path / "gone")
    assert "VIEWKEEPER_WEB_TOKEN" in str(found.value.hint)
    (tmp_path / "token").write_text("")
    with pytest.raises(ProjectError, match="has 0 characters"):
        OPTION.read_secret(tmp_path / "token")
