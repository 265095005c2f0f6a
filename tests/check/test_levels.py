"""Planted histories of exactly each level, and corrupted ones that must be refused, with the words.

The view joins x.r (a, b) and y.s (b, c). T1 inserts at x, T2 at y, T3 at both; each of them changes
the view, in every order. The Strobe paper's Examples 1, 4 and 5 are files in examples/histories.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.check.histories import planted, shown
from viewkeeper.check.checker import Verdict, check_history
from viewkeeper.check.explanation import explain_verdict
from viewkeeper.check.history.history_file import read_history
from viewkeeper.check.history.recorded_history import (
    CommittedTransaction,
    RecordedHistory,
    Row,
    ShownState,
)
from viewkeeper.check.levels import LADDERS, PVM, STROBE, CheckAnswer, Predicate
from viewkeeper.errors import HistoryError
from viewkeeper.maintain.algorithm_protocol import Level

EXAMPLES = Path(__file__).parents[2] / "examples" / "histories"
SQL = "SELECT r.a, s.c FROM x.r JOIN y.s ON r.b = s.b"
TABLES = {"x.r": ("a b", [(1, 1)]), "y.s": ("b c", [(1, 1)])}
CHANGES = {
    "T1": {"x.r": "+2,1"},
    "T2": {"y.s": "+1,2"},
    "T3": {"x.r": "-1,1", "y.s": "-1,1"},
}
START = "1,1"
FIRST = "1,1 2,1"
SECOND = "1,1 1,2"
BOTH = "1,1 2,1 1,2 2,2"
END = "2,2"


def history(*states: str | ShownState) -> RecordedHistory:
    given = [shown(state) if isinstance(state, str) else state for state in states]
    return planted(SQL, TABLES, CHANGES, given)


def said(verdict: Verdict) -> str:
    return "\n".join(explanation.text for explanation in explain_verdict(verdict))


def example(name: str) -> RecordedHistory:
    return read_history((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"), name)


PLANTED: dict[str, tuple[RecordedHistory, Level, list[str]]] = {
    "complete, T1 first": (history(START, FIRST, BOTH, END), Level.COMPLETE, ["complete"]),
    "complete, T2 first": (history(START, SECOND, BOTH, END), Level.COMPLETE, ["complete"]),
    "complete, each state twice": (
        history(START, START, FIRST, FIRST, BOTH, BOTH, END, END),
        Level.COMPLETE,
        ["complete"],
    ),
    "strong: T1 and T2 at once": (history(START, BOTH, END), Level.STRONG, ["strong"]),
    "strong: everything at once": (history(START, END), Level.STRONG, ["strong"]),
    "weak: out of order": (
        history(START, BOTH, FIRST, END),
        Level.WEAK,
        ["convergence", "weak"],
    ),
    "weak: half of T3": (history(START, "2,1 2,2", END), Level.WEAK, ["convergence", "weak"]),
    "convergence": (history(START, "5,5", END), Level.CONVERGENCE, ["convergence"]),
    "none, but in order": (history(START, FIRST, BOTH), Level.NONE, ["consistency"]),
    "none, but legal": (history(START, BOTH, FIRST), Level.NONE, ["weak"]),
    "none at all": (history(START, "5,5"), Level.NONE, []),
    "quiet, and not legal": (history(START, shown("5,5", quiet=True), END), Level.NONE, []),
    "quiet in the middle": (
        history(START, shown(FIRST, quiet=True), END),
        Level.STRONG,
        ["strong"],
    ),
    "Strobe, Example 1": (example("deletion_anomaly"), Level.NONE, ["consistency"]),
    "Strobe, Example 4": (example("half_transaction"), Level.CONVERGENCE, ["convergence"]),
    "Strobe, Example 5": (example("global_halves"), Level.WEAK, ["convergence", "weak"]),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_histories_have_exactly_their_level(name: str) -> None:
    found = check_history(PLANTED[name][0])
    assert CheckAnswer.UNKNOWN not in found.answers.values()
    assert found.level is found.possible_level is PLANTED[name][1]
    assert PVM.highest_levels(found.answers) == PLANTED[name][2]
    expected = [] if found.level is Level.NONE else [found.level.lower_name]
    assert STROBE.highest_levels(found.answers) == expected


def test_the_examples_of_the_paper_made_right_are_complete() -> None:
    t_strobe = example("half_transaction")
    kept = (t_strobe.states[0], t_strobe.states[2])
    assert check_history(replace(t_strobe, states=kept)).level is Level.COMPLETE
    g_strobe = example("global_halves")
    kept = (g_strobe.states[0], g_strobe.states[2])
    assert check_history(replace(g_strobe, states=kept)).level is Level.STRONG
    local = [(t.name + s, {s: part}) for t in g_strobe.transactions for s, part in t.parts.items()]
    apart = replace(g_strobe, transactions=tuple(CommittedTransaction(*given) for given in local))
    assert check_history(apart).level is Level.COMPLETE, (
        "as local transactions they would be in order"
    )


RIGHT = history(START, FIRST, BOTH, END)
CORRUPTED: dict[str, tuple[tuple[str, ...], Level, list[str]]] = {
    "a row more": (
        (START, "1,1 2,1 7,7", BOTH, END),
        Level.CONVERGENCE,
        [
            "State 1 matches no source vector",
            "The nearest is x 1 of 2 (up to T1), y 0 of 2",
            "the state has (7, 7) too much",
        ],
    ),
    "a row less": (
        ("", FIRST, BOTH, END),
        Level.CONVERGENCE,
        ["State 0 matches no source vector", "the view is never empty", "the state lacks (1, 1)."],
    ),
    "a wrong count": (
        (START, "1,1 2,1 2,1", BOTH, END),
        Level.CONVERGENCE,
        ["never exactly (1, 1) and 2 times (2, 1)", "the state has (2, 1) too much"],
    ),
    "two states swapped": (
        (START, BOTH, FIRST, END),
        Level.WEAK,
        [
            "State 2 goes backwards: state 1 stands for x 1 of 2 (up to T1), y 1 of 2 (up to T2)",
            "state 2 for x 1 of 2 (up to T1), y 0 of 2, without T2 at y",
        ],
    ),
    "a state skipped": (
        (START, BOTH, END),
        Level.STRONG,
        [
            "A state was skipped between state 0 and state 1",
            "T1, which gives (1, 1) and (2, 1) and T2, which gives (1, 1) and (1, 2)",
        ],
    ),
    "half of a global transaction": (
        (START, FIRST, "2,1 2,2", END),
        Level.WEAK,
        [
            "State 2 shows the global transaction T3 in halves",
            "with T3 at x but not at y (x 2 of 2 (up to T3), y 1 of 2 (up to T2))",
        ],
    ),
    "no final state": (
        (START, FIRST, BOTH),
        Level.NONE,
        [
            "The last state, state 2, is not the view over the sources' final states",
            "it has (1, 1), (1, 2) and (2, 1) too much",
        ],
    ),
    "no first state": (
        (FIRST, BOTH, END),
        Level.STRONG,
        ["State 0 is not the view over the sources' initial states", "it has (2, 1) too much"],
    ),
    "nothing but the end missing and back": (
        (START, FIRST, BOTH, END, BOTH),
        Level.NONE,
        ["The last state, state 4, is not the view"],
    ),
}


@pytest.mark.parametrize("name", CORRUPTED)
def test_corrupted_histories_are_refused_with_the_rows(name: str) -> None:
    states, level, words = CORRUPTED[name]
    assert check_history(RIGHT).level is Level.COMPLETE
    verdict = check_history(history(*states))
    assert verdict.level is verdict.possible_level is level
    for part in words:
        assert part in said(verdict)


# -- claims ----------------------------------------------------------------------------------------


def claimed(*pairs: tuple[str, dict[str, int]]) -> Verdict:
    return check_history(history(*(shown(rows, claim=claim) for rows, claim in pairs)))


def test_right_claims_are_a_proof_without_search() -> None:
    given = (
        shown(START, claim={"x": 0, "y": 0}),
        shown(FIRST, claim={"x": 1, "y": 0}),
        shown(BOTH, claim={"x": 1, "y": 1}),
        shown(END, claim={"x": 2, "y": 2}),
    )
    verdict = check_history(history(*given), limit=0)
    assert verdict.level is Level.COMPLETE
    assert verdict.claim_faults == ()
    assert verdict.chain == ((0, 0), (1, 0), (1, 1), (2, 2))
    assert check_history(history(START, FIRST, BOTH, END), limit=0).level is Level.CONVERGENCE


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (
            {"x": 0, "y": 1},
            "State 1 claims to stand for x 0 of 2, y 1 of 2 (up to T2), but the view there is "
            "(1, 1) and (1, 2): the state lacks (1, 2) and has (2, 1) too much",
        ),
        ({"x": 7}, "State 1 claims to stand for x 7, but the history has no such source"),
        ({"x": 1, "q": 1}, "claims to stand for x 1 and q 1, but the history has no such source"),
    ],
)
def test_a_wrong_claim_is_reported_and_the_search_decides(
    claim: dict[str, int], words: str
) -> None:
    verdict = claimed((START, {}), (FIRST, claim), (BOTH, {"x": 1, "y": 1}), (END, {"x": 2}))
    assert verdict.level is Level.COMPLETE
    assert words in said(verdict)


def test_claims_with_halves_or_backwards_are_reported() -> None:
    halved = claimed((START, {}), ("2,1 2,2", {"x": 2, "y": 1}), (END, {"x": 2, "y": 2}))
    assert halved.level is Level.WEAK
    assert "y 1 of 2 (up to T2), but that has T3 in halves" in said(halved)
    back = claimed((START, {}), (BOTH, {"x": 1, "y": 1}), (FIRST, {"x": 1}), (END, {"x": 2}))
    assert back.level is Level.WEAK
    assert "state 1 claims something that this lacks" in said(back)


def test_many_wrong_claims_are_not_all_told() -> None:
    verdict = claimed(*[(START, {"x": 1})] * 6)
    assert len(verdict.claim_faults) == 6
    assert said(verdict).count("claims to stand for") == 3
    assert "3 other claims are wrong too." in said(verdict)


# -- orders ----------------------------------------------------------------------------------------


def test_global_transactions_in_opposite_orders_are_one_unit() -> None:
    """x has T1 before T2, y has T2 before T1: no order separates them."""
    base = planted(SQL, TABLES, {}, [])
    changes = {
        "x1": planted(SQL, TABLES, {"T1": {"x.r": "+2,1"}}, []),
        "x2": planted(SQL, TABLES, {"T2": {"x.r": "+3,1"}}, []),
        "y2": planted(SQL, TABLES, {"T2": {"y.s": "+1,2"}}, []),
        "y1": planted(SQL, TABLES, {"T1": {"y.s": "+1,3"}}, []),
    }
    crossed = replace(base, transactions=tuple(h.transactions[0] for h in changes.values()))
    whole = "1,1 2,1 3,1 1,2 2,2 3,2 1,3 2,3 3,3"
    together = replace(crossed, states=(shown(START), shown(whole)))
    assert check_history(together).level is Level.COMPLETE
    between = replace(crossed, states=(shown(START), shown("1,1 2,1 1,3 2,3"), shown(whole)))
    assert check_history(between).level is Level.CONVERGENCE
    apart = replace(crossed, states=(shown(START), shown("1,1 2,1 1,2 2,2"), shown(whole)))
    verdict = check_history(apart)
    assert verdict.level is Level.WEAK
    assert "shows the global transactions T1 with T2 in halves" in said(verdict)


def test_an_order_at_a_source_that_the_view_does_not_read_counts() -> None:
    """T1 is before T2 at z, so x cannot have T2 while y has not T1."""
    tied = {"T1": {"y.s": "+1,2", "z.t": "+1"}, "T2": {"x.r": "+2,1", "z.t": "+2"}}
    free = {"T1": {"y.s": "+1,2"}, "T2": {"x.r": "+2,1"}}
    tables = {**TABLES, "z.t": ("n", [])}
    states = [shown(START), shown(FIRST), shown(BOTH)]
    assert check_history(planted(SQL, tables, free, states)).level is Level.COMPLETE
    assert check_history(planted(SQL, tables, tied, states)).level is Level.WEAK


def test_no_common_order_of_three_states_is_said() -> None:
    """Any two states are in some order, all three in none."""
    changes = {"T1": {"x.r": "+2,2"}, "T2": {"x.r": "-2,2"}, "T3": {"y.s": "+2,2"}}
    tables: dict[str, tuple[str, list[Row]]] = {"x.r": ("a b", []), "y.s": ("b c", [])}
    sql = "SELECT r.a, s.c FROM x.r, y.s"
    states = [shown(), shown("2,2"), shown(), shown("2,2"), shown()]
    verdict = check_history(planted(sql, tables, changes, states))
    assert verdict.answers[Predicate.ORDERED] is CheckAnswer.NO
    assert "No order of the transactions fits all states up to state 3" in said(verdict)


# -- refusals --------------------------------------------------------------------------------------


def test_impossible_histories_are_errors() -> None:
    with pytest.raises(HistoryError, match="no state"):
        check_history(history())
    with pytest.raises(HistoryError, match=r"T1.*deletes \(9, 9\) from x.r, which does not"):
        check_history(planted(SQL, TABLES, {"T1": {"x.r": "-9,9"}}, [shown(START)]))
    twice = RIGHT.transactions + RIGHT.transactions[:1]
    with pytest.raises(HistoryError, match='"T1": committed twice at source "x"'):
        check_history(replace(RIGHT, transactions=twice))


def test_beyond_the_limit_unknown_is_said() -> None:
    verdict = check_history(history(START, FIRST, BOTH, END), limit=1)
    assert verdict.level is Level.CONVERGENCE
    assert verdict.possible_level is Level.COMPLETE
    assert "legal, ordered and complete is unknown" in said(verdict)


def test_ladders_name_what_they_cite() -> None:
    assert [level.name for level in STROBE.levels] == [level.lower_name for level in Level][1:]
    for ladder in LADDERS:
        assert "section 4" in ladder.citation
    needs = {level.name: level.needs for level in PVM.levels}
    assert Predicate.CONVERGENT not in needs["weak"] | needs["consistency"]
    assert needs["strong"] == needs["consistency"] | needs["convergence"]
