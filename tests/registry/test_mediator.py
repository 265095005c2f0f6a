"""The mediator, rule by rule, and Example 4 of the paper with all its messages.

Ding, Zhang, Rundensteiner (2000), figure 9 and Example 4: two views receive the updates of two
bases in different orders and take them in the registry's, and a third one takes each id when both
of them have. What could make it wait for ever is tried too: nothing may be lost by the order in
which things come.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.mediator import (
    Mediator,
    OrderMark,
    OrderWait,
    ParentView,
    RegisteredBase,
    TakenIds,
)
from viewkeeper.order.registry_protocol import OrderedId

BOTH = frozenset({"B1", "B2"})


def parse_id(text: str) -> GlobalId:
    """`source@position`, as ids are written."""
    source, _, position = text.rpartition("@")
    return GlobalId(source, int(position))


def order(*ids: str, after: int = 0) -> list[OrderedId]:
    """Ids, in the registry's order."""
    return [OrderedId(after + n, parse_id(id)) for n, id in enumerate(ids, 1)]


def taken(n: int, *ids: str, **moves: int) -> TakenIds:
    """Ids whose numbers follow each other; mostly one."""
    return TakenIds(n, tuple(map(parse_id, ids)), moves, n + 1 - len(ids))


def over_bases(**positions: int) -> Mediator:
    mediator = Mediator()
    for name, position in positions.items():
        mediator.follow_source(name, RegisteredBase(name), position)
    return mediator


def over_parents(*names: str, n: int = 0) -> Mediator:
    """Over views that derive from B1 and B2 and stand at position 0."""
    mediator = Mediator(n)
    for name in names:
        mediator.follow_source(name, ParentView(BOTH), 0)
        mediator.note_committed(name, [OrderMark(0, 0)], 0)
    return mediator


class TestExample4:
    """V0 = V1 join V2, both over B1 and B2; the registry orders 11, then 21."""

    ORDER = order("B1@1", "B2@1")

    def test_v1_receives_in_the_same_order(self) -> None:
        v1 = over_bases(B1=0, B2=0)
        v1.note_received("B1", 1)
        assert v1.take_ids(9) == []
        v1.add_ordered(self.ORDER[:1])
        assert v1.take_ids(9) == [taken(1, "B1@1", B1=1)]
        v1.note_received("B2", 1)
        v1.add_ordered(self.ORDER)
        assert v1.take_ids(9) == [taken(2, "B2@1", B2=1)]

    def test_v2_receives_the_other_way_round_and_waits(self) -> None:
        v2 = over_bases(B1=0, B2=0)
        v2.note_received("B2", 1)
        v2.add_ordered(self.ORDER)
        assert v2.take_ids(9) == []
        assert v2.next_wait == OrderWait(self.ORDER[0], "B1")
        v2.note_received("B1", 1)
        assert v2.take_ids(9) == [taken(1, "B1@1", B1=1), taken(2, "B2@1", B2=1)]

    def test_v0_takes_an_id_when_both_have(self) -> None:
        v0 = over_parents("V1", "V2")
        v0.add_ordered(self.ORDER)
        assert v0.next_wait == OrderWait(self.ORDER[0], "V1")
        v0.note_committed("V1", [OrderMark(1, 1), OrderMark(2, 2)], 2)
        assert v0.take_ids(9) == []
        assert v0.next_wait == OrderWait(self.ORDER[0], "V2")
        v0.note_committed("V2", [OrderMark(1, 1)], 1)
        assert v0.take_ids(9) == [taken(1, "B1@1", V1=1, V2=1)]
        assert v0.next_wait == OrderWait(self.ORDER[1], "V2")
        v0.note_committed("V2", [OrderMark(2, 2)], 2)
        assert v0.take_ids(9) == [taken(2, "B2@1", V1=2, V2=2)]
        assert v0.next_wait is None


# -- what is taken ---------------------------------------------------------------------------------


def test_what_concerns_nothing_of_ours_passes() -> None:
    v = over_bases(B1=0)
    v.add_ordered(order("B9@1", "B9@2", "B1@1", "B9@3"))
    v.note_received("B1", 1)
    assert v.take_ids(9) == [taken(3, "B1@1", B1=1)]
    assert (v.n, list(v.queued_ids)) == (4, [])


