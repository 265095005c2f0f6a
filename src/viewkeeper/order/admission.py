"""Which reported positions get a number: the rule of a registry, as pure functions.

Positions of one source come in the order in which its reporter sends them. One that is registered
is accepted again, in silence, because a reporter that got no answer sends again. One that is not
must lie above all that are: numbers are for ever, so nothing can be put before them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from viewkeeper.errors import OrderError
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.registry_protocol import Reporter


@dataclass(frozen=True, slots=True)
class Admission:
    """The positions to append, in order, and the number of the last one that was sent."""

    new: tuple[int, ...]
    n: int


@dataclass(frozen=True, slots=True)
class AdmissionRefusal:
    """A position that was never registered lies at or below one that is, or is about to be."""

    position: int
    registered: int


def admit_positions(
    sent: Sequence[int], numbers: Mapping[int, int], registered: int | None, last: int
) -> Admission | AdmissionRefusal:
    """Decide about positions of one source.

    `numbers` are those of registered positions, at least of all that are sent; `registered` is the
    greatest registered position of the source, `last` the greatest number of the group.

    >>> admit_positions([5, 8, 9], {5: 2}, 5, 3)
    Admission(new=(8, 9), n=5)
    >>> admit_positions([7], {5: 2, 8: 3}, 8, 3)
    AdmissionRefusal(position=7, registered=8)
    """
    known = dict(numbers)
    new: list[int] = []
    for position in sent:
        if position in known:
            continue
        if registered is not None and position <= registered:
            return AdmissionRefusal(position, registered)
        new.append(position)
        known[position] = last + len(new)
        registered = position
    return Admission(tuple(new), known[sent[-1]] if sent else 0)


def check_claimed(registry: str, group: str, ids: Sequence[GlobalId], reporter: Reporter) -> None:
    """An OrderError unless all ids are of the source, and for the group, that were claimed."""
    foreign = [each for each in ids if each.source != reporter.source]
    if foreign or reporter.group != group:
        what = f"id {foreign[0]}" if foreign else f'group "{group}"'
        claimed = f'source "{reporter.source}" in group "{reporter.group}"'
        raise OrderError(
            registry,
            f"{what} is not for the reporter of {claimed}",
            hint="claim every source, in every group, and report each with its own claim",
        )
