"""Who may ask the web page what.

1. On a loopback address nobody needs a token, unless one is set. But a browser on this machine can
   be made to ask by any page that it shows, so the `Host` must be a loopback name: a foreign name
   that was made to point here (DNS rebinding) is refused.
2. On any other address everybody needs the token: as `Authorization: Bearer`, or in a browser by a
   cookie that the form of `/login` gives. A page of another name has no such cookie.
3. What changes something, or runs SQL, must come from our own page: the `Origin` must be the `Host`
   that was asked, and the body JSON, which no form of another page can send.
4. `/healthz` and `/readyz` are open to all: they say a word and name nobody.

Tokens are compared in constant time.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

COOKIE = "viewkeeper_session"
OPEN_PATHS = ("/healthz", "/readyz", "/login", "/page.css", "/icon.svg")
TOKEN_MIN = 16


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused, with its HTTP status."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class WebRequest:
    """What of a request decides whether it is answered; names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    cookie: str | None = None


@dataclass(frozen=True, slots=True)
class RequestGuard:
    """Decides about requests; `token` is what callers must know, None if anybody on this machine
    may ask."""

    token: str | None = field(repr=False)
    session: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    """What the cookie of who knows the token holds: it tells nothing of the token, and is another
    one after each start."""

    def is_token(self, given: str) -> bool:
        """Whether this is the token."""
        return self.token is not None and _is_same(given, self.token)

    def refusal_of(self, request: WebRequest) -> Refusal | None:
        """Why a request is not answered; None if it is."""
        host = request.headers.get("host", "")
        if self.token is None and not is_loopback(host_name(host)):
            return Refusal(403, "the name in Host is not that of this machine")
        if request.method not in ("GET", "HEAD") and not _is_own_page(request, host):
            return Refusal(403, "only the page itself may ask for this, with a body of JSON")
        if request.path in OPEN_PATHS or self._is_known(request):
            return None
        return Refusal(401, "the token is needed")

    def _is_known(self, request: WebRequest) -> bool:
        if self.token is None:
            return True
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        return request.cookie is not None and _is_same(request.cookie, self.session)


def _is_own_page(request: WebRequest, host: str) -> bool:
    """Whether a request that changes something comes from our own page, or from a program that has
    no page at all and shows the token."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.path == "/login":
        wanted = ("application/x-www-form-urlencoded",)
    else:
        wanted = ("application/json",)
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    is_ours = origin is None or _place_of(origin) == host.lower()
    return is_ours and site in ("same-origin", "none") and kind in wanted


def _place_of(origin: str) -> str | None:
    """The name and port of an origin in lower case, None if it has none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def host_name(host: str) -> str:
    """The name in a `Host` header, without its port.

    >>> host_name("localhost:8765"), host_name("[::1]:8765"), host_name("evil.test")
    ('localhost', '::1', 'evil.test')
    """
    if "@" in host:
        return ""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback(name: str) -> bool:
    """Whether a name or address is this machine itself.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("a.b")
    (True, True, True, False)
    """
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
