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
from viewkeeper.order.mediator import Base, Mark, Mediator, ParentView, Taken, Wait
from viewkeeper.order.registry_protocol import Ordered

BOTH = frozenset({"B1", "B2"})


def order(*ids: str, after: int = 0) -> list[Ordered]:
    """Ids, in the registry's order."""
    return [Ordered(after + n, GlobalId.read(id)) for n, id in enumerate(ids, 1)]


def taken(n: int, *ids: str, **moves: int) -> Taken:
    """Ids whose numbers follow each other; mostly one."""
    return Taken(n, tuple(map(GlobalId.read, ids)), moves, n + 1 - len(ids))


def over_bases(**positions: int) -> Mediator:
    mediator = Mediator()
    for name, position in positions.items():
        mediator.follow(name, Base(name), position)
    return mediator


def over_parents(*names: str, n: int = 0) -> Mediator:
    """Over views that derive from B1 and B2 and stand at position 0."""
    mediator = Mediator(n)
    for name in names:
        mediator.follow(name, ParentView(BOTH), 0)
        mediator.committed(name, [Mark(0, 0)], 0)
    return mediator


class TestExample4:
    """V0 = V1 join V2, both over B1 and B2; the registry orders 11, then 21."""

    ORDER = order("B1@1", "B2@1")

    def test_v1_receives_in_the_same_order(self) -> None:
        v1 = over_bases(B1=0, B2=0)
        v1.received("B1", 1)
        assert v1.take(9) == []
        v1.ordered(self.ORDER[:1])
        assert v1.take(9) == [taken(1, "B1@1", B1=1)]
        v1.received("B2", 1)
        v1.ordered(self.ORDER)
        assert v1.take(9) == [taken(2, "B2@1", B2=1)]

    def test_v2_receives_the_other_way_round_and_waits(self) -> None:
        v2 = over_bases(B1=0, B2=0)
        v2.received("B2", 1)
        v2.ordered(self.ORDER)
        assert v2.take(9) == []
        assert v2.wait == Wait(self.ORDER[0], "B1")
        v2.received("B1", 1)
        assert v2.take(9) == [taken(1, "B1@1", B1=1), taken(2, "B2@1", B2=1)]

    def test_v0_takes_an_id_when_both_have(self) -> None:
        v0 = over_parents("V1", "V2")
        v0.ordered(self.ORDER)
        assert v0.wait == Wait(self.ORDER[0], "V1")
        v0.committed("V1", [Mark(1, 1), Mark(2, 2)], 2)
        assert v0.take(9) == []
        assert v0.wait == Wait(self.ORDER[0], "V2")
        v0.committed("V2", [Mark(1, 1)], 1)
        assert v0.take(9) == [taken(1, "B1@1", V1=1, V2=1)]
        assert v0.wait == Wait(self.ORDER[1], "V2")
        v0.committed("V2", [Mark(2, 2)], 2)
        assert v0.take(9) == [taken(2, "B2@1", V1=2, V2=2)]
        assert v0.wait is None


# -- what is taken ---------------------------------------------------------------------------------


def test_what_concerns_nothing_of_ours_passes() -> None:
    v = over_bases(B1=0)
    v.ordered(order("B9@1", "B9@2", "B1@1", "B9@3"))
    v.received("B1", 1)
    assert v.take(9) == [taken(3, "B1@1", B1=1)]
    assert (v.n, list(v.queued)) == (4, [])


def test_an_id_goes_further_than_one_position() -> None:
    v = over_bases(B1=3)
    v.received("B1", 8)
    v.ordered(order("B1@7"))
    assert v.take(9) == [taken(1, "B1@7", B1=7)]


def test_ids_at_or_below_where_it_stands_are_passed_without_reading() -> None:
    v = over_bases(B1=5)
    v.ordered(order("B1@4", "B1@5", "B1@6"))
    assert v.take(9) == []
    assert (v.n, v.positions) == (2, {"B1": 5})
    assert v.wait == Wait(Ordered(3, GlobalId("B1", 6)), "B1")


def test_at_most_so_many_transactions() -> None:
    v = over_bases(B1=0)
    v.received("B1", 5)
    v.ordered(order("B1@1", "B9@1", "B1@2", "B1@3"))
    assert [each.n for each in v.take(2)] == [1, 3]
    assert [each.n for each in v.take(2)] == [4]


def test_a_base_and_a_parent_over_it_move_together() -> None:
    v = Mediator()
    v.follow("B1", Base("B1"), 0)
    v.follow("V1", ParentView(frozenset({"B1"})), 10)
    v.committed("V1", [Mark(0, 10)], 0)
    v.ordered(order("B1@1"))
    v.received("B1", 1)
    assert v.take(9) == []
    assert v.wait == Wait(Ordered(1, GlobalId("B1", 1)), "V1")
    v.committed("V1", [Mark(1, 11)], 1)
    assert v.take(9) == [taken(1, "B1@1", B1=1, V1=11)]


