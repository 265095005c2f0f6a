"""The `registry:` part of a project file: which registry orders what this project shares.

All projects that name one registry are one environment, and the registry puts them into groups: two
projects whose views must agree are in one, whether or not they know of each other. Nothing about
groups is configured, except that projects with the same label `together` are in one in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewkeeper.errors import ProjectError, suggest_nearest

_KEYS = ("url", "member", "token", "together", "ca")


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where the registry is, and how this project is called among its members.

    `token` is what a service asks for; `${NAME}` in it and in the url is an environment variable.
    `ca` is a file with the certificates that sign for an `https://` service, where the machine does
    not know them.
    """

    url: str
    member: str
    token: str | None = None
    together: str = ""
    ca: str | None = None


def read_registry(raw: object, folder: Path, where: str) -> RegistrySettings | None:
    """The part `registry` of the project file; `registry: URL` is its short form."""
    if raw is None:
        return None
    facts: Mapping[str, Any] = {"url": raw} if isinstance(raw, str) else _check_mapping(raw, where)
    for key, value in facts.items():
        if key not in _KEYS:
            raise ProjectError(
                f'{where}: unknown key "registry.{key}"',
                hint=f"keys: {', '.join(_KEYS)}{suggest_nearest(str(key), _KEYS)}",
            )
        if not isinstance(value, str) or not value:
            raise ProjectError(f'{where}: "registry.{key}" must be a text')
    if "url" not in facts:
        raise ProjectError(
            f'{where}: "registry.url" is missing', hint="for example registry: ../registry.db"
        )
    member = facts.get("member", folder.resolve().name)
    rest = (facts.get("token"), facts.get("together", ""), facts.get("ca"))
    return RegistrySettings(facts["url"], member, *rest)


def _check_mapping(raw: object, where: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise ProjectError(
            f'{where}: "registry" must be an address, or a mapping with `url`',
            hint="for example registry: ../registry.db",
        )
    return raw
