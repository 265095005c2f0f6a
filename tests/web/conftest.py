"""What the tests of the web page share: maintainers in a thread, with a page, and a browser."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.web.browser import Page, open_browser
from viewkeeper.engine.project import open_project
from viewkeeper.web.web_server import WebAddress, serving_web


@dataclass(frozen=True)
class HttpAnswer:
    status: int
    headers: dict[str, str]
    body: str

    @property
    def facts(self) -> Any:
        return json.loads(self.body)


@dataclass
class Site:
    """A page that is being served, and who maintains behind it."""

    address: WebAddress
    folder: Path
    headers: dict[str, str] = field(default_factory=dict)

    def ask(
        self, path: str, body: object = None, method: str | None = None, **headers: str
    ) -> HttpAnswer:
        """Send a request as a program would; names of headers with _ for -."""
        sent = {**self.headers, **{key.replace("_", "-"): text for key, text in headers.items()}}
        data = None
        if body is not None:
            data = body if isinstance(body, str) else json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        with closing(
            http.client.HTTPConnection(self.address.host, self.address.port, timeout=60)
        ) as connection:
            connection.request(method or ("GET" if body is None else "POST"), path, data, sent)
            found = connection.getresponse()
            return HttpAnswer(
                found.status,
                {key.lower(): value for key, value in found.getheaders()},
                found.read().decode(),
            )


@contextmanager
def maintaining(
    folder: Path, spark: SparkSession, token: str | None = None, port: int = 0
) -> Iterator[Site]:
    """A maintainer in a thread, with its page."""
    stop = threading.Event()
    with open_project(folder, spark) as project:
        with serving_web(project, WebAddress("127.0.0.1", port), token) as site:
            thread = threading.Thread(target=project.run, args=(site.observer, stop))
            thread.start()
            try:
                yield Site(site.address, folder)
            finally:
                stop.set()
                thread.join(60)
        assert not thread.is_alive()


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with open_browser(tmp_path_factory.mktemp("chromium") / "profile") as page:
        yield page