def test_a_parent_is_not_waited_for_when_an_id_does_not_concern_it() -> None:
    v = Mediator()
    v.follow("V1", ParentView(frozenset({"B1"})), 0)
    v.follow("B2", Base("B2"), 0)
    v.committed("V1", [Mark(0, 0)], 0)
    v.received("B2", 1)
    v.ordered(order("B2@1", "B1@1"))
    assert v.take(9) == [taken(1, "B2@1", B2=1)]
    assert v.wait == Wait(Ordered(2, GlobalId("B1", 1)), "V1")


def test_a_parent_that_is_ahead_is_taken_as_of_the_id() -> None:
    v = over_parents("V1")
    v.committed("V1", [Mark(n, 10 * n) for n in (1, 2, 3)], 3)
    v.ordered(order("B1@1", "B1@2"))
    assert v.take(1) == [taken(1, "B1@1", V1=10)]
    assert v.take(1) == [taken(2, "B1@2", V1=20)]


def test_an_id_that_left_a_parent_unchanged_is_not_waited_for_again() -> None:
    """The parent passed numbers 1 and 2 and has nothing to show for them."""
    v = over_parents("V1")
    v.ordered(order("B1@1", "B1@2"))
    v.committed("V1", [], 2)
    assert v.take(9) == []
    assert v.n == 2


def test_ids_that_a_parent_shows_as_one_are_taken_as_one() -> None:
    v = over_parents("V1", "V2")
    v.ordered(order("B1@1", "B2@1", "B1@2"))
    v.committed("V2", [Mark(1, 1), Mark(2, 2), Mark(3, 3)], 3)
    v.committed("V1", [Mark(1, 1, shown=False), Mark(2, 1)], 2)
    assert v.take(9) == [taken(2, "B1@1", "B2@1", V1=1, V2=2)]
    v.committed("V1", [Mark(3, 2)], 3)
    assert v.take(9) == [taken(3, "B1@2", V1=2, V2=3)]


def test_what_a_parent_shows_as_one_reaches_over_ids_that_do_not_concern_it() -> None:
    v = Mediator()
    v.follow("V1", ParentView(frozenset({"B1"})), 0)
    v.follow("B2", Base("B2"), 0)
    v.committed("V1", [Mark(0, 0), Mark(1, 1, shown=False), Mark(3, 1)], 3)
    v.received("B2", 1)
    v.ordered(order("B1@1", "B2@1"))
    assert v.take(9) == []
    assert v.n == 0
    v.ordered(order("B1@2", after=2))
    assert v.take(9) == [taken(3, "B1@1", "B2@1", "B1@2", V1=1, B2=1)]


def test_a_parent_goes_only_with_ids_that_concern_it() -> None:
    """A group begins: q is ahead of where it stands for us, and p derives from where we stand."""
    v = Mediator()
    v.follow("q", ParentView(frozenset({"B1"})), 5)
    v.follow("p", ParentView(frozenset({"B1", "B2"})), 3)
    v.committed("q", [Mark(0, 9)], 2)
    v.committed("p", [Mark(0, 3), Mark(1, 4), Mark(2, 5)], 2)
    v.ordered(order("B2@1", "B1@1"))
    assert v.take(9) == [taken(1, "B2@1", p=4), taken(2, "B1@1", q=9, p=5)]


# -- what must not be lost -------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["order", "log"])
def test_the_order_of_events_does_not_matter(first: str) -> None:
    v = over_bases(B1=0)
    if first == "order":
        v.ordered(order("B1@1"))
        v.received("B1", 1)
    else:
        v.received("B1", 1)
        v.ordered(order("B1@1"))
    assert v.take(9) == [taken(1, "B1@1", B1=1)]


def test_what_is_told_twice_counts_once() -> None:
    v = over_bases(B1=0)
    v.ordered(order("B1@1"))
    v.ordered(order("B1@1", "B1@2"))
    v.received("B1", 2)
    v.received("B1", 1)
    assert [each.n for each in v.take(9)] == [1, 2]
    v.ordered(order("B1@1", "B1@2"))
    assert v.take(9) == []


def test_marks_that_are_told_twice_count_once() -> None:
    v = over_parents("V1")
    for _ in range(2):
        v.committed("V1", [Mark(1, 1), Mark(2, 2)], 2)
    v.ordered(order("B1@1", "B1@2"))
    assert [each.moves for each in v.take(9)] == [{"V1": 1}, {"V1": 2}]
    v.committed("V1", [Mark(1, 1), Mark(2, 2), Mark(3, 3)], 3)
    v.ordered(order("B1@3", after=2))
    assert v.take(9) == [taken(3, "B1@3", V1=3)]


def test_a_number_that_is_missing_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        over_bases(B1=0).ordered(order("B1@1", after=1))


