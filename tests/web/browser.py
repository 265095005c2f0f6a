"""A headless Chromium for tests, driven by its own protocol (DevTools) over a WebSocket.

It is Debian's package, which `scripts/setup` installs. A page is opened at a width, waited for by
an expression, asked by expressions, pressed by keys, and photographed.
"""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

from viewkeeper.testing.private_servers import find_program

SECONDS = 60.0
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-extensions", "--no-first-run", "--hide-scrollbars", "--mute-audio"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-port=0", "--force-color-profile=srgb", "--font-render-hinting=none"),
)


class Page:
    """One tab; what its console says of the page is kept in `complaints`."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **facts: Any) -> dict[str, Any]:
        """Ask the browser for something."""
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": facts}))
        while True:
            message = json.loads(self._connection.recv(timeout=SECONDS))
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])
            self._note_event(message)

    def _note_event(self, message: dict[str, Any]) -> None:
        match message:
            case {"method": "Runtime.exceptionThrown", "params": facts}:
                self.complaints.append(json.dumps(facts)[:1000])
            case {"method": "Log.entryAdded", "params": {"entry": {"level": "error", **entry}}}:
                self.complaints.append(f"{entry.get('text')} {entry.get('url')}")

    def open(self, url: str, width: int = 1280, dark: bool = False) -> None:
        self.resize(width)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        # The page before may complain that its server has gone.
        self.call("Page.navigate", url="about:blank")
        self.ask("1")
        self.complaints.clear()
        self.call("Page.navigate", url=url)

    def resize(self, width: int, height: int = 900) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str, seconds: float = SECONDS) -> Any:
        """Wait until an expression is true in the page."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := self.ask(f"Boolean(document.body && ({expression}))"):
                return found
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds:g} s: {expression}\n{self.text[:3000]}")

    @property
    def text(self) -> str:
        """What the page shows, as text."""
        return str(self.ask("document.body.innerText"))

    def press(self, key: str) -> None:
        """Press a key."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27}[key]
        facts = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **facts, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **facts)

    def photograph(self, path: Path, height_max: int = 2400) -> None:
        """A picture of the whole page, as far as it is not too long."""
        height = int(self.ask("document.documentElement.scrollHeight"))
        width = int(self.ask("innerWidth"))
        area = {"x": 0, "y": 0, "width": width, "height": min(height, height_max), "scale": 1}
        found = self.call(
            "Page.captureScreenshot", format="png", clip=area, captureBeyondViewport=True
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def open_browser(folder: Path) -> Iterator[Page]:
    """A browser with a profile of its own, and one page in it."""
    program = find_program(*PROGRAMS)
    command = [program, *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port = _wait_for_port(folder / "DevToolsActivePort")
        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=SECONDS) as found:
            pages = [each for each in json.load(found) if each["type"] == "page"]
        with connect(pages[0]["webSocketDebuggerUrl"], max_size=64 << 20, proxy=None) as connection:
            page = Page(connection)
            yield page
            page.call("Browser.close")
    finally:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for_port(file: Path) -> int:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) == 2:
            return int(lines[0])
        time.sleep(0.05)
    raise AssertionError("Chromium did not start")
