"""The sweep plan: in which order a set of changes asks which relation, as pure data.

Up pass, leaves to root: the partial rows at a node look up its parent. Down pass, root to leaves:
partial rows that still lack a relation look it up through its parent. A view of m relations has
m - 1 edges, each walked once up and once down, so a plan has exactly 2(m - 1) steps, whatever the
number of changes. Which steps a change takes part in depends only on the place it comes from.

Any order will do in which partial rows have a place before they ask from there, and every such
order has the same steps. Where unique keys are known, rows do not multiply before they have met the
places that may hide them, of which they find one row each: a nation that moves to another region
asks for that region before its suppliers, and if the view hides both regions, for nothing else.

A keyed place has one step more, taken by its own changes alone: as soon as they have met all places
that its ON reads, they ask for the rows of the keyed place itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from viewkeeper.view.definition import ViewDefinition
from viewkeeper.view.expression import Expression, needs_spark, places_of
from viewkeeper.view.join_tree import (
    FanOut,
    JoinKey,
    JoinTree,
    KeyedMatch,
    comparison_of,
    fan_out_of,
    join_tree_of,
)
from viewkeeper.view.local_condition import LocalCondition, local_conditions_of
from viewkeeper.view.moving_window import MovingWindow, moving_window_of


@dataclass(frozen=True, slots=True)
class SweepStep:
    """Look up `target` by the key columns that partial rows have at `via`.

    `origins` are the places whose changes need this step. With a `match`, partial rows meet a keyed
    place; without one they meet its rows as those of any other place, coming from below it.
    """

    via: int
    target: int
    on: tuple[JoinKey, ...]
    origins: frozenset[int]
    match: KeyedMatch | None = None
    window: MovingWindow | None = None
    """What the changes of `via` can touch at the target, where they only move a window of it."""

    @property
    def is_own(self) -> bool:
        """Whether changes of a keyed place ask for its own rows."""
        return self.target in self.origins

    @property
    def asks_somebody(self) -> bool:
        """Whether it makes a lookup; the changes of a unique key say themselves what was there."""
        return not (self.is_own and self.match is not None and self.match.join.unique)


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """Everything that a sweep needs to know of a view."""

    view: ViewDefinition
    tree: JoinTree
    steps: tuple[SweepStep, ...]
    conditions: tuple[Expression, ...]
    """What the kernel checks, each as soon as its places are there."""
    late: tuple[Expression, ...]
    """What only Spark can check, on the finished rows."""

    def decidable_conditions(
        self,
        covered: frozenset[int],
        before: frozenset[int] | None,
        origin: int | None = None,
    ) -> list[Expression]:
        """The conditions that can be checked at `covered` and could not at `before`.

        Constant conditions become decidable at a change's own place (`before` is None). What comes
        from an `origin` below a left place also checks the ON of that left place.
        """
        reads = [(condition, places_of(condition)) for condition in self.conditions]
        for match in () if origin is None else self.tree.matches_above(origin):
            place = {match.place.index}
            reads += [(condition, places_of(condition) | place) for condition in match.conditions]
        ready = [(condition, places) for condition, places in reads if places <= covered]
        return [c for c, places in ready if before is None or not places <= before]

    def local_conditions(
        self, step: SweepStep, can_fail: Callable[[Expression], bool]
    ) -> tuple[LocalCondition, ...]:
        """What rows of a step's target must meet to be of any use to the partial rows that ask.

        At a left place a condition of the view may be met where nothing matches, so only those of
        its ON count, and only where it is met as a keyed place. Conditions are checked in their
        order, and a row for which one fails leaves the query without a value. So a condition after
        one that can fail hides no row from it.
        """
        if step.match is not None:
            conditions: Sequence[Expression] = step.match.own_conditions
        elif self.view.places[step.target].keyed is not None:
            return ()
        else:
            conditions = self.conditions
        sure = takewhile(lambda condition: not can_fail(condition), conditions)
        return local_conditions_of(c for c in sure if places_of(c) == {step.target})

    def match_at(self, place: int) -> KeyedMatch | None:
        """How a keyed place is met; None for any other."""
        return next((edge.match for edge in self.tree.edges if edge.child == place), None)

    def steps_from(self, origin: int) -> tuple[SweepStep, ...]:
        """The m - 1 steps of a sweep from one place, lower places first.

        In a chain that is SWEEP's order: first all to the left, then all to the right. Only for
        views without keyed places.
        """
        assert not any(edge.match for edge in self.tree.edges), "a keyed place is met downwards"
        return tuple(_walk_tree(self.tree, origin, origin, None))


def _walk_tree(tree: JoinTree, origin: int, at: int, came_from: int | None) -> list[SweepStep]:
    below = [(e.child, e.on) for e in tree.edges if e.parent == at]
    above = [(e.parent, tuple(k.reversed_key() for k in e.on)) for e in tree.edges if e.child == at]
    steps = []
    for target, on in sorted(below + above, key=lambda neighbour: neighbour[0]):
        if target != came_from:
            steps.append(SweepStep(at, target, on, frozenset({origin})))
            steps += _walk_tree(tree, origin, target, at)
    return steps


def sweep_plan_of(view: ViewDefinition) -> SweepPlan:
    tree = join_tree_of(view)
    everywhere = frozenset(range(len(view.places)))
    up = [
        SweepStep(
            e.child, e.parent, tuple(k.reversed_key() for k in e.on), tree.subtree_of(e.child)
        )
        for e in reversed(tree.edges)
    ]
    down = [
        SweepStep(e.parent, e.child, e.on, everywhere - tree.subtree_of(e.child), e.match)
        for e in tree.edges
    ]
    steps = _filters_first(view, [_with_window(view, step) for step in up + down])
    for match in (edge.match for edge in tree.edges if edge.match is not None):
        assert not any(map(needs_spark, match.conditions)), "the kernel evaluates all of an ON"
        steps = _with_own_step(steps, match)
    cycles = tuple(comparison_of(equality) for equality in tree.residual)
    conditions = cycles + tuple(p for p in view.predicates if not needs_spark(p))
    late = tuple(p for p in view.predicates if needs_spark(p))
    return SweepPlan(view, tree, tuple(steps), conditions, late)


def _filters_first(view: ViewDefinition, steps: list[SweepStep]) -> list[SweepStep]:
    """The steps in an order that may be taken, in which rows are hidden before they multiply."""
    if not any(place.unique for place in view.places) or any(step.window for step in steps):
        return steps
    hiding = {place for predicate in view.predicates for place in _only_place(predicate)}
    fan_outs = [fan_out_of(view, step.on) for step in steps]
    found_from = _places_found(view, steps, fan_outs)
    covered = {place.index: {place.index} for place in view.places}
    found = {place: {*places} for place, places in found_from.items()}
    # The places from which rows can still be hidden by a place of which each finds one row.
    filtered = {origin for origin in covered if (found[origin] - covered[origin]) & hiding}
    earlier = [_steps_before(step, steps) for step in steps]
    left, ordered = set(range(len(steps))), list[SweepStep]()

    def cost_of(at: int) -> tuple[bool, FanOut, bool, int]:
        waits = fan_outs[at] is not FanOut.ONE and not filtered.isdisjoint(steps[at].origins)
        return waits, fan_outs[at], steps[at].target not in hiding, at

    while left:
        taken = min((at for at in left if not earlier[at]), key=cost_of)
        left.remove(taken)
        for at in left:
            earlier[at].discard(taken)
        target = steps[taken].target
        for origin in steps[taken].origins:
            covered[origin].add(target)
            found[origin] |= found_from[target]
            if (found[origin] - covered[origin]) & hiding:
                filtered.add(origin)
            else:
                filtered.discard(origin)
        ordered.append(steps[taken])
    return ordered


def _only_place(predicate: Expression) -> frozenset[int]:
    """The place that a local condition reads; none for any other."""
    places = places_of(predicate)
    return places if len(places) == 1 else frozenset()


def _places_found(
    view: ViewDefinition, steps: Sequence[SweepStep], fan_outs: Sequence[FanOut]
) -> dict[int, set[int]]:
    """The places that a row of each place finds, one row of each at most, its own among them."""
    near: dict[int, set[int]] = {place.index: set() for place in view.places}
    for step, fan_out in zip(steps, fan_outs, strict=True):
        if fan_out is FanOut.ONE:
            near[step.via].add(step.target)
    found = {}
    for start in near:
        reached, frontier = {start}, [start]
        while frontier:
            new = near[frontier.pop()] - reached
            reached |= new
            frontier += new
        found[start] = reached
    return found


def _steps_before(step: SweepStep, steps: Sequence[SweepStep]) -> set[int]:
    """The numbers of the steps that rows which take both can only take before this one.

    The step may meet a keyed place, or go on below one, whose own changes have no rows of it before
    they have met all places that its ON reads.
    """
    above = [each.match for each in steps if each.match and each.target == step.via]
    met = [match for match in above if match.join.parent != step.target]
    met += [step.match] if step.match is not None else []
    needed = {place for match in met for place in match.needed_places}
    return {
        at
        for at, other in enumerate(steps)
        if other.target in needed or (other.target == step.via and other.via != step.target)
    }


def _with_window(view: ViewDefinition, step: SweepStep) -> SweepStep:
    """The step, with the window that its changes move, if they do nothing else."""
    if step.on or step.match is not None or step.origins != {step.via}:
        return step
    window = moving_window_of(view, step.via)
    is_met = window is not None and window.target == step.target
    return replace(step, window=window) if is_met else step


def _with_own_step(steps: list[SweepStep], match: KeyedMatch) -> list[SweepStep]:
    """The steps, and the one of a keyed place's own changes where it can first be taken."""
    place, missing = match.place.index, set(match.needed_places)
    at = 0
    while missing:
        step = steps[at]
        missing -= {step.target} if place in step.origins and not step.is_own else set()
        at += 1
    own = SweepStep(match.join.parent, place, match.on, frozenset({place}), match)
    return [*steps[:at], own, *steps[at:]]
