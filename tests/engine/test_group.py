"""Projects that name a registry, maintained in turns by one process: the diamond of Example 1.

Every state of every view is asked for by the number of the id that made it, and compared with the
join over the recorded states of the two databases.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import viewkeeper
from tests.engine.fleet import BASES, CHILD, PARENT, SHARED, Fleet
from viewkeeper.engine.group.membership import Membership
from viewkeeper.engine.settings.project_file import read_registry
from viewkeeper.errors import IdentityError, ProjectError
from viewkeeper.order.mediator import Mediator
from viewkeeper.order.registry_address import open_registry
from viewkeeper.order.registry_protocol import MemberFacts
from viewkeeper.warehouse.metadata.coordination import read_coordination
from viewkeeper.warehouse.metadata.head import read_head


def test_a_diamond_agrees_at_every_number(fleet: Fleet) -> None:
    fleet.diamond()
    first = fleet.refresh("v1", "v2", "v0")
    assert "has not come to" in first.waiting["lines"], "its parents do not know of the group yet"
    assert not fleet.refresh("v1", "v2", "v0").waiting
    for value in range(1, 6):
        fleet.write("north", (0, value), (1, value))
        fleet.refresh("v1")
        fleet.write("south", (1, value), (value, value))
        fleet.refresh("v2", "v1", "v2")
        assert fleet.state("v1") == fleet.state("v2") == fleet.expected()["v1"]
        if value % 2:
            assert not fleet.refresh("v0").waiting
            assert fleet.state("v0") == fleet.expected()["v0"]
    assert not fleet.refresh("v0").waiting
    by_number = {name: fleet.numbers(name) for name in ("v0", "v1", "v2")}
    assert by_number["v0"].keys() == by_number["v1"].keys() == by_number["v2"].keys()
    assert len(by_number["v0"]) >= 10
    for n in by_number["v0"]:
        parents = fleet.state("v1", by_number["v1"][n])
        assert parents == fleet.state("v2", by_number["v2"][n])
        child = Counter({(i, north, south, north): c for (i, north, south), c in parents.items()})
        assert fleet.state("v0", by_number["v0"][n]) == child


@pytest.mark.parametrize("algorithm", ["sweep", "pvm_cc"])
def test_algorithms_that_show_every_state_take_an_id_that_moves_two_parents(
    fleet: Fleet, algorithm: str
) -> None:
    fleet.diamond()
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    settings = fleet.root / "v0" / "viewkeeper.yml"
    settings.write_text(settings.read_text() + f"algorithm: {algorithm}\n")
    for value in range(1, 4):
        fleet.write("north", (0, value), (1, value))
        fleet.refresh("v1", "v2")
        fleet.write("south", (1, value), (2, value))
        fleet.refresh("v2", "v1", "v2")
    assert not fleet.refresh("v0").waiting
    assert fleet.state("v0") == fleet.expected()["v0"]
    for n, ts in fleet.numbers("v0").items():
        parents = fleet.state("v1", fleet.numbers("v1")[n])
        child = Counter({(i, north, south, north): c for (i, north, south), c in parents.items()})
        assert fleet.state("v0", ts) == child


def test_a_child_that_comes_later_joins_two_groups(fleet: Fleet) -> None:
    """Before it there is nobody to agree with, so nothing is numbered."""
    fleet.diamond()
    fleet.refresh("v1", "v2")
    fleet.write("north", (0, 7))
    fleet.refresh("v1", "v2")
    assert set(fleet.numbers("v1")) == {0}
    fleet.refresh("v0", "v1", "v2", "v0")
    fleet.write("south", (0, 7))
    assert not fleet.refresh("v1", "v2", "v0").waiting
    assert fleet.state("v0") == fleet.expected()["v0"]
    with_child = read_coordination(fleet.root / "v1" / "w")
    assert with_child is not None
    assert [span.alone for span in with_child.spans] == [True, False]
    registry = open_registry("registry.db", fleet.root)
    registry.leave_registry("v0")
    registry.close()
    fleet.write("south", (0, 8))
    assert not fleet.refresh("v1", "v2").waiting
    assert fleet.state("v1") == fleet.state("v2") == fleet.expected()["v1"]
    alone_again = read_coordination(fleet.root / "v1" / "w")
    assert alone_again is not None
    assert alone_again.spans[-1].alone


def test_a_view_is_not_loaded_over_parents_that_stand_apart(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them was alone, and took the same transactions in its own time."""
    fleet.diamond()
    fleet.refresh("v1", "v2")
    fleet.write("north", (0, 5))
    fleet.refresh("v1")
    fleet.refresh("v0", "v1")
    with monkeypatch.context() as patch:
        # It comes to the group, and takes nothing there yet.
        patch.setattr(Mediator, "take_ids", lambda self, limit: [])
        patch.setattr(Membership, "note_taken", lambda self, n, now=False: False)
        fleet.refresh("v2")
    waits = fleet.refresh("v0").waiting["lines"]
    assert "has not come to" in waits or "do not show one state" in waits
    assert "lines" not in read_head(fleet.root / "v0" / "w").views
    assert not fleet.refresh("v2", "v1", "v2", "v0").waiting
    assert fleet.state("v0") == fleet.expected()["v0"]
    assert all(again == north for _, north, _, again in fleet.state("v0"))


