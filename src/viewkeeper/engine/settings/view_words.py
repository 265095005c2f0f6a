"""Words of the project file that hold for all views, unless a view has its own.

    refresh: incremental
    on_gap: reanchor
    views:
      top_products: {refresh: auto, on_gap: stop}

`refresh` says whether views are maintained from changes. An `incremental` view is refused if it
cannot be; `auto` computes such a view again whenever what it reads has changed, `full` every view.
`on_gap` says what becomes of a view when a source has lost changes that it still needs: it stops,
or is repaired by its difference from what is there now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from viewkeeper.errors import ProjectError, reload_hint, suggest_nearest

GapPolicy = Literal["stop", "reanchor"]
RefreshMode = Literal["incremental", "auto", "full"]

W = TypeVar("W", bound=str)


@dataclass(frozen=True, slots=True)
class ViewWords(Generic[W]):
    """The word for all views, and those of single views."""

    default: W
    views: Mapping[str, W] = field(default_factory=dict)

    def word_of(self, view: str) -> W:
        return self.views.get(view, self.default)


def read_gaps(raw: Mapping[str, Any], views: Mapping[str, Any], where: str) -> ViewWords[GapPolicy]:
    """The policies, given the whole project file and what it says of each view."""
    policies: tuple[GapPolicy, ...] = ("stop", "reanchor")
    found = _read_words("on_gap", policies, raw, views, where)
    if raw.get("registry") and "reanchor" in (found.default, *found.views.values()):
        raise ProjectError(
            f'{where}: "on_gap: reanchor" and "registry" exclude each other',
            detail="a gap has no number in the order of a group, so that others cannot take it",
            hint=f"on_gap: stop; after a gap, {reload_hint()}",
        )
    return found


def read_refresh(
    raw: Mapping[str, Any], views: Mapping[str, Any], where: str
) -> ViewWords[RefreshMode]:
    """The modes, given the whole project file and what it says of each view."""
    modes: tuple[RefreshMode, ...] = ("incremental", "auto", "full")
    found = _read_words("refresh", modes, raw, views, where)
    others = {found.default, *found.views.values()} - {"incremental"}
    if raw.get("registry") and others:
        raise ProjectError(
            f'{where}: "refresh: {min(others)}" and "registry" exclude each other',
            detail="a view that is computed again has no state for each number of a group's order",
            hint="refresh: incremental",
        )
    return found


def _read_words(
    key: str,
    known: tuple[W, ...],
    raw: Mapping[str, Any],
    views: Mapping[str, Any],
    where: str,
) -> ViewWords[W]:
    def read(given: object, place: str) -> W:
        for word in known:
            if given == word:
                return word
        raise ProjectError(
            f'{place}: unknown "{key}" {given!r}',
            hint=f"one of {', '.join(known)}{suggest_nearest(str(given), known)}",
        )

    own = {name: facts[key] for name, facts in views.items() if key in facts}
    return ViewWords(
        read(raw.get(key, known[0]), where),
        {name: read(given, f'{where}: view "{name}"') for name, given in own.items()},
    )
