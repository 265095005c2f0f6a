"""What is answered to requests: the page, its data, figures, and the few things that can be done.

Everything is read from the monitor, which nobody who maintains waits for. Pages are told of news by
server-sent events: one line of JSON whenever the status was read again, made once for all of them.
A slow reader holds up its own stream only; there are at most fifty. What is wrong with a request is
an object with `error`, `detail` and `hint`, as on the command line.

Approving and rejecting leave a word for the maintainer, exactly as the commands do; the request
names the proposal that was shown, so that a later one is not decided by accident. SQL is answered
as `viewkeeper query` would, within bounds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from viewkeeper.engine.evolution.proposals import Proposals
from viewkeeper.engine.query.bounded_query import BoundedQueries, QueryBounds
from viewkeeper.engine.query.exact_values import json_value
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.errors import ProjectError, ViewkeeperError
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.web.project_monitor import EventMemory, StatusReader, StatusReading
from viewkeeper.web.project_snapshot import (
    Facts,
    project_facts,
    proposal_facts,
    proposal_list,
    view_page,
)
from viewkeeper.web.request_guard import COOKIE, RequestGuard, WebRequest

PAGE = Path(__file__).with_name("page")
BODY_MAX = 64 << 10
STREAMS_MAX = 50
NEWS_SECONDS = 1.0
PAGE_AGE, FIGURE_AGE = (1.5, 8.0), (0.5, 8.0)
"""How old the status may be in seconds, and how long one waits for a newer one."""

LOGIN_SECONDS = 0.5
QUERY_BOUNDS = QueryBounds(rows=500, seconds=30.0)

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass
class WebState:
    """What the answers are made of; the settings are those that the maintainer has now."""

    settings_now: Callable[[], Settings]
    memory: EventMemory
    reader: StatusReader
    registry: CollectorRegistry
    queries: BoundedQueries
    guard: RequestGuard
    streams: int = 0
    _news: tuple[int, str] = (-1, "")
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)
    _reading: asyncio.Future[StatusReading] | None = None

    @property
    def settings(self) -> Settings:
        return self.settings_now()

    async def read_status(self, age: tuple[float, float]) -> StatusReading:
        """The status; one thread waits for all who ask meanwhile, so that many who ask while a
        source hangs take no threads from others."""
        if self._reading is None or self._reading.done():
            waiting = run_in_threadpool(self.reader.read_latest, *age)
            self._reading = asyncio.ensure_future(waiting)
        return await asyncio.shield(self._reading)

    async def read_news(self) -> tuple[int, str]:
        """The number of the last reading, and everything as JSON; made once for all streams."""
        async with self._making:
            reading = await self.read_status(PAGE_AGE)
            if reading.number != self._news[0]:
                facts = await run_in_threadpool(self.make_facts, reading)
                self._news = reading.number, json.dumps(facts, separators=(",", ":"))
            return self._news

    def make_facts(self, reading: StatusReading) -> Facts:
        """Everything at the moment of a reading, proposals included."""
        facts = project_facts(self.settings, reading, self.memory.recall())
        facts["proposals"] = proposal_list(Proposals(self.settings.warehouse))
        return facts


def make_app(state: WebState) -> GuardedApp:
    """The application; `state` is all that it knows."""
    routes = [
        *(Route(path, page_file(name)) for path, name in FILES.items()),
        Route("/login", login_by(state), methods=["GET", "POST"]),
        Route("/healthz", answer_alive),
        Route("/readyz", ready_by(state)),
        Route("/metrics", metrics_by(state)),
        Route("/api/status", status_by(state)),
        Route("/api/events", events_by(state)),
        Route("/api/views/{name}", view_by(state)),
        Route("/api/proposals/{name}", proposal_by(state), methods=["POST"]),
        Route("/api/query", query_by(state), methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={ViewkeeperError: answer_error})
    return GuardedApp(app, state.guard)


FILES = {
    "/": "index.html",
    "/page.css": "page.css",
    "/page.js": "page.js",
    "/icon.svg": "icon.svg",
}
Answer = Callable[[Request], Awaitable[Response]]


class GuardedApp:
    """An application of which only requests are answered that may be, each with our headers."""

    def __init__(self, app: ASGIApp, guard: RequestGuard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        asked = WebRequest(
            request.method,
            # The path that routes go by; that of `request.url` is made of the Host too.
            scope["path"],
            {key.lower(): value for key, value in request.headers.items()},
            request.cookies.get(COOKIE),
        )

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._guard.refusal_of(asked)
        app: ASGIApp = self._app
        if refusal is not None and refusal.status == 401 and asked.path == "/":
            app = RedirectResponse("/login", 303)
        elif refusal is not None:
            app = error_answer(refusal.status, refusal.reason)
        await app(scope, receive, send_safely)


def error_answer(
    status: int, error: str, detail: str | None = None, hint: str | None = None
) -> Response:
    return JSONResponse({"error": error, "detail": detail, "hint": hint}, status)


async def answer_error(_: Request, error: Exception) -> Response:
    """An error of ours, as the command line has it."""
    assert isinstance(error, ViewkeeperError)
    return error_answer(400, error.message, error.detail, error.hint)


def page_file(name: str) -> Answer:
    async def answer(_: Request) -> Response:
        return FileResponse(PAGE / name)

    return answer


def login_by(state: WebState) -> Answer:
    """A form that takes the token, and gives a cookie for it."""

    async def answer(request: Request) -> Response:
        if request.method == "GET":
            return FileResponse(PAGE / "login.html")
        given = parse_qs((await read_body(request)).decode(errors="replace")).get("token", [""])[0]
        if not state.guard.is_token(given):
            # Whoever tries many tokens waits for each.
            await asyncio.sleep(LOGIN_SECONDS)
            return FileResponse(PAGE / "login.html", 401)
        response = RedirectResponse("/", 303)
        # Only the browser knows whether a proxy before us speaks TLS.
        is_safe = request.headers.get("origin", "").startswith("https://")
        response.set_cookie(
            COOKIE, state.guard.session, httponly=True, samesite="strict", secure=is_safe
        )
        return response

    return answer


async def answer_alive(_: Request) -> Response:
    """That this is answered says that the process lives."""
    return PlainTextResponse("ok\n")


def ready_by(state: WebState) -> Answer:
    """Whether every view is loaded and none has stopped; with numbers, and no names."""

    async def answer(_: Request) -> Response:
        reading = await state.read_status(FIGURE_AGE)
        if reading.status is None or reading.trouble is not None:
            return PlainTextResponse("not ready: the warehouse cannot be read\n", 503)
        views = reading.status.views
        down = sum(not view.is_up for view in views)
        if down:
            text = f"not ready: {down} of {len(views)} views are not loaded, held or stopped\n"
            return PlainTextResponse(text, 503)
        return PlainTextResponse("ready\n")

    return answer


def metrics_by(state: WebState) -> Answer:
    async def answer(_: Request) -> Response:
        await state.read_status(FIGURE_AGE)
        body = await run_in_threadpool(generate_latest, state.registry)
        return Response(body, media_type=CONTENT_TYPE_LATEST)

    return answer


def status_by(state: WebState) -> Answer:
    async def answer(_: Request) -> Response:
        reading = await state.read_status(PAGE_AGE)
        return JSONResponse(await run_in_threadpool(state.make_facts, reading))

    return answer


def events_by(state: WebState) -> Answer:
    """Everything, again whenever it was read again."""

    async def news() -> AsyncIterator[str]:
        sent = -1
        state.streams += 1
        try:
            while True:
                number, text = await state.read_news()
                # A comment keeps the connection, and finds out whether somebody is still there.
                yield f"data: {text}\n\n" if number != sent else ": still here\n\n"
                sent = number
                await asyncio.sleep(NEWS_SECONDS)
        finally:
            state.streams -= 1

    async def answer(_: Request) -> Response:
        if state.streams >= STREAMS_MAX:
            return error_answer(503, "too many pages are open", hint="close some of them")
        return StreamingResponse(news(), media_type="text/event-stream")

    return answer


def view_by(state: WebState) -> Answer:
    def make(name: str) -> Facts | None:
        return view_page(read_head(state.settings.warehouse), name, state.memory.recall().views)

    async def answer(request: Request) -> Response:
        name = request.path_params["name"]
        found = await run_in_threadpool(make, name)
        if found is None:
            return error_answer(404, f'view "{name}" is not loaded, or there is none')
        return JSONResponse(found)

    return answer


def proposal_by(state: WebState) -> Answer:
    """Approve or reject exactly what was shown."""

    def decide(name: str, shown: str, decision: Literal["approve", "reject"]) -> Facts:
        proposals = Proposals(state.settings.warehouse)
        known = {proposed.view: proposed for proposed in proposals.list_proposals()}
        if name in known and known[name].id != shown:
            raise ProjectError(
                f'view "{name}": this is not what is proposed any more',
                hint="look at what the page shows now, and decide again",
            )
        return proposal_facts(proposals.answer_proposal(name, decision))

    async def answer(request: Request) -> Response:
        match await read_object(request):
            case {"decision": "approve" | "reject" as decision, "id": str() as shown}:
                name = request.path_params["name"]
                return JSONResponse(await run_in_threadpool(decide, name, shown, decision))
        return error_answer(400, "`decision` must be approve or reject, and `id` a text")

    return answer


def query_by(state: WebState) -> Answer:
    """One SELECT, within bounds."""

    def ask(text: str, as_of: int | None) -> Facts:
        found = state.queries.answer_query(text, QUERY_BOUNDS, as_of)
        return {
            "columns": list(found.names),
            "rows": [[json_value(value) for value in row] for row in found.rows],
            "has_more": found.has_more,
            "where": found.where,
            "seconds": found.seconds,
        }

    async def answer(request: Request) -> Response:
        asked = await read_object(request)
        match {"as_of": None, **asked} if isinstance(asked, dict) else None:
            case {"sql": str() as text, "as_of": int() | None as as_of}:
                return JSONResponse(await run_in_threadpool(ask, text, as_of))
        return error_answer(400, "`sql` must be a text, and `as_of` a ts")

    return answer


async def read_object(request: Request) -> object:
    """The JSON of a request; None if it is none."""
    try:
        return json.loads(await read_body(request))
    except (ValueError, RecursionError):
        return None


async def read_body(request: Request) -> bytes:
    """The body of a request, if it is not too long."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_MAX:
            raise ProjectError(f"the request has more than {BODY_MAX:,} bytes")
    return bytes(body)
