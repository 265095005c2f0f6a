"""What a registry keeps, and what may go: the rule, as pure functions.

An order is for its members, and each of them reads it once, from where it stands. So the ids of a
group may go when all its members have committed them, except the last of every source, behind which
its next report must lie. A closed group may go when every member that is still there has gone on to
a later one.

Two windows are kept all the same. Of an order, the newest ids: a report that got no answer is sent
again. Of groups, those that closed lately: who left may come back and go on where it was. Whoever
comes from before that - a warehouse that was restored from a backup, a member that was gone for a
long time - is told so and loads its views again; nobody waits for what will never be there.

A member that is there and takes nothing holds everything back, as a database keeps the log of a
reader that is away; `leave` ends that.

Names are shown in a terminal and written into ids and error messages. So they have no line breaks,
no characters that change the direction of writing or that are not seen, and one spelling: two
names that look the same letter by letter are the same.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from viewkeeper.errors import RegistryError
from viewkeeper.order.registry_protocol import MemberFacts

ORDER_KEPT = 10_000
"""As many of the newest ids of a group are kept, whoever has committed them."""
GROUPS_KEPT = 100
"""For as many regroupings a closed group is kept, whoever has gone on."""
STEP = 1_000
"""Fewer ids than this are not worth a change."""
BATCH = 10_000
"""More ids than this are not removed at once."""


@dataclass(frozen=True, slots=True)
class RetentionWindows:
    """How much is kept at least."""

    order: int = ORDER_KEPT
    groups: int = GROUPS_KEPT
    step: int = STEP


def order_cut(reached: Iterable[int], last: int, trimmed: int, windows: RetentionWindows) -> int:
    """The number up to which the ids of an open group may go; what it is already if none may.

    >>> order_cut([70, 50], last=80, trimmed=10, windows=RetentionWindows(order=40, step=5))
    40
    >>> order_cut([70, 12], last=80, trimmed=10, windows=RetentionWindows(order=40, step=5))
    10
    """
    cut = min(min(reached, default=0), last - windows.order, trimmed + BATCH)
    return cut if cut - trimmed >= windows.step else trimmed


def is_done(
    opened: int, closed: int, now: int, places: Iterable[int | None], windows: RetentionWindows
) -> bool:
    """Whether a group that was opened and closed by these regroupings may go.

    `now` is the number of the last regrouping; `places` says of every member of the group that is
    still there which regrouping opened the group that it is in, None where that is not known.

    >>> is_done(opened=3, closed=5, now=120, places=[6, 9], windows=RetentionWindows())
    True
    >>> is_done(opened=3, closed=5, now=120, places=[6, 3], windows=RetentionWindows())
    False
    """
    gone_on = all(place is not None and place > opened for place in places)
    return gone_on and closed + windows.groups <= now


CHARACTERS_MAX = 500


def check_names(
    registry: str, member: str, facts: MemberFacts, known: Mapping[str, MemberFacts]
) -> None:
    """A RegistryError for a name that cannot be; those that are there already stay."""
    there = {name for each, said in known.items() for name in (each, *_names_in(said))}
    for name in (member, *_names_in(facts)):
        if name in there or is_fit(name):
            continue
        raise RegistryError(
            registry,
            f"a member or source cannot be called {name[:50]!a}",
            detail="names are printable, of at most 500 characters, in Unicode's composed form",
            hint="name the project with `registry: member:`, a source with its option `global`",
        )


def _names_in(facts: MemberFacts) -> tuple[str, ...]:
    return (*facts.sources, *facts.parents, *([facts.together] if facts.together else []))


def is_fit(name: str) -> bool:
    r"""
    >>> is_fit("north sales"), is_fit("a\nb"), is_fit("e\u0301"), is_fit("\u202ea"), is_fit(" a")
    (True, False, False, False, False)
    """
    return (
        0 < len(name) <= CHARACTERS_MAX
        and name.isprintable()
        and name == name.strip()
        and unicodedata.is_normalized("NFC", name)
    )
