"""Where a server listens, and the secret that its callers must know, as options say them.

A secret is never an argument, which every user of the machine could read: it comes from a file or
from the environment.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.errors import ProjectError
from viewkeeper.web.request_guard import TOKEN_MIN


@dataclass(frozen=True, slots=True)
class ListenOption:
    """How an option that takes an address is written, and what it means without one."""

    word: str
    host: str
    port: int


def split_address(text: str, option: ListenOption) -> tuple[str, int]:
    """Host and port of HOST:PORT, HOST or PORT; nothing means the default.

    >>> split_address("[::1]:80", ListenOption("--web", "127.0.0.1", 8484))
    ('::1', 80)
    """
    host, found, port = text.rpartition(":")
    if not found or text.endswith("]") or (text.count(":") > 1 and not text.startswith("[")):
        host, port = ("", text) if text.isdecimal() else (text, "")
    host = host.removeprefix("[").removesuffix("]")
    if port and not (port.isdecimal() and int(port) < 65536):
        raise ProjectError(
            f'{option.word}: "{port}" is not a port',
            hint=f"for example {option.word} {option.host}:{option.port}",
        )
    return host or option.host, int(port) if port else option.port


def read_secret(file: Path | None, word: str, variable: str, whose: str) -> str | None:
    """The secret in a file that an option names, else that of an environment variable, if any."""
    if file is None:
        token = os.environ.get(variable, "").strip() or None
    else:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ProjectError(
                f"{word}: {file} cannot be read",
                detail=str(error),
                hint=f"name a file with the token alone, or set {variable}",
            ) from None
    if token is None:
        return None
    how = "python -c 'import secrets; print(secrets.token_urlsafe(32))' makes one"
    if len(token) < TOKEN_MIN:
        few = f"has {len(token)} characters, fewer than {TOKEN_MIN}"
        raise ProjectError(f"the token of {whose} {few}", hint=how)
    if not token.isprintable():
        raise ProjectError(f"the token of {whose} is not one line of printable text", hint=how)
    return token
