"""The rule by which positions are admitted, against a plain account of what was ever accepted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.order.admission import Admission, AdmissionRefusal, admit_positions

REPORTS = st.lists(st.lists(st.integers(0, 12), max_size=5), max_size=8)


@given(REPORTS)
def test_a_report_is_accepted_whole_or_not_at_all(reports: list[list[int]]) -> None:
    accepted: list[int] = []
    for sent in reports:
        numbers = {position: n for n, position in enumerate(accepted, 1)}
        decided = admit_positions(sent, numbers, max(accepted, default=None), len(accepted))
        expected = account(accepted, sent)
        if expected is None:
            assert isinstance(decided, AdmissionRefusal)
            assert decided.position in sent
            assert decided.position not in accepted
            assert decided.position <= decided.registered
            continue
        assert isinstance(decided, Admission)
        accepted = [*accepted, *decided.new]
        assert accepted == expected == sorted(set(expected))
        assert decided.n == (expected.index(sent[-1]) + 1 if sent else 0)


def account(accepted: list[int], sent: list[int]) -> list[int] | None:
    """What is accepted after a report, one position at a time; None if one does not fit."""
    after = list(accepted)
    for position in sent:
        if position not in after:
            if any(earlier > position for earlier in after):
                return None
            after.append(position)
    return after
