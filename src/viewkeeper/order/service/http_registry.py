"""A registry behind `viewkeeper registry serve`, over HTTP with JSON.

Every call may be repeated, because the registry accepts an id once however often it is sent; so a
call that gets no answer is made again, for a limited time, and then is a RegistryAwayError. A claim
that is repeated is granted again with a greater token, and the greatest is the one that counts.
Reading the order waits at the service, so that members learn of new ids at once without asking all
the time. Token and secret are sent in headers and appear nowhere else; over `https://` only to
somebody whose certificate is right. What is answered is not believed: whatever is not as a service
of ours says it is a RegistryError.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from viewkeeper.errors import RegistryAwayError, RegistryError
from viewkeeper.order.admission import check_claimed
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.registry_protocol import (
    Assignment,
    GroupMember,
    MemberFacts,
    OrderedId,
    RegistryStatus,
    Reporter,
)
from viewkeeper.order.service import wire_format

ANSWER_SECONDS = 15.0
PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.05, 1.0
_REPEATABLE = (502, 503, 504)
_SENDABLE = re.compile(r"[!-~]+")
"""What a header can carry."""

T = TypeVar("T")


class _NoAnswerError(Exception):
    """One attempt got no answer; another may."""


class HttpRegistry:
    """A client; one connection per call, so any number of threads may use it."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        secret: str | None = None,
        ca: Path | None = None,
    ) -> None:
        """`secret` is that of the member who calls; `ca` is a file with certificates to trust
        instead of the machine's."""
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
        self._host = parts.hostname
        self._port = port
        self._tls = self._tls_context(ca) if parts.scheme == "https" else None
        self._headers = {"Content-Type": "application/json", "Connection": "close"}
        if token:
            self._headers["Authorization"] = f"Bearer {self._check_sendable(token, 'token')}"
        if secret:
            self._headers[wire_format.SECRET_HEADER] = self._check_sendable(secret, "secret")
        self._patience_seconds = patience_seconds
        self._identities: dict[str, str] = {}
        self._joined: dict[str, str] = {}

    def _tls_context(self, ca: Path | None) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=str(ca) if ca else None)
        except (OSError, ValueError) as error:
            raise RegistryError(
                self.name,
                f"the certificates in {ca} cannot be read",
                detail=str(error),
                hint="`ca` is a PEM file with the certificates of who signs for the registry",
            ) from error

    def _check_sendable(self, text: str, what: str) -> str:
        if not _SENDABLE.fullmatch(text):
            raise RegistryError(
                self.name,
                f"its {what} cannot be sent",
                detail="it has a space, a line break, or a character that is not ASCII",
                hint=f"make the {what} of letters and digits, as `openssl rand -hex 32` does",
            )
        return text

    def join_registry(
        self, member: str, facts: MemberFacts, remembered: str | None = None
    ) -> Assignment:
        asked = {"member": member, "facts": asdict(facts), "remembered": remembered}
        # With the group that we know goes its identity, as with every call.
        known = {"group": self._joined[member]} if member in self._joined else {}
        found = self._call_service(
            "join", {**asked, **known}, partial(wire_format.read_record, Assignment)
        )
        self._joined[member], self._identities[found.group] = found.group, found.identity
        return found

    def leave_registry(self, member: str) -> None:
        self._call_service("leave", {"member": member}, wire_format.read_nothing)
        self._joined.pop(member, None)

    def fetch_members(self, group: str) -> tuple[GroupMember, ...]:
        return self._call_service("members", {"group": group}, wire_format.read_members)

    def claim_source(self, group: str, source: str, member: str, seconds: float) -> Reporter | None:
        asked = {"group": group, "source": source, "member": member, "seconds": seconds}

        def granted(data: object) -> Reporter | None:
            return None if data is None else wire_format.read_record(Reporter, data)

        return self._call_service("claim", asked, granted)

    def release_claim(self, reporter: Reporter) -> None:
        reported = asdict(reporter)
        self._call_service(
            "release", {"group": reporter.group, "reporter": reported}, wire_format.read_nothing
        )

    def register_ids(self, group: str, ids: Sequence[GlobalId], reporter: Reporter) -> int:
        check_claimed(self.name, group, ids, reporter)
        reported = asdict(reporter)
        n = 0
        # More than fit into one request are accepted request by request.
        for start in range(0, max(1, len(ids)), wire_format.IDS_MAX):
            some = [each.position for each in ids[start : start + wire_format.IDS_MAX]]
            asked = {"group": group, "positions": some, "reporter": reported}
            n = self._call_service("register", asked, wire_format.read_number)
        return n

    def fetch_order(
        self, group: str, after: int, limit: int, wait_seconds: float = 0.0
    ) -> tuple[OrderedId, ...]:
        end = time.monotonic() + wait_seconds
        while True:
            wait = min(max(0.0, end - time.monotonic()), wire_format.WAIT_SECONDS_MAX)
            most = min(limit, wire_format.IDS_MAX)
            asked = {"group": group, "after": after, "limit": most, "wait": wait}
            found = self._call_service("order", asked, wire_format.read_order, wait)
            if found or time.monotonic() >= end:
                return found

    def note_reached(self, group: str, member: str, n: int) -> None:
        self._call_service(
            "reached", {"group": group, "member": member, "n": n}, wire_format.read_nothing
        )

    def fetch_status(self) -> RegistryStatus:
        return self._call_service("status", {}, partial(wire_format.read_record, RegistryStatus))

    def take_back(self, group: str, source: str, position: int) -> int:
        asked = {"group": group, "source": source, "position": position}
        return self._call_service("take_back", asked, wire_format.read_number)

    def forget_secret(self, member: str) -> None:
        self._call_service("forget_secret", {"member": member}, wire_format.read_nothing)

    def close(self) -> None:
        """Nothing stays open between calls."""

    def _call_service(
        self,
        call: str,
        arguments: Mapping[str, object],
        read: Callable[[object], T],
        wait_seconds: float = 0.0,
    ) -> T:
        """The result of a call, asked for until our patience ends."""
        identity = self._identities.get(str(arguments["group"])) if "group" in arguments else None
        body = json.dumps({"identity": identity, **arguments}).encode()
        end, pause = 0.0, _PAUSE_SECONDS
        while True:
            try:
                return self._decode_result(
                    read, self._send_request(call, body, ANSWER_SECONDS + wait_seconds)
                )
            except _NoAnswerError as error:
                # Counted from the first failure: until then it was waiting that was asked for.
                end = end or time.monotonic() + self._patience_seconds
                if time.monotonic() + pause > end:
                    raise self._away_error(str(error)) from error
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def _decode_result(self, read: Callable[[object], T], result: object) -> T:
        try:
            return read(result)
        except wire_format.MalformedMessageError as error:
            raise RegistryError(
                self.name,
                "its answer cannot be understood",
                detail=str(error),
                hint="use the same version of Viewkeeper there and here; check the address",
            ) from error

    def _new_connection(self, seconds: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=seconds, context=self._tls
        )

    def _send_request(self, call: str, body: bytes, seconds: float) -> object:
        connection = self._new_connection(seconds)
        try:
            connection.request("POST", wire_format.PREFIX + call, body, self._headers)
            response = connection.getresponse()
            text = response.read(wire_format.ANSWER_BYTES_MAX + 1)
        except ssl.SSLCertVerificationError as error:
            raise self._unverified_error(error) from error
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise _NoAnswerError(f"{type(error).__name__}: {error}") from error
        except ValueError as error:
            # The library itself reads sizes and status lines, and believes them to be numbers.
            raise _NoAnswerError(f"what answers speaks no HTTP: {error}") from error
        finally:
            connection.close()
        if len(text) <= wire_format.ANSWER_BYTES_MAX and (response.length or not text):
            # Read in one piece, the library does not notice that something is missing.
            raise _NoAnswerError("its answer breaks off")
        return self._unwrap_result(response.status, self._parse_answer(response, text))

    def _parse_answer(self, response: http.client.HTTPResponse, text: bytes) -> Mapping[str, Any]:
        status = response.status
        try:
            is_json = response.headers.get_content_type() == "application/json"
            fits = is_json and len(text) <= wire_format.ANSWER_BYTES_MAX
            data = wire_format.read_json(text) if fits else None
        except wire_format.MalformedMessageError:
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

    def _unwrap_result(self, status: int, data: Mapping[str, Any]) -> object:
        if status == 200 and "result" in data:
            return data["result"]
        error = data.get("error")
        found = wire_format.read_error(self.name, error if isinstance(error, dict) else {})
        if isinstance(found, RegistryAwayError):
            raise _NoAnswerError(found.detail or found.what)
        raise found

    def _unverified_error(self, error: ssl.SSLCertVerificationError) -> RegistryError:
        return RegistryError(
            self.name,
            "its certificate cannot be verified, so nothing was sent to it",
            detail=error.verify_message or str(error),
            hint="name the file with the certificate that signed it: `registry: {ca: FILE}`, or "
            "--ca on the command line; the address must be one that the certificate is for",
        )

    def _away_error(self, detail: str) -> RegistryAwayError:
        return RegistryAwayError(
            self.name,
            f"it did not answer for {self._patience_seconds:g} seconds",
            detail=detail,
            hint="check that `viewkeeper registry serve` runs there; members go on when it is back",
        )
