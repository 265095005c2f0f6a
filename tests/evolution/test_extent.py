"""Extents compose, and what is allowed step by step is allowed together."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from viewkeeper.evolution.extent import Extent

PAIRS = list(itertools.product(Extent, Extent))
HOLDS: dict[Extent, Callable[[frozenset[str], frozenset[str]], bool]] = {
    Extent.EQUAL: lambda new, old: new == old,
    Extent.SUBSET: lambda new, old: new <= old,
    Extent.SUPERSET: lambda new, old: new >= old,
    Extent.ANY: lambda new, old: True,
}
SETS = [frozenset(each) for n in range(3) for each in itertools.combinations("ab", n)]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_composition_is_the_strongest_that_holds_of_all_sets(one: Extent, other: Extent) -> None:
    chains = [
        (first, last)
        for first, middle, last in itertools.product(SETS, repeat=3)
        if HOLDS[one](middle, first) and HOLDS[other](last, middle)
    ]
    holding = {e for e in Extent if all(HOLDS[e](last, first) for first, last in chains)}
    assert one.followed_by(other) in holding
    assert all(e.can_accept(one.followed_by(other)) for e in holding)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_view_allows_what_implies_what_it_wants(one: Extent, other: Extent) -> None:
    implied = all(HOLDS[one](new, old) for new in SETS for old in SETS if HOLDS[other](new, old))
    assert one.can_accept(other) is implied


def test_composition_has_a_neutral_element_and_does_not_depend_on_order() -> None:
    for one, other in PAIRS:
        assert Extent.EQUAL.followed_by(one) is one is one.followed_by(Extent.EQUAL)
        assert one.followed_by(other) is other.followed_by(one)
