"""Dependencies: the definitions of the Dyno paper, one by one, and what pure data traffic costs.

Relations are written `source.table`; updates are given in the order of arrival. What is counted in
the last tests is how often an update is looked at, so no clock decides.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.evolution.unsafe_orders import all_dependencies, unsafe_dependencies
from viewkeeper.evolution.correction import legal_order_of
from viewkeeper.evolution.dependencies import (
    Dependency,
    DependencyGraph,
    DependencyKind,
    ReceivedUpdate,
    Relations,
    reads_of,
)
from viewkeeper.simulate.campaigns.workload import define_view
from viewkeeper.view.definition import Relation


def rels(*names: str) -> Relations:
    return frozenset(Relation(*name.split(".")) for name in names)


def rows(id: int, relation: str, *reads: str) -> ReceivedUpdate:
    return ReceivedUpdate(id, relation.split(".")[0], rels(relation), rels(*reads))


def shape(id: int, relation: str, *reads: str, moves: bool = True) -> ReceivedUpdate:
    changed = rels(relation)
    return ReceivedUpdate(id, relation.split(".")[0], changed, rels(*reads), changed, moves)


def edges(*updates: ReceivedUpdate) -> set[tuple[int, int, str]]:
    return {(each.later, each.first, each.why.value) for each in all_dependencies(updates)}


def test_queries_that_read_what_is_reshaped_depend_on_it_concurrently() -> None:
    """Definition 4, cases 3 and 4; cases 1 and 2 are compensated and constrain nothing."""
    update, change = rows(1, "x.r", "y.s"), shape(2, "y.s", moves=False)
    assert edges(update, change) == {(1, 2, "concurrent")}
    one, other = shape(1, "x.r", "y.s"), shape(2, "y.s", "x.r")
    assert edges(one, other) == {(1, 2, "concurrent"), (2, 1, "concurrent")}
    assert edges(rows(1, "x.r", "y.s"), rows(2, "y.s", "x.r")) == set()
    assert edges(shape(1, "x.r", "y.s"), rows(2, "y.s")) == set()


def test_an_update_does_not_depend_on_itself() -> None:
    assert edges(shape(1, "x.r", "x.r", "y.s")) == set()


def test_what_moves_data_keeps_the_order_of_its_source() -> None:
    """Stricter than definition 5, which knows the relation only."""
    same = [rows(1, "x.r"), rows(2, "x.s"), shape(3, "x.t"), rows(4, "y.u")]
    assert edges(*same) == {(2, 1, "semantic"), (3, 2, "semantic")}


def test_a_rename_keeps_the_order_of_its_relation_only() -> None:
    renamed = shape(2, "x.r", moves=False)
    updates = [rows(1, "x.r"), renamed, rows(3, "x.s"), rows(4, "x.r")]
    # 3 keeps the order of the source after 1; 4 that of its relation after 2, of its source after 3
    assert edges(*updates) == {
        (2, 1, "semantic"),
        (3, 1, "semantic"),
        (4, 2, "semantic"),
        (4, 3, "semantic"),
    }


def test_names_are_shared_things_too() -> None:
    """B can take the name A only after A was given away (figure 6 is of this kind)."""
    away = ReceivedUpdate(1, "x", rels("x.#1", "x.A", "x.C"), breaks=rels("x.#1"), moves=False)
    taken = ReceivedUpdate(2, "x", rels("x.#2", "x.B", "x.A"), breaks=rels("x.#2"), moves=False)
    assert edges(away, taken) == {(2, 1, "semantic")}


def test_safe_and_unsafe() -> None:
    """Definition 7: it is the order that makes a dependency unsafe."""
    update, change = rows(1, "x.r", "y.s"), shape(2, "y.s", moves=False)
    found = all_dependencies([update, change])
    assert unsafe_dependencies(found, [1, 2]) == [Dependency(1, 2, DependencyKind.CONCURRENT)]
    assert unsafe_dependencies(found, [2, 1]) == []


@pytest.mark.parametrize(
    ("select", "changed", "expected"),
    [
        ("p.k AS c FROM x.r p, y.s q WHERE p.b = q.a", ["x.r"], ["y.s"]),
        ("p.k AS c FROM x.r p, y.s q WHERE p.b = q.a", ["x.r", "y.s"], ["x.r", "y.s"]),
        ("p.k AS c FROM x.r p, x.r q WHERE p.b = q.a", ["x.r"], ["x.r"]),
        ("p.k AS c FROM x.r p, y.s q WHERE p.b = q.a", ["z.t"], []),
        ("p.k AS c FROM x.r p", ["x.r"], []),
    ],
)
def test_what_maintenance_queries_read_follows_from_the_view(
    select: str, changed: list[str], expected: list[str]
) -> None:
    assert reads_of(define_view(f"SELECT {select}"), rels(*changed)) == rels(*expected)


class Counted:
    """Updates that count how often they are looked at."""

    def __init__(self, size: int) -> None:
        self.looks = 0
        self._updates = [rows(id, f"x.r{id % 3}", "y.s") for id in range(size)]

    def __len__(self) -> int:
        return len(self._updates)

    def __getitem__(self, at: int) -> ReceivedUpdate:
        self.looks += 1
        return self._updates[at]

    def __iter__(self) -> Iterator[ReceivedUpdate]:
        for at in range(len(self)):
            yield self[at]


def _no_graph(patch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> DependencyGraph:
        raise AssertionError("a graph was made")

    patch.setattr("viewkeeper.evolution.correction.graph_of", refuse)


@pytest.mark.parametrize("size", [10, 100, 1000])
def test_without_schema_changes_no_graph_is_made(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    _no_graph(monkeypatch)
    counted = Counted(size)
    order = legal_order_of(counted)  # type: ignore[arg-type]  # all of a sequence that is used
    assert [unit[0].id for unit in order] == list(range(size))
    assert counted.looks == 2 * size


def test_with_a_schema_change_a_graph_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    _no_graph(monkeypatch)
    updates = [rows(1, "x.r", "y.s"), shape(2, "y.s")]
    with pytest.raises(AssertionError, match="a graph was made"):
        legal_order_of(updates)