def test_an_id_goes_further_than_one_position() -> None:
    v = over_bases(B1=3)
    v.note_received("B1", 8)
    v.add_ordered(order("B1@7"))
    assert v.take_ids(9) == [taken(1, "B1@7", B1=7)]


def test_ids_at_or_below_where_it_stands_are_passed_without_reading() -> None:
    v = over_bases(B1=5)
    v.add_ordered(order("B1@4", "B1@5", "B1@6"))
    assert v.take_ids(9) == []
    assert (v.n, v.positions) == (2, {"B1": 5})
    assert v.next_wait == OrderWait(OrderedId(3, GlobalId("B1", 6)), "B1")


def test_at_most_so_many_transactions() -> None:
    v = over_bases(B1=0)
    v.note_received("B1", 5)
    v.add_ordered(order("B1@1", "B9@1", "B1@2", "B1@3"))
    assert [each.n for each in v.take_ids(2)] == [1, 3]
    assert [each.n for each in v.take_ids(2)] == [4]


def test_a_base_and_a_parent_over_it_move_together() -> None:
    v = Mediator()
    v.follow_source("B1", RegisteredBase("B1"), 0)
    v.follow_source("V1", ParentView(frozenset({"B1"})), 10)
    v.note_committed("V1", [OrderMark(0, 10)], 0)
    v.add_ordered(order("B1@1"))
    v.note_received("B1", 1)
    assert v.take_ids(9) == []
    assert v.next_wait == OrderWait(OrderedId(1, GlobalId("B1", 1)), "V1")
    v.note_committed("V1", [OrderMark(1, 11)], 1)
    assert v.take_ids(9) == [taken(1, "B1@1", B1=1, V1=11)]


def test_a_parent_is_not_waited_for_when_an_id_does_not_concern_it() -> None:
    v = Mediator()
    v.follow_source("V1", ParentView(frozenset({"B1"})), 0)
    v.follow_source("B2", RegisteredBase("B2"), 0)
    v.note_committed("V1", [OrderMark(0, 0)], 0)
    v.note_received("B2", 1)
    v.add_ordered(order("B2@1", "B1@1"))
    assert v.take_ids(9) == [taken(1, "B2@1", B2=1)]
    assert v.next_wait == OrderWait(OrderedId(2, GlobalId("B1", 1)), "V1")


def test_a_parent_that_is_ahead_is_taken_as_of_the_id() -> None:
    v = over_parents("V1")
    v.note_committed("V1", [OrderMark(n, 10 * n) for n in (1, 2, 3)], 3)
    v.add_ordered(order("B1@1", "B1@2"))
    assert v.take_ids(1) == [taken(1, "B1@1", V1=10)]
    assert v.take_ids(1) == [taken(2, "B1@2", V1=20)]


def test_an_id_that_left_a_parent_unchanged_is_not_waited_for_again() -> None:
    """The parent passed numbers 1 and 2 and has nothing to show for them."""
    v = over_parents("V1")
    v.add_ordered(order("B1@1", "B1@2"))
    v.note_committed("V1", [], 2)
    assert v.take_ids(9) == []
    assert v.n == 2


def test_ids_that_a_parent_shows_as_one_are_taken_as_one() -> None:
    v = over_parents("V1", "V2")
    v.add_ordered(order("B1@1", "B2@1", "B1@2"))
    v.note_committed("V2", [OrderMark(1, 1), OrderMark(2, 2), OrderMark(3, 3)], 3)
    v.note_committed("V1", [OrderMark(1, 1, shown=False), OrderMark(2, 1)], 2)
    assert v.take_ids(9) == [taken(2, "B1@1", "B2@1", V1=1, V2=2)]
    v.note_committed("V1", [OrderMark(3, 2)], 3)
    assert v.take_ids(9) == [taken(3, "B1@2", V1=2, V2=3)]


