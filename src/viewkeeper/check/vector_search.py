"""Finding vectors for states: which are legal, which chain they follow, whether nothing is skipped.

All three are searches over vectors, never over schedules:

- *legal*: go through all vectors until every state has one. Transactions that the view does not see
  make no difference, so one position stands for all positions of a source with the same content.
- *ordered*: a node is a vector and the number of states that a chain up to it accounts for. A state
  is taken at the first vector that matches it: whatever follows from a later one follows from it.
- *complete*: a node is a vector and the state that is shown there. One unit leads to a vector with
  the same value, or with the next state's.

Neighbouring states that are equal count as one. A search visits a node once, furthest states first
and then smallest vectors, and gives up beyond its limit: then the answer is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import product

from viewkeeper.check.levels import CheckAnswer
from viewkeeper.check.recomputation import Recomputation
from viewkeeper.check.serial_schedules import Point, Schedule, is_within

Node = tuple[int, Point]
"""How many states are accounted for, or which one is shown, and the vector."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found.

    `path` is the way to the goal, if it was reached. `reach` is the furthest number of states, and
    `frontier` the vectors of the nodes that had it: where a search failed, and why.
    """

    answer: CheckAnswer
    path: tuple[Node, ...]
    reach: int
    frontier: tuple[Point, ...]


def find_legal(
    views: Recomputation, schedule: Schedule, wanted: Iterable[int], limit: int
) -> tuple[CheckAnswer, set[int]]:
    """Whether every wanted value is the view's over some vector; those that are not found."""
    missing = {number for number in wanted if number not in views.values_at}
    if not missing:
        return CheckAnswer.YES, missing
    ranges = [views.distinct_positions(s, n) for s, n in enumerate(schedule.final)]
    for visited, point in enumerate(product(*ranges)):
        if visited >= limit:
            return CheckAnswer.UNKNOWN, missing
        missing.discard(views.number_at(point))
        if not missing:
            return CheckAnswer.YES, missing
    return CheckAnswer.NO, missing


def find_chain(views: Recomputation, schedule: Schedule, states: list[int], limit: int) -> Search:
    """A growing chain of atomic vectors, one for each state."""

    def following(node: Node) -> Iterator[Node]:
        taken, point = node
        if views.number_at(point) == states[taken]:
            yield taken + 1, point
        else:
            for _, further in schedule.units_after(point):
                yield taken, further

    start = (0, schedule.start)
    return _search_nodes(start, following, lambda node: node[0] == len(states), limit)


def find_steps(
    views: Recomputation,
    schedule: Schedule,
    states: list[int],
    limit: int,
    ends: tuple[Point, Point] | None = None,
) -> Search:
    """A path in single units that shows exactly the states, from the first vector to the last.

    Neighbouring states differ. `ends` bounds the path, by default to the whole schedule.
    """
    begin, end = ends or (schedule.start, schedule.final)
    last = len(states) - 1

    def following(node: Node) -> Iterator[Node]:
        shown, point = node
        for _, further in schedule.units_after(point):
            if is_within(further, end):
                value = views.number_at(further)
                if value == states[shown]:
                    yield shown, further
                elif shown < last and value == states[shown + 1]:
                    yield shown + 1, further

    if views.number_at(begin) != states[0]:
        return Search(CheckAnswer.NO, (), 0, ())
    return _search_nodes((0, begin), following, lambda node: node == (last, end), limit)


def _search_nodes(
    start: Node,
    following: Callable[[Node], Iterator[Node]],
    is_goal: Callable[[Node], bool],
    limit: int,
) -> Search:
    before: dict[Node, Node | None] = {start: None}
    waiting = [(-start[0], sum(start[1]), start)]
    while waiting:
        node = heappop(waiting)[2]
        if is_goal(node):
            return Search(CheckAnswer.YES, _path_to(node, before), node[0], (node[1],))
        if len(before) > limit:
            return _search_failure(CheckAnswer.UNKNOWN, before)
        for found in following(node):
            if found not in before:
                before[found] = node
                heappush(waiting, (-found[0], sum(found[1]), found))
    return _search_failure(CheckAnswer.NO, before)


def _search_failure(answer: CheckAnswer, before: dict[Node, Node | None]) -> Search:
    reach = max(taken for taken, _ in before)
    return Search(answer, (), reach, tuple(p for taken, p in before if taken == reach))


def _path_to(node: Node | None, before: dict[Node, Node | None]) -> tuple[Node, ...]:
    path = list[Node]()
    while node is not None:
        path.append(node)
        node = before[node]
    return tuple(reversed(path))
