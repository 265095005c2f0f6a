"""What the project file says about schema changes: policies, preferences, substitutes, detection.

evolution: {policy: evolve, detection: pessimistic}
substitutes:
  - {for: shop.orders.price, use: archive.prices.amount, join: ..., extent: equal}
views:
  order_lines: {evolution: {policy: {drop_column: approve}, dispensable: {columns: [note]}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from viewkeeper.errors import ProjectError, suggest_nearest
from viewkeeper.evolution.policy import POLICIES, Policies, read_policies
from viewkeeper.evolution.preferences import (
    Preferences,
    Substitute,
    read_preferences,
    read_substitutes,
)
from viewkeeper.sources.settings import shorten_value

Detection = Literal["pessimistic", "optimistic"]

DETECTIONS: tuple[Detection, ...] = ("pessimistic", "optimistic")


@dataclass(frozen=True, slots=True)
class ViewEvolution:
    """How one view meets schema changes."""

    policies: Policies
    preferences: Preferences


@dataclass(frozen=True, slots=True)
class EvolutionSettings:
    """How the views of a project meet schema changes.

    A pessimistic run looks through everything that waits for schema changes before it asks the
    sources anything; an optimistic one finds out when a question breaks.
    """

    detection: Detection = "pessimistic"
    policies: Policies = field(default_factory=Policies)
    substitutes: tuple[Substitute, ...] = ()
    views: Mapping[str, ViewEvolution] = field(default_factory=dict)

    def evolution_of(self, view: str) -> ViewEvolution:
        return self.views.get(view) or ViewEvolution(self.policies, Preferences())


def read_evolution(
    raw: Mapping[str, Any], views: Mapping[str, Any], where: str
) -> EvolutionSettings:
    """The settings, given the whole project file and what it says of each view."""
    place = f'{where}: "evolution"'
    given = {} if raw.get("evolution") is None else raw["evolution"]
    if not isinstance(given, dict):
        raise ProjectError(
            f"{place} must be a mapping, not {shorten_value(given)}",
            hint=f"evolution: {{policy: evolve}}; policies: {', '.join(POLICIES)}",
        )
    own = dict(given)
    for key in own:
        if key not in ("policy", "detection"):
            raise ProjectError(
                f'{place}: unknown key "{key}"',
                hint=(
                    "known keys: policy, "
                    f"detection{suggest_nearest(str(key), ('policy', 'detection'))}"
                ),
            )
    policies = read_policies(own.get("policy", "evolve"), place)
    return EvolutionSettings(
        _read_detection(own.get("detection", "pessimistic"), place),
        policies,
        read_substitutes(raw.get("substitutes"), f'{where}: "substitutes"'),
        {
            name: _read_view(facts["evolution"] or {}, policies, f'{where}: view "{name}"')
            for name, facts in views.items()
            if "evolution" in facts
        },
    )


def _read_view(raw: object, under: Policies, where: str) -> ViewEvolution:
    if not isinstance(raw, dict):
        raise ProjectError(
            f'{where}: "evolution" must be a mapping', hint="evolution: {policy: approve}"
        )
    facts = dict(raw)
    policy = facts.pop("policy", None)
    policies = under if policy is None else read_policies(policy, where, under)
    return ViewEvolution(policies, read_preferences(facts, where))


def _read_detection(word: object, where: str) -> Detection:
    for known in DETECTIONS:
        if word == known:
            return known
    raise ProjectError(
        f'{where}: unknown detection "{word}"', hint=f"one of {', '.join(DETECTIONS)}"
    )