def test_what_a_parent_shows_as_one_reaches_over_ids_that_do_not_concern_it() -> None:
    v = Mediator()
    v.follow_source("V1", ParentView(frozenset({"B1"})), 0)
    v.follow_source("B2", RegisteredBase("B2"), 0)
    v.note_committed("V1", [OrderMark(0, 0), OrderMark(1, 1, shown=False), OrderMark(3, 1)], 3)
    v.note_received("B2", 1)
    v.add_ordered(order("B1@1", "B2@1"))
    assert v.take_ids(9) == []
    assert v.n == 0
    v.add_ordered(order("B1@2", after=2))
    assert v.take_ids(9) == [taken(3, "B1@1", "B2@1", "B1@2", V1=1, B2=1)]


def test_a_parent_goes_only_with_ids_that_concern_it() -> None:
    """A group begins: q is ahead of where it stands for us, and p derives from where we stand."""
    v = Mediator()
    v.follow_source("q", ParentView(frozenset({"B1"})), 5)
    v.follow_source("p", ParentView(frozenset({"B1", "B2"})), 3)
    v.note_committed("q", [OrderMark(0, 9)], 2)
    v.note_committed("p", [OrderMark(0, 3), OrderMark(1, 4), OrderMark(2, 5)], 2)
    v.add_ordered(order("B2@1", "B1@1"))
    assert v.take_ids(9) == [taken(1, "B2@1", p=4), taken(2, "B1@1", q=9, p=5)]


# -- what must not be lost -------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["order", "log"])
def test_the_order_of_events_does_not_matter(first: str) -> None:
    v = over_bases(B1=0)
    if first == "order":
        v.add_ordered(order("B1@1"))
        v.note_received("B1", 1)
    else:
        v.note_received("B1", 1)
        v.add_ordered(order("B1@1"))
    assert v.take_ids(9) == [taken(1, "B1@1", B1=1)]


def test_what_is_told_twice_counts_once() -> None:
    v = over_bases(B1=0)
    v.add_ordered(order("B1@1"))
    v.add_ordered(order("B1@1", "B1@2"))
    v.note_received("B1", 2)
    v.note_received("B1", 1)
    assert [each.n for each in v.take_ids(9)] == [1, 2]
    v.add_ordered(order("B1@1", "B1@2"))
    assert v.take_ids(9) == []


def test_marks_that_are_told_twice_count_once() -> None:
    v = over_parents("V1")
    for _ in range(2):
        v.note_committed("V1", [OrderMark(1, 1), OrderMark(2, 2)], 2)
    v.add_ordered(order("B1@1", "B1@2"))
    assert [each.moves for each in v.take_ids(9)] == [{"V1": 1}, {"V1": 2}]
    v.note_committed("V1", [OrderMark(1, 1), OrderMark(2, 2), OrderMark(3, 3)], 3)
    v.add_ordered(order("B1@3", after=2))
    assert v.take_ids(9) == [taken(3, "B1@3", V1=3)]


def test_a_number_that_is_missing_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        over_bases(B1=0).add_ordered(order("B1@1", after=1))


def test_after_a_restart_it_goes_on_from_its_number() -> None:
    v = over_parents("V1", n=2)
    v.follow_source("V1", ParentView(BOTH), 20)
    v.note_committed("V1", [OrderMark(n, 10 * n) for n in range(4)], 3)
    v.add_ordered(order("B1@1", "B1@2", "B1@3"))
    assert v.take_ids(9) == [taken(3, "B1@3", V1=30)]


def test_a_parent_without_a_position_is_placed_where_it_shows_a_state() -> None:
    """Number 1 is not shown; the parent is placed with number 2, and moves from there on."""
    v = Mediator(1)
    v.follow_source("V1", ParentView(BOTH))
    v.note_committed(
        "V1", [OrderMark(0, 0), OrderMark(1, 1, shown=False), OrderMark(2, 1), OrderMark(3, 2)], 3
    )
    assert v.positions == {}
    v.add_ordered(order("B2@1", after=1))
    assert v.take_ids(9) == []
    assert v.positions == {"V1": 1}
    v.add_ordered(order("B1@2", after=2))
    assert v.take_ids(9) == [taken(3, "B1@2", V1=2)]