def test_after_a_restart_it_goes_on_from_its_number() -> None:
    v = over_parents("V1", n=2)
    v.follow("V1", ParentView(BOTH), 20)
    v.committed("V1", [Mark(n, 10 * n) for n in range(4)], 3)
    v.ordered(order("B1@1", "B1@2", "B1@3"))
    assert v.take(9) == [taken(3, "B1@3", V1=30)]


def test_a_parent_without_a_position_is_placed_where_it_shows_a_state() -> None:
    """Number 1 is not shown; the parent is placed with number 2, and moves from there on."""
    v = Mediator(1)
    v.follow("V1", ParentView(BOTH))
    v.committed("V1", [Mark(0, 0), Mark(1, 1, shown=False), Mark(2, 1), Mark(3, 2)], 3)
    assert v.positions == {}
    v.ordered(order("B2@1", after=1))
    assert v.take(9) == []
    assert v.positions == {"V1": 1}
    v.ordered(order("B1@2", after=2))
    assert v.take(9) == [taken(3, "B1@2", V1=2)]


def test_a_source_that_is_forgotten_is_not_waited_for() -> None:
    v = over_bases(B1=0, B2=0)
    v.ordered(order("B1@1", "B2@1"))
    v.received("B2", 1)
    assert v.take(9) == []
    v.forget("B1")
    assert v.take(9) == [taken(2, "B2@1", B2=1)]
    assert v.positions == {"B2": 1}


def test_a_base_that_becomes_a_parent_is_asked_for_numbers() -> None:
    """A view of another group was read up to its position 50; that says nothing about numbers."""
    v = Mediator()
    v.follow("V1", Base("V1"), 0)
    v.received("V1", 50)
    v.follow("V1", ParentView(BOTH), 50)
    v.ordered(order("B1@1"))
    assert v.wait == Wait(Ordered(1, GlobalId("B1", 1)), "V1")


def test_old_marks_are_not_kept() -> None:
    v = over_parents("V1")
    for n in range(1, 200):
        v.ordered(order(f"B1@{n}", after=n - 1))
        v.committed("V1", [Mark(n, n)], n)
        assert [each.n for each in v.take(9)] == [n]
    assert len(v._received["V1"].marks) < 5


class TestYoungGroups:
    """Parents may stand apart where a group begins; they are taken together once they agree."""

    def agrees(self, positions: Mapping[str, int]) -> bool:
        """Whether both show one position of B1."""
        shown = {1: 5, 2: 7, 3: 9, 11: 5, 12: 8, 13: 9}
        return len({shown[at] for at in positions.values()}) == 1

    def child(self, left: int, right: int) -> Mediator:
        """Both parents were at position 5 when we were last in step with them."""
        mediator = Mediator()
        mediator.agrees = self.agrees
        mediator.follow("left", ParentView(BOTH), 1)
        mediator.follow("right", ParentView(BOTH), 11)
        mediator.committed("left", [Mark(0, left)], 0)
        mediator.committed("right", [Mark(0, right)], 0)
        return mediator

    def test_who_stayed_in_step_goes_on_one_by_one(self) -> None:
        mediator = self.child(1, 11)
        mediator.ordered(order("B1@7", "B1@9"))
        mediator.committed("left", [Mark(1, 2), Mark(2, 3)], 2)
        mediator.committed("right", [Mark(1, 12), Mark(2, 13)], 2)
        assert [each.n for each in mediator.take(9)] == [1, 2]

    def test_ids_until_parents_agree_are_one(self) -> None:
        """The right one went on alone to 8, so as of the first id they show two states."""
        mediator = self.child(2, 12)
        mediator.ordered(order("B1@7", "B1@9"))
        mediator.committed("left", [], 1)
        mediator.committed("right", [], 1)
        assert mediator.take(9) == [], "7 and 8"
        mediator.committed("left", [Mark(2, 3)], 2)
        assert mediator.take(9) == []
        mediator.committed("right", [Mark(2, 13)], 2)
        assert mediator.take(9) == [taken(2, "B1@7", "B1@9", left=3, right=13)]
        assert mediator.agrees is None

    def test_nothing_is_taken_before_all_parents_are_there(self) -> None:
        mediator = Mediator()
        mediator.agrees = self.agrees
        mediator.follow("left", ParentView(BOTH), 1)
        mediator.follow("right", ParentView(BOTH), 11)
        mediator.committed("left", [Mark(0, 1)], 0)
        mediator.ordered(order("B1@7"))
        assert mediator.take(9) == []
        mediator.committed("right", [Mark(0, 11)], 0)
        mediator.committed("left", [Mark(1, 3)], 1)
        mediator.committed("right", [Mark(1, 13)], 1)
        assert mediator.take(9) == [taken(1, "B1@7", left=3, right=13)]


def test_what_is_expected_of_a_base() -> None:
    mediator = over_bases(B1=0)
    mediator.ordered(order("B1@3", "B2@9"))
    assert mediator.expects("B1", 3)
    assert not mediator.expects("B1", 4)
    mediator.received("B1", 3)
    mediator.take(9)
    assert not mediator.expects("B1", 3)
