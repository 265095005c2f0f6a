"""Who is called when something wants attention: the part `on_event` of the project file.

    on_event:
      - https://chat.example.test/hooks/${CHAT_HOOK}     # gets a POST of JSON
      - notify-send --app-name viewkeeper Viewkeeper     # gets JSON on its standard input
      - {command: [python, alert.py], events: [view_stopped, source_away], timeout: 5s}

A command is a program with its words, never a shell: a text is split at blanks and quotes as a
shell would, and nothing in it is expanded but `${NAME}`, from the environment, when it is called.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import urlsplit

from viewkeeper.errors import ProjectError, suggest_nearest
from viewkeeper.sources.settings import shorten_value

StateKind = Literal[
    "view_stopped",
    "view_resumed",
    "view_refused",
    "view_taken",
    "project_refused",
    "project_taken",
    "source_away",
    "source_back",
    "change_proposed",
    "retention_danger",
]
"""What can happen to a view or a source that somebody may want to be told of."""

EVENTS: tuple[str, ...] = get_args(StateKind)
BAD_EVENTS = (
    "view_stopped",
    "view_refused",
    "project_refused",
    "source_away",
    "change_proposed",
    "retention_danger",
)
SECONDS = 10.0
SECONDS_MAX = 300.0
_KEYS = ("command", "url", "events", "timeout")
_EXAMPLE = "for example on_event: [https://example.test/hook, {command: [notify, --loud]}]"


@dataclass(frozen=True, slots=True)
class HookSettings:
    """A program or an address, the events that it hears of, and how long it may take."""

    command: tuple[str, ...] = ()
    url: str = ""
    events: tuple[str, ...] = BAD_EVENTS
    seconds: float = SECONDS

    @property
    def name(self) -> str:
        """What it is called in the log: a program, or a host; nothing that may be secret."""
        return self.command[0] if self.command else urlsplit(self.url).hostname or "?"


def read_hooks(
    raw: object, where: str, read_duration: Callable[[object, str], float]
) -> tuple[HookSettings, ...]:
    """The part `on_event` of the project file; one hook may stand without a list."""
    if raw is None:
        return ()
    entries = raw if isinstance(raw, list) else [raw]
    return tuple(_read_hook(entry, f'{where}: "on_event"', read_duration) for entry in entries)


def _read_hook(
    raw: object, where: str, read_duration: Callable[[object, str], float]
) -> HookSettings:
    if isinstance(raw, str):
        key = "url" if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", raw) else "command"
        raw = {key: raw}
    if isinstance(raw, list):
        raw = {"command": raw}
    if not isinstance(raw, Mapping):
        raise ProjectError(f"{where} must name commands or addresses", hint=_EXAMPLE)
    for key in raw:
        if key not in _KEYS:
            hint = f"keys: {', '.join(_KEYS)}{suggest_nearest(str(key), _KEYS)}"
            raise ProjectError(f'{where}: unknown key "{key}"', hint=hint)
    if ("command" in raw) == ("url" in raw):
        raise ProjectError(f"{where}: a hook is either a command or a url", hint=_EXAMPLE)
    seconds = read_duration(raw["timeout"], f"{where}: timeout") if "timeout" in raw else SECONDS
    if not 0 < seconds <= SECONDS_MAX:
        raise ProjectError(f"{where}: timeout must be more than 0s and at most {SECONDS_MAX:g}s")
    return HookSettings(
        _read_command(raw["command"], where) if "command" in raw else (),
        _read_url(raw["url"], where) if "url" in raw else "",
        _read_events(raw.get("events", list(BAD_EVENTS)), where),
        seconds,
    )


def _read_command(raw: object, where: str) -> tuple[str, ...]:
    words: list[object] = []
    if isinstance(raw, str):
        try:
            words = list(shlex.split(raw))
        except ValueError as error:
            raise ProjectError(f"{where}: {shorten_value(raw)}: {error}", hint=_EXAMPLE) from None
    elif isinstance(raw, list):
        words = raw
    if not words or not words[0] or not all(isinstance(word, str) for word in words):
        raise ProjectError(f"{where}: a command is a text, or a list of texts", hint=_EXAMPLE)
    return tuple(str(word) for word in words)


def _read_url(raw: object, where: str) -> str:
    if not isinstance(raw, str) or not raw.startswith(("http://", "https://")):
        raise ProjectError(
            f"{where}: {shorten_value(raw)} is not an address that begins with https:// or http://",
            hint=_EXAMPLE,
        )
    return raw


def _read_events(raw: object, where: str) -> tuple[str, ...]:
    names = raw if isinstance(raw, list) else [raw]
    for name in names:
        if name not in EVENTS:
            raise ProjectError(
                f"{where}: there is no event {shorten_value(name)}",
                hint=f"events: {', '.join(EVENTS)}{suggest_nearest(str(name), EVENTS)}",
            )
    return tuple(names)
