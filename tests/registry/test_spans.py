"""A parent that has been in many groups: children that are far behind walk on, or are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.registry.parents import BuiltParent, child_of
from viewkeeper.errors import GapError
from viewkeeper.warehouse.metadata import coordination
from viewkeeper.warehouse.metadata.coordination import (
    Coordination,
    GroupSpan,
    needed_spans,
    read_coordination,
    write_coordination,
)


def spans(count: int, first: int = 1) -> tuple[GroupSpan, ...]:
    """Groups that were opened one after the other, with ten ts each."""
    return tuple(
        GroupSpan(f"g{at}", f"identity {at}", 10 * (at - 1), 5, 10 * at, False, at)
        for at in range(first, first + count)
    )


@pytest.mark.parametrize(
    ("ts", "first"),
    [(None, 201), (2_500, 201), (2_010, 201), (1_985, 199), (1_980, 198), (1_000, 100), (0, 1)],
)
def test_spans_are_kept_as_long_as_a_child_needs_them(ts: int | None, first: int) -> None:
    kept = needed_spans(spans(300), ts)
    assert kept[0].opened == first
    assert kept[-1].opened == 300


def test_there_is_an_end_to_it() -> None:
    assert len(needed_spans(spans(5_000), 0)) == coordination.SPANS_MAX


def test_a_child_that_waits_for_a_group_that_was_forgotten_is_told(
    parent: BuiltParent, tmp_path: Path
) -> None:
    """Before, it waited for ever."""
    source = child_of(parent, tmp_path / "reports")
    parent.commit({"lines": {}}, numbers={2: 1})
    write_coordination(parent.root, Coordination("orders", spans(100, first=101)))
    assert source.group_marks("identity 150") is not None
    assert source.group_marks("identity 7") is None
    with pytest.raises(GapError, match="does not say any more what it took") as gap:
        source.group_marks("identity 7", needed=7)
    assert "viewkeeper refresh" in (gap.value.hint or "")
    # One that it has not come to yet is waited for.
    assert source.group_marks("identity 201", needed=201) is None


def test_what_was_written_before_says_nothing_of_it(parent: BuiltParent, tmp_path: Path) -> None:
    source = child_of(parent, tmp_path / "reports")
    old = tuple(GroupSpan(s.group, s.identity, s.since, s.n, s.ts) for s in spans(3))
    write_coordination(parent.root, Coordination("orders", old))
    assert read_coordination(parent.root) == Coordination("orders", old)
    assert source.group_marks("identity 7", needed=7) is None
