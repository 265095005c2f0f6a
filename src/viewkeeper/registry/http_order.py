"""A registry behind `viewkeeper registry serve`, over HTTP with JSON.

Every call may be repeated, because the registry accepts an id once however often it is sent; so a
call that gets no answer is made again, for a limited time, and then is a RegistryAwayError. A claim
that is repeated is granted again with a greater token, and the greatest is the one that counts.
Reading the order waits at the service, so that members learn of new ids at once without asking all
the time. The token is sent in a header and appears nowhere else.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from viewkeeper.errors import RegistryAwayError, RegistryError
from viewkeeper.registry import wire
from viewkeeper.registry.admission import check_claimed
from viewkeeper.registry.ids import GlobalId
from viewkeeper.registry.order import Assignment, Facts, Member, Ordered, RegistryStatus, Reporter

ANSWER_SECONDS = 15.0
PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.05, 1.0
_REPEATABLE = (502, 503, 504)


class _NoAnswerError(Exception):
    """One attempt got no answer; another may."""


class HttpRegistry:
    """A client; one connection per call, so any number of threads may use it."""

    def __init__(
        self, url: str, token: str | None = None, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if not parts.hostname or port == -1 or parts.username or parts.path.strip("/"):
            raise RegistryError(
                f"{parts.scheme}://{parts.hostname or '...'}",
                "this address cannot be used",
                hint="write http://host:port; a token is given beside the address, not in it",
            )
        self.name = f"{parts.scheme}://{parts.netloc}"
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = port
        self._token = token
        self._patience_seconds = patience_seconds
        self._identities: dict[str, str] = {}
        self._joined: dict[str, str] = {}

    def join(self, member: str, facts: Facts, remembered: str | None = None) -> Assignment:
        asked = {"member": member, "facts": asdict(facts), "remembered": remembered}
        # With the group that we know goes its identity, as with every call.
        known = {"group": self._joined[member]} if member in self._joined else {}
        found = wire.read_assignment(self._call("join", {**asked, **known}))
        self._joined[member], self._identities[found.group] = found.group, found.identity
        return found

    def leave(self, member: str) -> None:
        self._call("leave", {"member": member})
        self._joined.pop(member, None)

    def members(self, group: str) -> tuple[Member, ...]:
        return wire.read_members(self._call("members", {"group": group}))

    def claim(self, group: str, source: str, member: str, seconds: float) -> Reporter | None:
        asked = {"group": group, "source": source, "member": member, "seconds": seconds}
        found = self._call("claim", asked)
        return None if found is None else Reporter(**found)

    def release(self, reporter: Reporter) -> None:
        reported = wire.write_reporter(reporter)
        self._call("release", {"group": reporter.group, "reporter": reported})

    def register(self, group: str, ids: Sequence[GlobalId], reporter: Reporter) -> int:
        check_claimed(self.name, group, ids, reporter)
        reported = wire.write_reporter(reporter)
        n = 0
        # More than fit into one request are accepted request by request.
        for start in range(0, max(1, len(ids)), wire.IDS_MAX):
            some = [each.position for each in ids[start : start + wire.IDS_MAX]]
            asked = {"group": group, "positions": some, "reporter": reported}
            n = int(self._call("register", asked))
        return n

    def order(
        self, group: str, after: int, limit: int, wait_seconds: float = 0.0
    ) -> tuple[Ordered, ...]:
        end = time.monotonic() + wait_seconds
        while True:
            wait = min(max(0.0, end - time.monotonic()), wire.WAIT_SECONDS_MAX)
            most = min(limit, wire.IDS_MAX)
            asked = {"group": group, "after": after, "limit": most, "wait": wait}
            found = wire.read_order(self._call("order", asked, wait))
            if found or time.monotonic() >= end:
                return found

    def reached(self, group: str, member: str, n: int) -> None:
        self._call("reached", {"group": group, "member": member, "n": n})

    def status(self) -> RegistryStatus:
        return wire.read_status(self._call("status", {}))

    def close(self) -> None:
        """Nothing stays open between calls."""

    def _call(self, call: str, arguments: Mapping[str, object], wait_seconds: float = 0.0) -> Any:
        """The result of a call, asked for until our patience ends."""
        identity = self._identities.get(str(arguments["group"])) if "group" in arguments else None
        body = json.dumps({"identity": identity, **arguments}).encode()
        end, pause = 0.0, _PAUSE_SECONDS
        while True:
            try:
                return self._ask(call, body, ANSWER_SECONDS + wait_seconds)
            except _NoAnswerError as error:
                # Counted from the first failure: until then it was waiting that was asked for.
                end = end or time.monotonic() + self._patience_seconds
                if time.monotonic() + pause > end:
                    raise self._away(str(error)) from error
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def _ask(self, call: str, body: bytes, seconds: float) -> Any:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=seconds)
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request("POST", wire.PREFIX + call, body, headers)
            response = connection.getresponse()
            text = response.read(wire.ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            raise _NoAnswerError(f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if len(text) <= wire.ANSWER_BYTES_MAX and (response.length or not text):
            # Read in one piece, the library does not notice that something is missing.
            raise _NoAnswerError("its answer breaks off")
        return self._result(response.status, self._parsed(response.status, text))

    def _parsed(self, status: int, text: bytes) -> Mapping[str, Any]:
        try:
            data = json.loads(text) if len(text) <= wire.ANSWER_BYTES_MAX else None
        except ValueError:
            data = None
        if isinstance(data, dict):
            return data
        if status in _REPEATABLE:
            raise _NoAnswerError(f"it answers with status {status}")
        raise RegistryError(
            self.name,
            f"what answers there, with status {status}, is no registry",
            hint="check the address: it must be that of `viewkeeper registry serve`",
        )

    def _result(self, status: int, data: Mapping[str, Any]) -> Any:
        if status == 200 and "result" in data:
            return data["result"]
        error = data.get("error")
        found = wire.read_error(self.name, error if isinstance(error, dict) else {})
        if isinstance(found, RegistryAwayError):
            raise _NoAnswerError(found.detail or found.what)
        raise found

    def _away(self, detail: str) -> RegistryAwayError:
        return RegistryAwayError(
            self.name,
            f"it did not answer for {self._patience_seconds:g} seconds",
            detail=detail,
            hint="check that `viewkeeper registry serve` runs there; members go on when it is back",
        )
