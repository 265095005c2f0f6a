"""The kinds of sources, by the word that a project file uses for them.

Settings travel to tasks as they stand in the project file; `${NAME}` references are resolved where
the source is opened, so that a secret is never part of a job, a plan or a record.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.errors import ProjectError
from viewkeeper.sources.sqlite import BUSY_SECONDS, SqliteSource

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

OPTIONS: Mapping[str, tuple[str, ...]] = {"sqlite": ("path", "busy_seconds")}
"""The options of each kind, beside `kind` itself."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """One entry of `sources:`; `folder` is the project's, which paths are relative to."""

    name: str
    kind: str
    options: Mapping[str, object]
    folder: str


def open_source(settings: SourceSettings, reader: str) -> SqliteSource:
    """The source that the settings describe; nothing is connected yet.

    `reader` is how this warehouse is called in the source's list of followers.
    """
    path = Path(settings.folder, _text(settings, "path"))
    return SqliteSource(settings.name, path, reader, _seconds(settings, "busy_seconds"))


def check_settings(settings: SourceSettings) -> None:
    """Refuse an unknown kind, an unknown or missing option, or a value of the wrong type."""
    if settings.kind not in OPTIONS:
        raise ProjectError(
            f'source "{settings.name}": unknown kind "{settings.kind}"',
            hint=f"known kinds: {', '.join(OPTIONS)}{nearest(settings.kind, OPTIONS)}",
        )
    known = OPTIONS[settings.kind]
    for option in settings.options:
        if option not in known:
            raise ProjectError(
                f'source "{settings.name}": unknown option "{option}"',
                hint=f"options of {settings.kind}: {', '.join(known)}{nearest(option, known)}",
            )
    _text(settings, "path")
    _seconds(settings, "busy_seconds")


def nearest(word: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """A clause that suggests the known word nearest to `word`, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f'; did you mean "{close[0]}"?' if close else ""


def _text(settings: SourceSettings, option: str) -> str:
    value = settings.options.get(option)
    if not isinstance(value, str) or not value:
        raise ProjectError(
            f'source "{settings.name}": option "{option}" must be a text',
            hint=f"for example {option}: shop.db",
        )
    return _REFERENCE.sub(lambda match: _environment(settings.name, match.group(1)), value)


def _seconds(settings: SourceSettings, option: str) -> float:
    value = settings.options.get(option, BUSY_SECONDS)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ProjectError(f'source "{settings.name}": option "{option}" must be a number >= 0')
    return float(value)


def _environment(source: str, name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ProjectError(
            f'source "{source}": the environment variable {name} is not set',
            hint=f"export {name}=... before starting viewkeeper",
        )
    return value
