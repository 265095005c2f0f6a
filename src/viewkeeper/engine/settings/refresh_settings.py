"""What the project file says about how views are kept fresh.

refresh: incremental
views:
  top_products: {refresh: auto}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from viewkeeper.errors import ProjectError, suggest_nearest

RefreshMode = Literal["incremental", "auto", "full"]

MODES: tuple[RefreshMode, ...] = ("incremental", "auto", "full")


@dataclass(frozen=True, slots=True)
class RefreshSettings:
    """Whether views are maintained from changes, or computed again.

    An `incremental` view is refused if it cannot be maintained from changes; `auto` computes such a
    view again whenever what it reads has changed, `full` every view.
    """

    mode: RefreshMode = "incremental"
    views: Mapping[str, RefreshMode] = field(default_factory=dict)

    def mode_of(self, view: str) -> RefreshMode:
        return self.views.get(view, self.mode)


def read_refresh(raw: Mapping[str, Any], views: Mapping[str, Any], where: str) -> RefreshSettings:
    """The settings, given the whole project file and what it says of each view."""
    found = RefreshSettings(
        _read_mode(raw.get("refresh", "incremental"), where),
        {
            name: _read_mode(facts["refresh"], f'{where}: view "{name}"')
            for name, facts in views.items()
            if "refresh" in facts
        },
    )
    used = {found.mode, *found.views.values()}
    if raw.get("registry") and used - {"incremental"}:
        raise ProjectError(
            f'{where}: "refresh: {min(used - {"incremental"})}" and "registry" exclude each other',
            detail="a view that is computed again has no state for each number of a group's order",
            hint="refresh: incremental",
        )
    return found


def _read_mode(word: object, where: str) -> RefreshMode:
    for known in MODES:
        if word == known:
            return known
    raise ProjectError(
        f'{where}: unknown "refresh" {word!r}',
        hint=f"one of {', '.join(MODES)}{suggest_nearest(str(word), MODES)}",
    )
