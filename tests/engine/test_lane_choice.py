"""Which views advance apart: by what they are, what their batches took, and what is before them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import viewkeeper
from tests.engine.shop import LINES, Shop
from tests.engine.test_lanes import CITIES, SOUNDS
from viewkeeper.engine.lanes.lane_choice import APART_SECONDS, LaneChoice
from viewkeeper.view.definition import ViewDefinition

SLOW = 4 * APART_SECONDS
INLINE_ROWS = 1_000


@pytest.fixture
def views(tmp_path: Path) -> dict[str, ViewDefinition]:
    """Two views that need no Spark, and one that does."""
    shop = Shop(tmp_path, {"cities": CITIES, "lines": LINES, "sounds": SOUNDS})
    with viewkeeper.open(shop.folder) as project, closing(project.open_connections()) as sources:
        return {name: project.catalogue.bind_view(name, sources) for name in shop.views}


@pytest.fixture
def choice() -> LaneChoice:
    return LaneChoice(INLINE_ROWS)


def apart(choice: LaneChoice, views: dict[str, ViewDefinition], **changes: int) -> set[str]:
    counted = changes.__getitem__ if changes else None
    return {name for family in choice.divide_views(views, counted) for name in family}


def test_what_only_spark_evaluates_goes_apart_from_what_does_not(
    choice: LaneChoice, views: dict[str, ViewDefinition]
) -> None:
    assert apart(choice, views) == {"sounds"}
    assert "only Spark" in choice.reasons["sounds"]
    # Where there is nobody else, nobody gains by it.
    assert apart(choice, {"sounds": views["sounds"]}) == set()
    assert choice.reasons == {}


def test_one_slow_batch_says_nothing_three_do(
    choice: LaneChoice, views: dict[str, ViewDefinition]
) -> None:
    plain = {name: views[name] for name in ("cities", "lines")}
    for took in (SLOW, SLOW, 0.01, SLOW, SLOW):
        choice.note_batch({"cities": 0.01, "lines": took})
        assert apart(choice, plain) == set()
    choice.note_batch({"cities": 0.01, "lines": SLOW})
    assert apart(choice, plain) == {"lines"}
    assert "take 2.0 s" in choice.reasons["lines"]
    # It comes back when all of its last batches were quick.
    for took, found in ((0.01, {"lines"}), (0.01, {"lines"}), (0.01, set())):
        choice.note_batch({"lines": took})
        assert apart(choice, plain) == found


def test_equally_slow_views_stay_together(
    choice: LaneChoice, views: dict[str, ViewDefinition]
) -> None:
    plain = {name: views[name] for name in ("cities", "lines")}
    for _ in range(3):
        choice.note_batch({"cities": SLOW, "lines": SLOW * 1.5})
    assert apart(choice, plain) == set()
    for _ in range(3):
        choice.note_batch({"lines": SLOW * 10})
    assert apart(choice, plain) == {"lines"}


def test_many_changes_go_apart_unless_all_have_them(
    choice: LaneChoice, views: dict[str, ViewDefinition]
) -> None:
    plain = {name: views[name] for name in ("cities", "lines")}
    assert apart(choice, plain, cities=1, lines=INLINE_ROWS) == set()
    assert apart(choice, plain, cities=1, lines=INLINE_ROWS + 1) == {"lines"}
    assert "1,001 changes" in choice.reasons["lines"]
    assert apart(choice, plain, cities=INLINE_ROWS + 1, lines=INLINE_ROWS + 1) == set()


def test_a_family_that_somebody_waits_for_stays(
    choice: LaneChoice, views: dict[str, ViewDefinition]
) -> None:
    assert choice.divide_views(views, None, lambda: {"sounds"}) == []
    assert choice.divide_views(views, None, lambda: {"cities"}) == [frozenset({"sounds"})]
