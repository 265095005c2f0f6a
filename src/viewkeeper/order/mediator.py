"""The mediator of one member: it takes ids in the registry's order, each when it can.

Ding, Zhang, Rundensteiner, Scalable Maintenance in Distributed Data Warehousing Environment (2000),
figure 9. Two queues: what the registry has ordered (UMQ) and what has come from the sources (RMQ).
An id is taken when every source that it concerns has got there: a base when its log has been read
up to the id's position, a parent view when the parent has committed all its own ids up to this one.
An id that concerns nothing of ours passes.

It is a state machine without clock and without I/O: the engine feeds it from databases and a real
registry, the simulator from a seeded world. Of the RMQ it keeps only how far each source has come;
the rows stay where they are until a batch reads them.

What must hold: ids are taken in the order of their numbers, none twice; positions never go back; of
a parent only states are taken that it shows, so ids which a parent showed as one are taken as one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.registry_protocol import OrderedId


@dataclass(frozen=True, slots=True)
class RegisteredBase:
    """A source whose transactions are registered: a database, or a view of another group."""

    name: str
    """Its global name, as in ids."""


@dataclass(frozen=True, slots=True)
class ParentView:
    """Views of another member of the group, and the bases behind them, by their global names."""

    bases: frozenset[str]


Upstream = RegisteredBase | ParentView


@dataclass(frozen=True, slots=True)
class OrderMark:
    """A parent's position that stands for everything up to number `n` of the order.

    It is not `shown` where the parent went on in one state with what follows.
    """

    n: int
    position: int
    shown: bool = True


@dataclass(frozen=True, slots=True)
class TakenIds:
    """Ids that became one transaction of ours: up to number `n`, with where our sources go to.

    Mostly one id; several only where a parent shows them as one state. Then whoever reads us has to
    know that we show nothing from number `first` on until n: a mark there that is not shown.
    """

    n: int
    ids: tuple[GlobalId, ...]
    moves: Mapping[str, int]
    first: int


@dataclass(frozen=True, slots=True)
class OrderWait:
    """The next id, and the first of our sources that has not got there."""

    next: OrderedId
    source: str


@dataclass(frozen=True, slots=True)
class WaitRules:
    """What an id waits for: all of it, except where a simulation shows why."""

    bases: bool = True
    parents: bool = True
    shown_states: bool = True

    def is_awaited(self, upstream: Upstream) -> bool:
        """Whether an id waits for a source that has not got there."""
        return self.bases if isinstance(upstream, RegisteredBase) else self.parents


ALL_RULES = WaitRules()

Agreement = Callable[[Mapping[str, int]], bool]


@dataclass(slots=True)
class _Received:
    """What has come from one source."""

    reached: int = 0
    """A base: its log was read up to this position. A parent: everything up to this number that
    concerns it is committed there."""
    marks: list[OrderMark] = field(default_factory=list)
    hidden: bool = False
    """Whether a mark may be one that is not shown."""

    def mark_at(self, n: int) -> OrderMark | None:
        """The newest mark of a parent at or before a number."""
        found = bisect_right(self.marks, n, key=lambda mark: mark.n)
        return self.marks[found - 1] if found else None

    def has_state(self, n: int) -> bool:
        """Whether a state as of a number is known; a parent without a mark is not placed yet."""
        mark = self.mark_at(n) if self.hidden else None
        return mark is None or mark.shown

    def add_marks(self, marks: Iterable[OrderMark], n: int) -> None:
        """Add marks; of those at or before number n only the newest can matter."""
        newest = self.marks[-1].n if self.marks else -1
        self.marks += [mark for mark in marks if mark.n > newest]
        old = bisect_right(self.marks, n, key=lambda mark: mark.n) - 1
        if old > 0:
            del self.marks[:old]
        self.hidden = not all(mark.shown for mark in self.marks)


class Mediator:
    """The queues of one member."""

    def __init__(
        self, n: int = 0, agrees: Agreement | None = None, rules: WaitRules = ALL_RULES
    ) -> None:
        """`n`: the number up to which the order is taken."""
        self.n = n
        self._rules = rules
        self.positions: dict[str, int] = {}
        """Where our sources stand as of number n; of a parent that has not got there, nothing."""
        self.agrees = agrees
        """Whether our sources show one state of each base at some positions. Members of a young
        group may stand apart; where a parent has gone ahead of the order by itself, all ids up to
        where everybody is in step are taken as one. From then on the order keeps them so, and it is
        None."""
        self._upstream: dict[str, Upstream] = {}
        self._received: dict[str, _Received] = {}
        self._ordered: deque[OrderedId] = deque()
        self._by_base: dict[str, tuple[str, ...]] = {}
        """The sources that an id of a base concerns, as far as it was asked for."""

    @property
    def last_number(self) -> int:
        """The greatest number that was heard of."""
        return self._ordered[-1].n if self._ordered else self.n

    @property
    def queued_ids(self) -> Sequence[OrderedId]:
        """What is ordered and not taken (UMQ)."""
        return self._ordered

    def queued_of(self, base: str) -> list[int]:
        """The positions of a base that are ordered and not taken."""
        return [each.id.position for each in self._ordered if each.id.source == base]

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that are taken into account."""
        return tuple(self._upstream)

    def has_queued(self, base: str, position: int) -> bool:
        """Whether an id of a base at or beyond a position is ordered and not taken."""
        ids = (each.id for each in self._ordered)
        return any(id.source == base and id.position >= position for id in ids)

    # In

    def follow_source(self, source: str, upstream: Upstream, position: int | None = None) -> None:
        """Take part of a source into account, from a position on if one is known.

        What a base has registered up to that position is contained in it. Of a parent without a
        position, it is where the parent stands as of number n; its first mark is of number 0.
        """
        if type(self._upstream.get(source)) is not type(upstream):
            # What was received under another meaning, a position or a number, says nothing now.
            self._received[source] = _Received()
        self._upstream[source] = upstream
        self._by_base.clear()
        if position is not None:
            self.positions[source] = position
        self._place_parents()

    def forget_source(self, source: str) -> None:
        """A source is not read any more."""
        for facts in (self._upstream, self._received, self.positions):
            facts.pop(source, None)
        self._by_base.clear()

    def add_ordered(self, ids: Iterable[OrderedId]) -> None:
        """The registry has ordered these; what is known already is passed over."""
        for each in ids:
            if each.n > self.last_number:
                assert each.n == self.last_number + 1, "numbers have no gaps"
                self._ordered.append(each)

    def correct_ordered(self, ids: Iterable[OrderedId]) -> None:
        """The registry says this now of numbers that are queued: some ids may be void."""
        now = {each.n: each for each in ids}
        self._ordered = deque(now.get(each.n, each) for each in self._ordered)

    def note_received(self, source: str, position: int) -> None:
        """The log of a base has been read up to a position."""
        got = self._received[source]
        got.reached = max(got.reached, position)

    def note_committed(self, source: str, marks: Iterable[OrderMark], reached: int) -> None:
        """A parent has committed these marks, and everything up to number `reached`.

        Every number that it took has a mark, or a state that has more would pass for this one.
        """
        got = self._received[source]
        got.add_marks(marks, self.n)
        got.reached = max(got.reached, reached, got.marks[-1].n if got.marks else 0)
        self._place_parents()

    # Out

    def take_ids(self, limit: int) -> list[TakenIds]:
        """What can be taken now, in order, in at most so many transactions."""
        if not self._is_placed():
            return []
        taken: list[TakenIds] = []
        held: list[OrderedId] = []
        whole: list[OrderedId] = []
        seen = passed = 0
        for each in self._ordered:
            if len(taken) >= limit or self._missing_source(each) is not None:
                break
            seen += 1
            if self._sources_of(each.id):
                held.append(each)
            if not self._is_shown(each.n):
                continue
            if self.agrees is not None:
                # Until our sources agree nothing is taken but all of it, as one.
                passed, whole = seen, [*held, each]
                continue
            passed = seen
            taken += self._advance_to(each.n, held)
            held = []
        if self.agrees is not None:
            taken, passed = self._take_first(whole, passed)
        for _ in range(passed):
            self._ordered.popleft()
        self._place_parents()
        return taken

    def _is_placed(self) -> bool:
        """Whether it is known where all parents stand in a group that is young.

        Those that have been in step with us stay so, and there is nothing to agree on.
        """
        if self.agrees is None:
            return True
        parents = [
            (position, self._received[source].mark_at(self.n))
            for source, position in self.positions.items()
            if isinstance(self._upstream[source], ParentView)
        ]
        if any(mark is None for _, mark in parents):
            return False
        in_step = all(mark is not None and mark.position == at for at, mark in parents)
        if in_step and self.agrees(self.positions):
            self.agrees = None
        return True

    def _take_first(self, whole: Sequence[OrderedId], passed: int) -> tuple[list[TakenIds], int]:
        """The first transaction of a group, once our sources agree with it; and how much that
        takes from the queue."""
        if not whole or self.agrees is None:
            return [], 0
        *held, last = whole
        moves = self._moves_of(last.n, [each.id for each in held])
        if not self.agrees({**self.positions, **moves}):
            return [], 0
        self.agrees = None
        return self._advance_to(last.n, held), passed

    def _advance_to(self, n: int, held: Sequence[OrderedId]) -> list[TakenIds]:
        """Go to a number with these ids; nothing if none of them moves a source."""
        self.n = n
        ids = tuple(each.id for each in held)
        moves = self._moves_of(n, ids)
        self.positions.update(moves)
        return [TakenIds(n, ids, moves, held[0].n)] if moves else []

    @property
    def next_wait(self) -> OrderWait | None:
        """Why the next id cannot be taken; None if there is none, or nothing is in its way."""
        for each in self._ordered:
            missing = self._missing_source(each)
            if missing is not None:
                return OrderWait(each, missing)
            if self._is_shown(each.n):
                return None
        return None

    def is_held_by(self, source: str) -> bool:
        """Whether the next id waits for a source."""
        wait = self.next_wait
        return wait is not None and wait.source == source

    # Rules

    def _sources_of(self, id: GlobalId) -> tuple[str, ...]:
        """The sources that an id changes."""
        found = self._by_base.get(id.source)
        if found is None:
            behind = (name for name, each in self._upstream.items() if _is_behind(each, id))
            found = self._by_base[id.source] = tuple(behind)
        return found

    def _missing_source(self, each: OrderedId) -> str | None:
        """The first source that an id concerns and that has not got there."""
        for source in self._sources_of(each.id):
            there = self._received[source].reached
            if isinstance(self._upstream[source], RegisteredBase):
                there, needed = max(there, self.positions.get(source, 0)), each.id.position
            else:
                needed = each.n
            if there < needed:
                return source if self._rules.is_awaited(self._upstream[source]) else None
        return None

    def _is_shown(self, n: int) -> bool:
        """Whether all parents show a state as of a number."""
        states = (received.has_state(n) for received in self._received.values())
        return not self._rules.shown_states or all(states)

    def _moves_of(self, n: int, ids: Sequence[GlobalId]) -> dict[str, int]:
        """Where the sources go with these ids, the last of which has at most this number.

        Only those that the ids concern: where a group begins, a parent may be ahead of where it
        stands for us, and what derives from the same bases must follow together with it.
        """
        found: dict[str, int] = {}
        for id in ids:
            for source in self._sources_of(id):
                if isinstance(self._upstream[source], RegisteredBase):
                    found[source] = id.position
                else:
                    mark = self._received[source].mark_at(n)
                    found[source] = mark.position if mark else 0
        here = self.positions
        return {name: to for name, to in found.items() if name in here and to > here[name]}

    def _place_parents(self) -> None:
        """Parents without a position get the one that they have as of number n."""
        for source, upstream in self._upstream.items():
            if isinstance(upstream, ParentView) and source not in self.positions:
                mark = self._received[source].mark_at(self.n)
                if mark is not None and mark.shown and self._received[source].reached >= self.n:
                    self.positions[source] = mark.position


def _is_behind(upstream: Upstream, id: GlobalId) -> bool:
    """Whether an id changes what a source gives."""
    if isinstance(upstream, RegisteredBase):
        return id.source == upstream.name
    return id.source in upstream.bases
