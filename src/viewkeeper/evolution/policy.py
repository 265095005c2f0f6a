"""What is to happen when a source changes its shape: one word per project, view and kind of change.

The words are those that Flink CDC has for the behaviour at schema changes, and one of our own:

- `exception`: the view stops; its last good state is served, marked as stale.
- `approve`: the view is held until `viewkeeper approve` or `viewkeeper reject` decides.
- `ignore`: the view keeps its columns as they are: nothing is taken in, what is lost is NULL.
- `lenient`: as `evolve`, but no column of the view goes: what is lost is NULL.
- `try_evolve`: as `evolve`, and what cannot be done is done as `lenient` does it.
- `evolve`: the definition follows; where preferences and substitutes do not allow that, it stops.

Several changes that come together are followed together, by one rewriting, so one word must hold
for all of them: the strictest, which is the first in the list above. Strict is what keeps more of
the change away from the view. Nothing that one of the words would have kept away gets in because
another change came at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from viewkeeper.errors import ProjectError
from viewkeeper.evolution.preferences import list_choices, read_mapping
from viewkeeper.updates.schema_change import KINDS, ChangeKind, SchemaChange

Policy = Literal["exception", "evolve", "try_evolve", "lenient", "ignore", "approve"]

POLICIES: tuple[Policy, ...] = get_args(Policy)

STRICTEST_FIRST: tuple[Policy, ...] = (
    "exception",
    "approve",
    "ignore",
    "lenient",
    "try_evolve",
    "evolve",
)


@dataclass(frozen=True, slots=True)
class Policies:
    """The policy of a view: `kinds` for the kinds of change that it names, else `default`."""

    default: Policy = "evolve"
    kinds: Mapping[ChangeKind, Policy] = field(default_factory=dict)

    def policy_for(self, changes: Iterable[SchemaChange]) -> Policy:
        """The one policy for changes that are followed together; `default` if there are none.

        >>> drop = SchemaChange("drop_column", "orders", "note")
        >>> rename = SchemaChange("rename_column", "orders", "price", "cost")
        >>> Policies("evolve", {"drop_column": "approve"}).policy_for([rename, drop])
        'approve'
        """
        words = {self.kinds.get(change.kind, self.default) for change in changes}
        return min(words, key=STRICTEST_FIRST.index, default=self.default)


def read_policies(raw: object, where: str, under: Policies | None = None) -> Policies:
    """The policies that the project file says; `under` are those that they refine.

    A word is for every kind of change. A mapping of kinds to words changes only what it names;
    `default` in it is for the kinds that neither it nor `under` names.
    """
    base = Policies() if under is None else under
    if raw is None:
        return base
    if isinstance(raw, str):
        return Policies(_read_policy(raw, where))
    if not isinstance(raw, Mapping):
        hint = "policy: evolve, or policy: {default: evolve, drop_column: approve}"
        raise ProjectError(f"{where} must be a word or a mapping, not {raw!r}", hint=hint)
    named = {
        key: _read_policy(value, f"{where}.{key}")
        for key, value in read_mapping(raw, where).items()
    }
    default = named.pop("default", base.default)
    return Policies(default, {**base.kinds, **{_read_kind(k, where): v for k, v in named.items()}})


def _read_policy(raw: object, where: str) -> Policy:
    for policy in POLICIES:
        if raw == policy:
            return policy
    hint = list_choices("policies", str(raw), POLICIES)
    raise ProjectError(f'{where}: unknown policy "{raw}"', hint=hint)


def _read_kind(raw: str, where: str) -> ChangeKind:
    for kind in KINDS:
        if raw == kind:
            return kind
    hint = list_choices("kinds", raw, (*KINDS, "default"))
    raise ProjectError(f'{where}: unknown kind of change "{raw}"', hint=hint)
