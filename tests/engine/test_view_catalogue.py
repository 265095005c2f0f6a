"""What a view is made from, through other views."""

from __future__ import annotations

from collections.abc import Iterator

from viewkeeper.engine.views.view_catalogue import follow_parents


def test_each_view_is_visited_once_however_many_ways_lead_to_it() -> None:
    """Forty layers of two views, each of which reads both below: 2 to the 40 ways."""
    asked = 0

    def parents_of(name: str) -> Iterator[str]:
        nonlocal asked
        asked += 1
        layer = int(name[1:])
        return iter(() if layer == 0 else (f"a{layer - 1}", f"b{layer - 1}"))

    found = follow_parents("a40", parents_of)
    assert found[:3] == ("a40", "a39", "a38")
    assert {*found} == {"a40", *(f"{side}{layer}" for side in "ab" for layer in range(40))}
    assert asked == len(found) == 81
