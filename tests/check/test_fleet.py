"""The checker of many warehouses: Example 1 of the paper, and every kind of fault by itself.

Ding, Zhang, Rundensteiner (2000): V1 and V2 both join B1 and B2, V0 joins V1 and V2. V1 takes 11
and then 21, V2 the other way round; each is consistent with the bases, V0 is not. The checker must
say which base V0 shows twice, also when nobody tells it where the members stood.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from viewkeeper.check.fleet.fleet_checker import FleetFaultKind, FleetVerdict, check_fleet
from viewkeeper.check.fleet.fleet_explanation import explain_fleet
from viewkeeper.check.fleet.fleet_history import (
    BaseHistory,
    BaseState,
    FleetHistory,
    MemberHistory,
    MemberState,
)
from viewkeeper.check.history.recorded_history import Bag
from viewkeeper.check.levels import CheckAnswer
from viewkeeper.simulate.campaigns.workload import FIELDS, define_view

COLUMNS = {"t": tuple(field.name for field in FIELDS)}
JOIN = "SELECT p0.k AS k, p0.a AS a, p1.b AS b, p1.v AS v FROM {}.t p0, {}.t p1 WHERE p0.b = p1.a"
TOP = "SELECT p0.k AS k, p0.b AS a, p1.b AS b, p1.v AS v FROM V1.v p0, V2.v p1 WHERE p0.k = p1.k"

# B1 gets a second row with 11, B2 with 21; every row of the one meets every row of the other.
B1 = ({(1, 0, 0, 0): 1}, {(1, 0, 0, 0): 1, (2, 0, 0, 0): 1})
B2 = ({(7, 0, 5, 1): 1}, {(7, 0, 5, 1): 1, (8, 0, 6, 2): 1})


def base_answer(verdict: FleetVerdict) -> CheckAnswer:
    """Whether all views are base consistent (Definition 4)."""
    if verdict.faults_of(FleetFaultKind.BASE):
        return CheckAnswer.NO
    unknown = verdict.faults_of(FleetFaultKind.UNKNOWN)
    return CheckAnswer.UNKNOWN if unknown else CheckAnswer.YES


def base(name: str, states: tuple[Bag, ...], first: str) -> BaseHistory:
    made = (BaseState(i, {"t": rows}, first if i else "") for i, rows in enumerate(states))
    return BaseHistory(name, COLUMNS, tuple(made))


def middle(b1: int, b2: int) -> dict[tuple[int, ...], int]:
    """V1, and V2, over a state of each base."""
    return {(k, a, b, v): 1 for k, a, _, _ in B1[b1] for _, _, b, v in B2[b2]}


def top(v1: Bag, v2: Bag) -> dict[tuple[int, ...], int]:
    """V0 over a state of each parent."""
    found: dict[tuple[int, ...], int] = {}
    for k, _, b, _ in v1:
        for other, _, b2, v in v2:
            if other == k:
                found[k, b, b2, v] = found.get((k, b, b2, v), 0) + 1
    return found


def shown(ts: int, rows: Bag, id: str = "", **positions: int) -> MemberState:
    return MemberState(ts, {"v": rows}, positions, "G", id)


def fleet(v1: list[MemberState], v2: list[MemberState], v0: list[MemberState]) -> FleetHistory:
    over_bases = define_view(JOIN.format("B1", "B2"))
    members = (
        MemberHistory("V1", {"v": over_bases}, tuple(v1)),
        MemberHistory("V2", {"v": over_bases}, tuple(v2)),
        MemberHistory("V0", {"v": define_view(TOP)}, tuple(v0)),
    )
    return FleetHistory((base("B1", B1, "11"), base("B2", B2, "21")), members)


def taking(order: str) -> list[MemberState]:
    """V1, or V2, taking 11 and 21 in some order."""
    b1 = b2 = 0
    states = [shown(0, middle(0, 0), B1=0, B2=0)]
    for ts, name in enumerate(order.split(), 1):
        b1, b2 = (1, b2) if name == "11" else (b1, 1)
        states.append(shown(ts, middle(b1, b2), name, B1=b1, B2=b2))
    return states


def on_top(v1: list[MemberState], v2: list[MemberState], order: str) -> list[MemberState]:
    """V0, taking from both parents what they have after each id."""
    states = [shown(0, top(v1[0].rows["v"], v2[0].rows["v"]), V1=0, V2=0)]
    seen = [0, 0]
    for ts, name in enumerate(order.split(), 1):
        for at, parent in enumerate((v1, v2)):
            seen[at] = max(seen[at], next(s.ts for s in parent if s.id == name))
        rows = top(v1[seen[0]].rows["v"], v2[seen[1]].rows["v"])
        states.append(shown(ts, rows, name, V1=seen[0], V2=seen[1]))
    return states


def example(first: str, second: str, third: str) -> FleetHistory:
    v1, v2 = taking(first), taking(second)
    return fleet(v1, v2, on_top(v1, v2, third))


def check(history: FleetHistory) -> FleetVerdict:
    return check_fleet(history, ended=("V0", "V1", "V2"))


class TestExample1:
    def test_without_a_registry(self) -> None:
        verdict = check(example("11 21", "21 11", "11 21"))
        assert base_answer(verdict) is CheckAnswer.NO
        assert [(f.view.source, f.state) for f in verdict.faults_of(FleetFaultKind.BASE)] == [
            ("V0", 1)
        ]
        said = "\n".join(explain_fleet(verdict))
        assert (
            "V0.v shows B2 before and after 21: before it through V1.v, after it through V2.v"
            in said
        )

    def test_the_parents_are_base_consistent_and_not_view_consistent(self) -> None:
        verdict = check(example("11 21", "21 11", "11 21"))
        pairs = {
            (fault.view.source, fault.other.source)
            for fault in verdict.faults_of(FleetFaultKind.VIEW)
            if fault.other is not None
        }
        assert ("V1", "V2") in pairs
        said = "\n".join(explain_fleet(verdict))
        assert (
            "V1.v, ts 1 (after 11 in G), and V2.v, ts 2 (after 11 in G), stand for different "
            "states of B1 and B2: V1.v for B1 after 11 and B2 at its start, V2.v for B1 after 11 "
            "and B2 after 21."
        ) in said

    @pytest.mark.parametrize("order", ["11 21", "21 11"])
    def test_with_one_order(self, order: str) -> None:
        verdict = check(example(order, order, order))
        assert verdict.faults == ()
        assert explain_fleet(verdict) == []

    def test_nobody_needs_to_say_where_it_stood(self) -> None:
        history = example("11 21", "21 11", "11 21")
        silent = tuple(
            replace(m, states=tuple(replace(s, positions={}) for s in m.states))
            for m in history.members
        )
        verdict = check(FleetHistory(history.bases, silent))
        assert [(f.view.source, f.state) for f in verdict.faults_of(FleetFaultKind.BASE)] == [
            ("V0", 1)
        ]
        assert "V0.v shows B2 before and after 21" in "\n".join(explain_fleet(verdict))

    def test_the_groups_are_what_is_promised(self) -> None:
        """Apart, V1 and V2 may differ; V0 must be base consistent all the same."""
        history = example("11 21", "21 11", "11 21")
        apart = tuple(
            replace(m, states=tuple(replace(s, group=m.name) for s in m.states))
            for m in history.members
        )
        verdict = check(FleetHistory(history.bases, apart))
        assert [fault.kind for fault in verdict.faults] == [FleetFaultKind.BASE]


# -- every kind by itself --------------------------------------------------------------------------


def with_states(name: str, states: list[MemberState]) -> FleetHistory:
    history = example("11 21", "11 21", "11 21")
    members = (replace(m, states=tuple(states)) if m.name == name else m for m in history.members)
    return FleetHistory(history.bases, tuple(members))


def test_a_claim_is_not_believed() -> None:
    v1 = taking("11 21")
    v1[1] = replace(v1[1], positions={"B1": 0, "B2": 0})
    verdict = check(with_states("V1", v1))
    assert {fault.kind for fault in verdict.faults_of(FleetFaultKind.CLAIM)} == {
        FleetFaultKind.CLAIM
    }
    assert base_answer(verdict) is CheckAnswer.YES
    said = explain_fleet(verdict)[0]
    assert "V1.v, ts 1 (after 11 in G), claims to stand for B1 at its start" in said
    assert "has (2, 0, 5, 1) too much" in said


def test_going_back_is_noticed() -> None:
    v1 = taking("11 21")
    v1.append(replace(v1[1], ts=3, id=""))
    verdict = check_fleet(with_states("V1", v1))
    assert [(f.kind, f.bases) for f in verdict.faults] == [(FleetFaultKind.BACKWARDS, ("B2",))]
    assert explain_fleet(verdict) == ["V1, ts 3, goes back at B2."]


def test_what_is_lost_is_noticed() -> None:
    verdict = check(with_states("V1", taking("11")))
    lost = verdict.faults_of(FleetFaultKind.LAST)
    assert [fault.view.source for fault in lost] == ["V1"]
    assert "it lacks (1, 0, 6, 2) and (2, 0, 6, 2)" in explain_fleet(verdict)[-1]


def test_what_is_doubled_matches_no_state() -> None:
    v1 = taking("11 21")
    v1[2] = replace(v1[2], rows={"v": dict.fromkeys(middle(1, 1), 2)})
    verdict = check(with_states("V1", v1))
    assert ("V1", 2) in [
        (fault.view.source, fault.state) for fault in verdict.faults_of(FleetFaultKind.BASE)
    ]
    assert "matches no" in explain_fleet(verdict)[0]


def test_too_many_vectors_are_unknown() -> None:
    v1 = taking("11 21")
    v1[1] = replace(v1[1], positions={})
    verdict = check_fleet(with_states("V1", v1), limit=3)
    assert base_answer(verdict) is CheckAnswer.UNKNOWN
    assert "not decided" in explain_fleet(verdict)[0]
