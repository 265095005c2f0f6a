"""The channel to a MariaDB server: how it is encrypted, and which secrets it may carry.

How much the server behind a channel is known is a word, the *mode*:

- `off`: nothing is encrypted;
- `required`: encrypted, but by whoever answered;
- `verify-ca`: the server has a certificate of an authority that we trust;
- `verify-full`: ... and the certificate is for the host of the url.

A mode is never given up: a server that cannot do what it asks for is refused. Without a word about
it, a server on another machine is `verify-full`, with the authorities of this machine; one on this
machine is `off`, because what passes there leaves it nowhere.

A server chooses how the password is proved to it, and some ways hand the password over: in clear,
encrypted by a key that the server has just sent, or hashed so weakly that it is nearly the same.
These are answered by `verify-full` channels only, whatever the url says: on this machine, too,
anybody may listen at the port of a server that is down. The others give whoever asks no more than
a hash over numbers that it has chosen.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import pymysql
import pymysql.connections
from pymysql.constants import CR

from viewkeeper.errors import ProjectError

Mode: TypeAlias = Literal["off", "required", "verify-ca", "verify-full"]
Option: TypeAlias = tuple[str, str | bool]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MODE = "ssl_mode"
_FLAGS = {"ssl_verify_cert", "ssl_verify_identity"}
_PATHS = {"ssl_ca", "ssl_cert", "ssl_key"}
_NATIVE = "mysql_native_password"
# What they send is a proof of the password, from which it cannot be read.
_PROOFS = ("", _NATIVE, "client_ed25519")
# MariaDB allows no packet to be larger.
_LARGEST_BYTES = 1 << 30


class UntrustedError(pymysql.err.OperationalError):
    """A server asks for what its channel is not trusted to carry."""


@dataclass(frozen=True, slots=True)
class Channel:
    """What the url says about encryption, for one host."""

    host: str
    options: tuple[Option, ...]

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine."""
        return self.host in _LOOPBACK

    @property
    def mode(self) -> Mode:
        chosen = dict(self.options)
        if _MODE in chosen:
            return _parse_mode(str(chosen[_MODE]))
        if chosen.get("ssl_verify_identity"):
            return "verify-full"
        if "ssl_verify_cert" in chosen:
            return "verify-ca" if chosen["ssl_verify_cert"] else "required"
        if "ssl_ca" in chosen or "ssl_verify_identity" in chosen:
            return "verify-ca"
        if not self.is_local:
            return "verify-full"
        return "required" if chosen else "off"

    def make_context(self) -> ssl.SSLContext | None:
        """How connections are encrypted; None if they are not."""
        return None if self.mode == "off" else _make_ssl_context(self.mode, self.options)


def _parse_mode(text: str) -> Mode:
    found: Mode = next(word for word in get_args(Mode) if word == text)
    return found


def parse_channel_options(
    source: str, query: Iterable[tuple[str, str]], folder: str
) -> tuple[Option, ...]:
    """The options behind the question mark of a url; a ProjectError if they make no sense."""
    found = dict(_parse_options(source, query, folder))
    _require_sense(source, found)
    return tuple(found.items())


def _parse_options(source: str, query: Iterable[tuple[str, str]], folder: str) -> Iterator[Option]:
    for name, value in query:
        if name in _FLAGS:
            yield name, value.lower() in ("", "1", "true", "yes", "on")
        elif name in _PATHS:
            yield name, str(Path(folder, value))
        elif name == _MODE and value.lower() in get_args(Mode):
            yield name, value.lower()
        elif name == _MODE:
            raise ProjectError(
                f'source "{source}": ssl_mode in the url cannot be "{value}"',
                hint=f"one of {', '.join(get_args(Mode))}",
            )
        else:
            raise ProjectError(
                f'source "{source}": unknown option "{name}" in the url',
                hint=f"known are {', '.join(sorted(_FLAGS | _PATHS | {_MODE}))}",
            )


def _require_sense(source: str, options: Mapping[str, str | bool]) -> None:
    """A ProjectError if options of one url contradict each other."""
    if _MODE not in options:
        return
    others = sorted(set(options) & (_FLAGS if options[_MODE] != "off" else _FLAGS | _PATHS))
    if others:
        raise ProjectError(
            f'source "{source}": the url has both ssl_mode={options[_MODE]} and {others[0]}',
            hint=f"ssl_mode says it all: remove {', '.join(others)}",
        )


@lru_cache
def _make_ssl_context(mode: Mode, options: tuple[Option, ...]) -> ssl.SSLContext:
    """Made once, because reading the system's certificates takes longer than to connect."""
    chosen = dict(options)
    authority = chosen.get("ssl_ca")
    context = ssl.create_default_context(cafile=None if authority is None else str(authority))
    # Certificates that MariaDB makes for itself do not pass the strictest check.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = mode == "verify-full"
    context.verify_mode = ssl.CERT_NONE if mode == "required" else ssl.CERT_REQUIRED
    if "ssl_cert" in chosen:
        key = chosen.get("ssl_key")
        context.load_cert_chain(str(chosen["ssl_cert"]), None if key is None else str(key))
    return context


if TYPE_CHECKING:
    _Connection = pymysql.connections.Connection[Any]
else:
    _Connection = pymysql.connections.Connection


class GuardedConnection(_Connection):
    """A connection of the driver that proves the password only in ways that its channel may
    carry, and that takes no packet without an end.

    The driver answers every way that the server asks for; there is no public call to change that.
    """

    ctx: ssl.SSLContext
    ssl: bool
    _secure: bool
    _auth_plugin_name: str
    _large = 0

    @property
    def _is_known(self) -> bool:
        """Whether the server is known to be the one of the url."""
        return self.ssl and self.ctx.check_hostname and self.ctx.verify_mode == ssl.CERT_REQUIRED

    def _request_authentication(self) -> None:
        if not self._is_known and self._auth_plugin_name not in _PROOFS:
            # What the server announces is only its guess; it asks again if it was wrong.
            self._auth_plugin_name = _NATIVE
        connection: Any = super()
        connection._request_authentication()

    def _get_auth_plugin_handler(self, plugin: str | bytes) -> None:
        """Called for each way that the server asks for, before it is gone."""
        name = plugin if isinstance(plugin, str) else plugin.decode("ascii", "replace")
        if name not in _PROOFS and not (self._is_known and self._secure):
            raise UntrustedError(
                CR.CR_AUTH_PLUGIN_CANNOT_LOAD,
                f"it asks for the password by {name!r}, which would hand it over",
            )
        if name == "client_ed25519" and find_spec("nacl") is None:
            raise pymysql.err.OperationalError(
                CR.CR_AUTH_PLUGIN_CANNOT_LOAD,
                "it asks for the password by client_ed25519: pip install 'pymysql[ed25519]'",
            )

    def _read_bytes(self, size: int) -> bytes:
        if size == pymysql.connections.MAX_PACKET_LEN:
            self._large += size
            if self._large > _LARGEST_BYTES:
                connection: Any = self
                connection._force_close()
                text = "a packet has more than 1 GB"
                raise pymysql.err.OperationalError(CR.CR_NET_PACKET_TOO_LARGE, text)
        elif size != 4:
            self._large = 0
        reader: Any = super()
        found: bytes = reader._read_bytes(size)
        return found