def test_a_member_over_a_base_and_a_parent_over_the_same_base(fleet: Fleet) -> None:
    fleet.project("v1", BASES, PARENT)
    sql = "SELECT l.id, l.nv, l.sv, n.v AS again FROM one.lines l JOIN north.t n ON n.id = l.id"
    sources = {"one": "{kind: warehouse, path: ../v1}", "north": BASES["north"]}
    fleet.project("v0", sources, sql)
    fleet.refresh("v1", "v0", "v1", "v0")
    for value in range(1, 4):
        fleet.write("north", (0, value), (1, value))
        fleet.refresh("v0", "v1")
        fleet.write("south", (0, value))
        assert not fleet.refresh("v1", "v0").waiting
        assert fleet.state("v0") == fleet.expected()["v0"]
    for ts in fleet.numbers("v0").values():
        assert all(north == again for _, north, _, again in fleet.state("v0", ts))


def test_a_view_that_is_loaded_again_begins_at_a_number(fleet: Fleet) -> None:
    fleet.diamond()
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    fleet.write("north", (0, 1))
    fleet.refresh("v1", "v2")
    with viewkeeper.open(fleet.root / "v2", spark=fleet.spark) as project:
        project.refresh(full_refresh=["lines"])
    # Nothing is committed meanwhile: v1 reports, so that there is a number to begin at.
    assert not fleet.refresh("v1", "v2").waiting
    fleet.refresh("v0")
    fleet.write("south", (0, 1))
    assert not fleet.refresh("v1", "v2", "v0", "v0").waiting
    assert fleet.state("v2") == fleet.expected()["v2"]
    assert fleet.state("v0") == fleet.expected()["v0"]


def test_another_registry_is_not_taken_for_the_first(fleet: Fleet) -> None:
    fleet.diamond()
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    before = fleet.state("v0")
    (fleet.root / "registry.db").rename(fleet.root / "old.db")
    fleet.write("north", (0, 9))
    with_new = open_registry("registry.db", fleet.root)
    with_new.join_registry("somebody", MemberFacts({"north": ("t",)}))
    with_new.close()
    with pytest.raises(IdentityError):
        fleet.refresh("v1")
    (fleet.root / "old.db").rename(fleet.root / "registry.db")
    assert not fleet.refresh("v1", "v2", "v0").waiting
    assert fleet.state("v0") == fleet.expected()["v0"] != before


def test_an_algorithm_that_hides_states_is_refused(fleet: Fleet) -> None:
    fleet.diamond()
    settings = fleet.root / "v1" / "viewkeeper.yml"
    settings.write_text(settings.read_text() + "algorithm: nested_sweep\n")
    with pytest.raises(ProjectError, match="nested_sweep cannot be used") as refused:
        fleet.refresh("v1")
    assert "sweep, pvm_cc, batch_sweep" in str(refused.value)


def test_a_parent_without_the_registry_is_refused(fleet: Fleet) -> None:
    fleet.project("v1", BASES, PARENT, registry="")
    fleet.project("v2", BASES, PARENT)
    fleet.project("v0", SHARED, CHILD)
    with pytest.raises(ProjectError, match=r'source "left_": the project in .*v1 has no registry'):
        fleet.refresh("v0")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"member": "x"}, '"registry.url" is missing'),
        ({"url": "r.db", "grup": "x"}, 'unknown key "registry.grup"'),
        ({"url": 7}, '"registry.url" must be a text'),
        (["r.db"], "must be an address"),
    ],
)
def test_settings_that_cannot_be(raw: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=message):
        read_registry(raw, tmp_path, "viewkeeper.yml")


def test_a_project_is_called_like_its_folder(tmp_path: Path) -> None:
    short = read_registry("r.db", tmp_path / "orders", "viewkeeper.yml")
    long = read_registry({"url": "r.db", "member": "other", "together": "x"}, tmp_path, "y")
    assert short is not None
    assert (short.member, short.together) == ("orders", "")
    assert long is not None
    assert (long.member, long.together) == ("other", "x")
