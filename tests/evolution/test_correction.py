"""Static correction: figure 10 of the Dyno paper step by step, and the laws on random graphs.

The laws are checked against definitions, not against the correction itself: what is unsafe is
counted on the plain list of dependencies, and cycles are found by transitive closure.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.evolution.test_dependencies import rels, rows, shape
from tests.evolution.unsafe_orders import all_dependencies, unsafe_dependencies
from viewkeeper.evolution.correction import Correction, Operation, legal_order_of
from viewkeeper.evolution.dependencies import (
    Dependency,
    DependencyKind,
    ReceivedUpdate,
)
from viewkeeper.view.definition import Relation

PRECEDE, MERGE = Operation.PRECEDE, Operation.MERGE


def figure_10() -> list[ReceivedUpdate]:
    """Six messages: 1 is concurrent dependent on 4, 4 semantically on 3, 4 and 6 on each other."""
    return [
        rows(1, "a.r", "d.t"),
        rows(2, "b.s", "a.r"),
        rows(3, "d.t"),
        shape(4, "d.t", "f.v"),
        rows(5, "e.u"),
        shape(6, "f.v", "d.t"),
    ]


def test_figure_10_step_by_step() -> None:
    found = {(each.later, each.first, each.why) for each in all_dependencies(figure_10())}
    assert found == {
        (1, 4, DependencyKind.CONCURRENT),
        (4, 3, DependencyKind.SEMANTIC),
        (4, 6, DependencyKind.CONCURRENT),
        (6, 4, DependencyKind.CONCURRENT),
    }
    correction = Correction(figure_10())
    first, second, third = correction.run_steps(keep=True)
    assert first.picked == Dependency(1, 4, DependencyKind.CONCURRENT)
    assert first.operation is PRECEDE
    assert first.order == ((4,), (1,), (2,), (3,), (5,), (6,))
    assert second.picked == Dependency(4, 3, DependencyKind.SEMANTIC)
    assert second.operation is PRECEDE
    assert second.order == ((3,), (4,), (1,), (2,), (5,), (6,))
    assert third.picked == Dependency(4, 6, DependencyKind.CONCURRENT)
    assert third.operation is MERGE
    assert third.order == ((3,), (4, 6), (1,), (2,), (5,))
    assert correction.order == third.order
    assert [tuple(update.id for update in unit) for unit in correction.units] == [*third.order]


def test_what_is_safe_already_stays_as_it_is() -> None:
    updates = [shape(1, "y.s"), rows(2, "x.r", "y.s"), rows(3, "y.s", "x.r")]
    assert legal_order_of(updates) == tuple((update,) for update in updates)


def test_a_data_update_is_merged_where_its_own_relation_is_reshaped_behind_it() -> None:
    """A self-join: the query of 1 reads what 2 reshapes, and 2 must not come before 1."""
    updates = [rows(1, "x.r", "x.r"), shape(2, "x.r")]
    assert legal_order_of(updates) == (tuple(updates),)


def test_a_cycle_over_several_updates_of_two_sources_is_one_unit() -> None:
    """1 and 2 are rows of two relations that join; 3 and 4 reshape both. 5 stays outside."""
    updates = [
        rows(1, "x.r", "y.s"),
        rows(2, "y.s", "x.r"),
        shape(3, "x.r"),
        shape(4, "y.s"),
        rows(5, "z.t", "x.r"),
    ]
    assert legal_order_of(updates) == (tuple(updates[:4]), (updates[4],))


# -- laws ------------------------------------------------------------------------------------------

RELATIONS = [Relation(source, table) for source in "xyz" for table in "ab"]


@st.composite
def queues(draw: st.DrawFn) -> list[ReceivedUpdate]:
    """Updates of six relations at three sources; whatever reads and breaks whatever."""
    some = st.frozensets(st.sampled_from(RELATIONS), max_size=3)
    updates = []
    for id in range(draw(st.integers(0, 9))):
        source = draw(st.sampled_from("xyz"))
        own = st.sampled_from([r for r in RELATIONS if r.source == source])
        changes = draw(st.frozensets(own, min_size=1))
        breaks = changes if draw(st.booleans()) else rels()
        updates.append(ReceivedUpdate(id, source, changes, draw(some), breaks, draw(st.booleans())))
    return updates


def closure(updates: list[ReceivedUpdate]) -> set[tuple[int, int]]:
    """All pairs of which the first depends on the second, over any number of others."""
    found = {(each.later, each.first) for each in all_dependencies(updates)}
    while more := {(a, d) for a, b in found for c, d in found if b == c} - found:
        found |= more
    return found


@given(queues())
def test_a_legal_order_has_everything_once_and_nothing_unsafe(
    updates: list[ReceivedUpdate],
) -> None:
    units = legal_order_of(updates)
    order = [update.id for unit in units for update in unit]
    assert sorted(order) == [update.id for update in updates]
    together = {update.id: at for at, unit in enumerate(units) for update in unit}
    across = [
        each for each in all_dependencies(updates) if together[each.later] != together[each.first]
    ]
    assert unsafe_dependencies(across, order) == []


@given(queues())
def test_merged_are_exactly_the_cycles(updates: list[ReceivedUpdate]) -> None:
    depends = closure(updates)
    merged = {
        (one.id, other.id) for unit in legal_order_of(updates) for one in unit for other in unit
    }
    assert {(a, b) for a, b in merged if a != b} == {
        (a, b) for a, b in depends if a != b and (b, a) in depends
    }


@given(queues())
def test_every_source_keeps_the_order_of_what_moves_its_data(updates: list[ReceivedUpdate]) -> None:
    order = [update for unit in legal_order_of(updates) for update in unit]
    for source in "xyz":
        mine = [update.id for update in order if update.source == source and update.moves]
        assert mine == sorted(mine)


@given(queues())
def test_each_step_corrects_the_dependency_that_it_picked(updates: list[ReceivedUpdate]) -> None:
    correction = Correction(updates)
    before = correction.order
    steps = 0
    for step in correction.run_steps(keep=True):
        steps += 1
        was = [id for unit in before for id in unit]
        assert was.index(step.picked.later) < was.index(step.picked.first)
        at = {id: place for place, unit in enumerate(step.order) for id in unit}
        if step.operation is MERGE:
            assert at[step.picked.later] == at[step.picked.first]
            assert len(step.order) < len(before)
        else:
            assert at[step.picked.first] + 1 == at[step.picked.later]
            assert len(step.order) == len(before)
        before = step.order
    assert steps <= len(updates) ** 2
