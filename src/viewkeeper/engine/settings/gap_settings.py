"""What the project file says about gaps: changes that a source has lost and views still need.

on_gap: reanchor
views:
  order_lines: {on_gap: stop}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from viewkeeper.errors import ProjectError, reload_hint, suggest_nearest

GapPolicy = Literal["stop", "reanchor"]

POLICIES: tuple[GapPolicy, ...] = ("stop", "reanchor")


@dataclass(frozen=True, slots=True)
class GapSettings:
    """Whether views stop at a gap, or are repaired by their difference from what is there now."""

    policy: GapPolicy = "stop"
    views: Mapping[str, GapPolicy] = field(default_factory=dict)

    def policy_of(self, view: str) -> GapPolicy:
        return self.views.get(view, self.policy)


def read_gaps(raw: Mapping[str, Any], views: Mapping[str, Any], where: str) -> GapSettings:
    """The settings, given the whole project file and what it says of each view."""
    found = GapSettings(
        _read_policy(raw.get("on_gap", "stop"), where),
        {
            name: _read_policy(facts["on_gap"], f'{where}: view "{name}"')
            for name, facts in views.items()
            if "on_gap" in facts
        },
    )
    if raw.get("registry") and "reanchor" in (found.policy, *found.views.values()):
        raise ProjectError(
            f'{where}: "on_gap: reanchor" and "registry" exclude each other',
            detail="a gap has no number in the order of a group, so that others cannot take it",
            hint=f"on_gap: stop; after a gap, {reload_hint()}",
        )
    return found


def _read_policy(word: object, where: str) -> GapPolicy:
    for known in POLICIES:
        if word == known:
            return known
    raise ProjectError(
        f'{where}: unknown "on_gap" {word!r}',
        hint=f"one of {', '.join(POLICIES)}{suggest_nearest(str(word), POLICIES)}",
    )
