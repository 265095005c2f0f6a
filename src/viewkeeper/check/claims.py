"""Claims: the vectors that states say they stand for, compared with what the view is there.

A claim is where the search begins, not what it ends with. If the view over every claimed vector is
the state shown, and the vectors grow, unit by whole unit, then the claims themselves are the proof
and nothing need be searched. A claim that is wrong is a fault of its own: the state may be legal
all the same, at another vector than its reader was told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from viewkeeper.check.history.recorded_history import RecordedHistory
from viewkeeper.check.levels import CheckAnswer
from viewkeeper.check.recomputation import Recomputation
from viewkeeper.check.serial_schedules import Point, Schedule, is_within
from viewkeeper.check.vector_search import find_steps


class Fault(Enum):
    """What is wrong with a claim."""

    IMPOSSIBLE = "impossible"
    """It names a source or a number of transactions that the history has not."""
    WRONG = "wrong"
    """The view there is not what was shown."""
    HALVED = "halved"
    """It has a global transaction in part."""
    BACKWARDS = "backwards"
    """It lacks transactions that an earlier claim has."""


@dataclass(frozen=True, slots=True)
class ClaimFault:
    """A claim that is wrong: of which state, and how."""

    state: int
    fault: Fault
    point: Point | None = None
    earlier: int | None = None
    """With BACKWARDS: the state whose claim has more."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What the claims of a history are worth; `points` are the vectors, None where none is right.

    A point that is halved or goes backwards is right for its own state, and no part of a chain.
    """

    points: tuple[Point | None, ...]
    faults: tuple[ClaimFault, ...]

    @property
    def chain(self) -> tuple[Point, ...] | None:
        """The vectors of all states, if they are a chain of atomic ones."""
        if self.faults:
            return None
        found = tuple(point for point in self.points if point is not None)
        return found if len(found) == len(self.points) else None


def read_claims(
    history: RecordedHistory, views: Recomputation, schedule: Schedule, numbers: Sequence[int]
) -> Claims:
    """Compare every claim with the view there; `numbers` are the values of the states."""
    points: list[Point | None] = []
    faults: list[ClaimFault] = []
    latest: tuple[int, Point] | None = None
    for index, state in enumerate(history.states):
        points.append(None)
        if state.claim is None:
            continue
        point = schedule.point_of(state.claim)
        if point is None:
            faults.append(ClaimFault(index, Fault.IMPOSSIBLE))
        elif views.number_at(point) != numbers[index]:
            faults.append(ClaimFault(index, Fault.WRONG, point))
        else:
            points[-1] = point
            if schedule.halved_unit(point) is not None:
                faults.append(ClaimFault(index, Fault.HALVED, point))
            if latest is not None and not is_within(latest[1], point):
                faults.append(ClaimFault(index, Fault.BACKWARDS, point, latest[0]))
            latest = index, point
    return Claims(tuple(points), tuple(faults))


def prove_steps(
    views: Recomputation,
    schedule: Schedule,
    chain: tuple[Point, ...],
    numbers: Sequence[int],
    limit: int,
) -> bool:
    """Whether single units lead from each claimed vector to the next and show nothing else."""
    points = (schedule.start, *chain, schedule.final)
    values = (numbers[0], *numbers, numbers[-1])
    if (
        views.number_at(schedule.start) != numbers[0]
        or views.number_at(schedule.final) != numbers[-1]
    ):
        return False
    for (one, shown), (other, following) in pairwise(zip(points, values, strict=True)):
        if one == other or any(further == other for _, further in schedule.units_after(one)):
            continue
        states = [shown] if shown == following else [shown, following]
        if find_steps(views, schedule, states, limit, (one, other)).answer is not CheckAnswer.YES:
            return False
    return True