def test_a_source_that_is_forgotten_is_not_waited_for() -> None:
    v = over_bases(B1=0, B2=0)
    v.add_ordered(order("B1@1", "B2@1"))
    v.note_received("B2", 1)
    assert v.take_ids(9) == []
    v.forget_source("B1")
    assert v.take_ids(9) == [taken(2, "B2@1", B2=1)]
    assert v.positions == {"B2": 1}


def test_a_base_that_becomes_a_parent_is_asked_for_numbers() -> None:
    """A view of another group was read up to its position 50; that says nothing about numbers."""
    v = Mediator()
    v.follow_source("V1", RegisteredBase("V1"), 0)
    v.note_received("V1", 50)
    v.follow_source("V1", ParentView(BOTH), 50)
    v.add_ordered(order("B1@1"))
    assert v.next_wait == OrderWait(OrderedId(1, GlobalId("B1", 1)), "V1")


def test_old_marks_are_not_kept() -> None:
    v = over_parents("V1")
    for n in range(1, 200):
        v.add_ordered(order(f"B1@{n}", after=n - 1))
        v.note_committed("V1", [OrderMark(n, n)], n)
        assert [each.n for each in v.take_ids(9)] == [n]
    assert len(v._received["V1"].marks) < 5


class TestYoungGroups:
    """Parents may stand apart where a group begins; they are taken together once they agree."""

    def agrees(self, positions: Mapping[str, int]) -> bool:
        """Whether both show one position of B1."""
        shown = {1: 5, 2: 7, 3: 9, 11: 5, 12: 8, 13: 9}
        return len({shown[at] for at in positions.values()}) == 1

    def child(self, left: int, right: int) -> Mediator:
        """Both parents were at position 5 when we were last in step with them."""
        mediator = Mediator(agrees=self.agrees)
        mediator.follow_source("left", ParentView(BOTH), 1)
        mediator.follow_source("right", ParentView(BOTH), 11)
        mediator.note_committed("left", [OrderMark(0, left)], 0)
        mediator.note_committed("right", [OrderMark(0, right)], 0)
        return mediator

    def test_who_stayed_in_step_goes_on_one_by_one(self) -> None:
        mediator = self.child(1, 11)
        mediator.add_ordered(order("B1@7", "B1@9"))
        mediator.note_committed("left", [OrderMark(1, 2), OrderMark(2, 3)], 2)
        mediator.note_committed("right", [OrderMark(1, 12), OrderMark(2, 13)], 2)
        assert [each.n for each in mediator.take_ids(9)] == [1, 2]

    def test_ids_until_parents_agree_are_one(self) -> None:
        """The right one went on alone to 8, so as of the first id they show two states."""
        mediator = self.child(2, 12)
        mediator.add_ordered(order("B1@7", "B1@9"))
        mediator.note_committed("left", [], 1)
        mediator.note_committed("right", [], 1)
        assert mediator.take_ids(9) == [], "7 and 8"
        mediator.note_committed("left", [OrderMark(2, 3)], 2)
        assert mediator.take_ids(9) == []
        mediator.note_committed("right", [OrderMark(2, 13)], 2)
        assert mediator.take_ids(9) == [taken(2, "B1@7", "B1@9", left=3, right=13)]
        assert mediator.agrees is None

    def test_nothing_is_taken_before_all_parents_are_there(self) -> None:
        mediator = Mediator(agrees=self.agrees)
        mediator.follow_source("left", ParentView(BOTH), 1)
        mediator.follow_source("right", ParentView(BOTH), 11)
        mediator.note_committed("left", [OrderMark(0, 1)], 0)
        mediator.add_ordered(order("B1@7"))
        assert mediator.take_ids(9) == []
        mediator.note_committed("right", [OrderMark(0, 11)], 0)
        mediator.note_committed("left", [OrderMark(1, 3)], 1)
        mediator.note_committed("right", [OrderMark(1, 13)], 1)
        assert mediator.take_ids(9) == [taken(1, "B1@7", left=3, right=13)]


def test_what_is_expected_of_a_base() -> None:
    mediator = over_bases(B1=0)
    mediator.add_ordered(order("B1@3", "B2@9"))
    assert mediator.has_queued("B1", 3)
    assert not mediator.has_queued("B1", 4)
    mediator.note_received("B1", 3)
    mediator.take_ids(9)
    assert not mediator.has_queued("B1", 3)
