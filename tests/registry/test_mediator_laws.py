"""The mediator against a slow and obvious reference, under every order of events.

The reference knows everything that ever happens and goes through the order once, with plain lists.
Whatever comes when, and however much is taken at a time: what is taken is a prefix of what the
reference takes, nothing is taken before its sources were heard of, and in the end nothing waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.mediator import Mediator, OrderMark, ParentView, RegisteredBase, TakenIds
from viewkeeper.order.registry_protocol import OrderedId

BASES = ("b0", "b1", "b2")


@dataclass(frozen=True)
class Facts:
    """Everything that happens: the order, the bases read directly, the parents with their marks."""

    order: tuple[OrderedId, ...]
    direct: tuple[str, ...]
    parents: dict[str, frozenset[str]]
    marks: dict[str, tuple[OrderMark, ...]]


def random_facts(random: Random) -> Facts:
    """Positions have gaps; parents merge some of their ids into one state, which they then show."""
    at = dict.fromkeys(BASES, 0)
    order = []
    for n in range(1, random.randint(1, 14)):
        base = random.choice(BASES)
        at[base] += random.randint(1, 3)
        order.append(OrderedId(n, GlobalId(base, at[base])))
    direct = tuple(random.sample(BASES, random.randint(0, 2)))
    names = [f"p{i}" for i in range(random.randint(0 if direct else 1, 2))]
    parents = {name: frozenset(random.sample(BASES, random.randint(1, 3))) for name in names}
    marks = {name: random_marks(random, order, bases) for name, bases in parents.items()}
    return Facts(tuple(order), direct, parents, marks)


def random_marks(
    random: Random, order: list[OrderedId], bases: frozenset[str]
) -> tuple[OrderMark, ...]:
    own = [each.n for each in order if each.id.source in bases]
    marks, position, merging = [OrderMark(0, 0)], 0, False
    for n in own:
        position += 0 if merging else random.randint(1, 2)
        merging = n != own[-1] and random.random() < 0.25
        marks.append(OrderMark(n, position, shown=not merging))
    return tuple(marks)


def newest(marks: tuple[OrderMark, ...], n: int) -> OrderMark:
    return max((mark for mark in marks if mark.n <= n), key=lambda mark: mark.n)


def reference(facts: Facts) -> list[TakenIds]:
    """Go through the order; wherever all parents show a state, take what has come together."""
    at = dict.fromkeys((*facts.direct, *facts.parents), 0)
    found, held = [], []
    for each in facts.order:
        base = each.id.source
        if base in facts.direct or any(base in bases for bases in facts.parents.values()):
            held.append(each)
        if all(newest(marks, each.n).shown for marks in facts.marks.values()):
            to = {
                name: newest(marks, each.n).position
                for name, marks in facts.marks.items()
                if any(one.id.source in facts.parents[name] for one in held)
            }
            to |= {o.id.source: o.id.position for o in held if o.id.source in facts.direct}
            moves = {name: position for name, position in to.items() if position > at[name]}
            at |= moves
            if moves:
                ids = tuple(one.id for one in held)
                found.append(TakenIds(each.n, ids, moves, held[0].n))
            held = []
    return found


class Telling:
    """Facts, told to a mediator piece by piece."""

    def __init__(self, facts: Facts, random: Random) -> None:
        self.facts, self.random = facts, random
        self.mediator = Mediator()
        self.read = dict.fromkeys(facts.direct, 0)
        self.heard = dict.fromkeys(facts.parents, 0)
        for name in facts.direct:
            self.mediator.follow_source(name, RegisteredBase(name), 0)
        for name, bases in facts.parents.items():
            self.mediator.follow_source(name, ParentView(bases), 0)
            self.mediator.note_committed(name, facts.marks[name][:1], 0)

    def something(self) -> None:
        last = len(self.facts.order)
        match self.random.choice(["order", *self.read, *self.heard]):
            case "order":
                begin = self.random.randint(0, self.mediator.last_number)
                self.mediator.add_ordered(
                    self.facts.order[begin : begin + self.random.randint(1, 4)]
                )
            case name if name in self.read:
                self.read[name] += self.random.randint(0, 6)
                self.mediator.note_received(name, self.read[name])
            case name:
                self.commit(name, min(last, self.heard[name] + self.random.randint(0, 4)))

    def commit(self, name: str, reached: int) -> None:
        """A parent never stands between ids that it shows as one."""
        while not newest(self.facts.marks[name], reached).shown:
            reached += 1
        self.heard[name] = reached
        marks = [mark for mark in self.facts.marks[name] if mark.n <= reached]
        self.mediator.note_committed(name, marks[self.random.randint(0, 1) :], reached)

    def everything(self) -> None:
        self.mediator.add_ordered(self.facts.order)
        for name in self.read:
            self.mediator.note_received(name, 1_000)
        for name in self.heard:
            self.commit(name, len(self.facts.order))

    def check_heard(self, taken: TakenIds) -> None:
        """Every source that the taken ids concern had got there."""
        for id in taken.ids:
            if id.source in self.read:
                assert self.read[id.source] >= id.position
            for name, bases in self.facts.parents.items():
                if id.source in bases:
                    assert self.heard[name] >= next(o.n for o in self.facts.order if o.id == id)


@given(st.integers(0, 2**32))
def test_whatever_comes_when_the_same_is_taken(seed: int) -> None:
    random = Random(seed)
    facts = random_facts(random)
    telling = Telling(facts, random)
    taken: list[TakenIds] = []
    for _ in range(random.randint(0, 30)):
        telling.something()
        for each in telling.mediator.take_ids(random.randint(1, 4)):
            telling.check_heard(each)
            taken.append(each)
        if telling.mediator.next_wait is None:
            taken += telling.mediator.take_ids(1_000)
    expected = reference(facts)
    assert taken == expected[: len(taken)]
    telling.everything()
    taken += telling.mediator.take_ids(1_000)
    assert taken == expected
    assert telling.mediator.n == len(facts.order)
    assert telling.mediator.next_wait is None


@given(st.integers(0, 2**32))
def test_after_a_restart_it_goes_on_where_it_was(seed: int) -> None:
    """Number and positions are all that must be kept."""
    random = Random(seed)
    facts = random_facts(random)
    first = Telling(facts, random)
    first.everything()
    taken = first.mediator.take_ids(random.randint(0, 5))
    second = Telling(facts, random)
    second.mediator = Mediator(taken[-1].n if taken else 0)
    at: dict[str, int] = {}
    for each in taken:
        at |= each.moves
    for name in facts.direct:
        second.mediator.follow_source(name, RegisteredBase(name), at.get(name, 0))
    for name, bases in facts.parents.items():
        second.mediator.follow_source(name, ParentView(bases), at.get(name, 0))
    second.everything()
    assert [*taken, *second.mediator.take_ids(1_000)] == reference(facts)
