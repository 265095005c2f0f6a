"""Where a server listens, and the secret that its callers must know, as options say them.

A secret is never an argument, which every user of the machine could read: it comes from a file or
from the environment.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.errors import ProjectError
from viewkeeper.web.request_guard import TOKEN_MIN, is_loopback

_MAKE_HINT = "python -c 'import secrets; print(secrets.token_urlsafe(32))' makes one"


@dataclass(frozen=True, slots=True)
class ListenOption:
    """How an option that takes an address is written, what it means without one, and the option and
    the variable for the secret."""

    word: str
    host: str
    port: int
    token_word: str
    variable: str

    def split_address(self, text: str) -> tuple[str, int]:
        """Host and port of HOST:PORT, HOST or PORT; nothing means the default.

        >>> option = ListenOption("--web", "127.0.0.1", 8484, "--web-token-file", "WEB_TOKEN")
        >>> option.split_address("[::1]:80"), option.split_address("")
        (('::1', 80), ('127.0.0.1', 8484))
        """
        host, found, port = text.rpartition(":")
        if not found or text.endswith("]") or (text.count(":") > 1 and not text.startswith("[")):
            host, port = ("", text) if text.isdecimal() else (text, "")
        host = host.removeprefix("[").removesuffix("]")
        if port and not (port.isdecimal() and int(port) < 65536):
            raise ProjectError(
                f'{self.word}: "{port}" is not a port',
                hint=f"for example {self.word} {self.host}:{self.port}",
            )
        return host or self.host, int(port) if port else self.port

    def read_secret(self, file: Path | None) -> str | None:
        """The secret in a file, else that of the environment variable, if any."""
        where = self.variable if file is None else f"{self.token_word} {file}"
        if file is None:
            token = os.environ.get(self.variable, "").strip()
            if not token:
                return None
        else:
            try:
                token = file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                hint = f"name a file that has the token alone, or set {self.variable}"
                raise ProjectError(
                    f"{where}: it cannot be read", detail=str(error), hint=hint
                ) from None
        if len(token) < TOKEN_MIN:
            few = f"the token has {len(token)} characters, fewer than {TOKEN_MIN}"
            raise ProjectError(f"{where}: {few}", hint=_MAKE_HINT)
        if not token.isprintable():
            raise ProjectError(
                f"{where}: the token is not one line of printable text", hint=_MAKE_HINT
            )
        return token

    def require_secret(self, host: str, token: str | None) -> None:
        """Refuse an address that others can reach without a token."""
        if token is None and not is_loopback(host):
            raise ProjectError(
                f"{self.word} {host}: everybody who reaches this address could read the views",
                hint=f"set {self.variable}, or {self.token_word} FILE, to a secret of at least "
                f"{TOKEN_MIN} characters",
            )
