"""Groups that change while a member is away, and a registry that is lost: the ways back."""

from __future__ import annotations

import viewkeeper
from tests.engine.fleet import Fleet
from viewkeeper.order.registry_address import open_registry
from viewkeeper.order.registry_protocol import MemberFacts
from viewkeeper.warehouse.metadata.coordination import read_coordination


def test_a_member_that_was_away_while_groups_changed_twice(fleet: Fleet) -> None:
    fleet.diamond()
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    fleet.write("north", (0, 1))
    fleet.refresh("v1", "v2")
    registry = open_registry("registry.db", fleet.root)
    registry.join_registry("guest", MemberFacts({"north": ("t",)}, ("v0",)))
    fleet.write("north", (0, 2))
    fleet.write("south", (0, 2))
    fleet.refresh("v1", "v2", "v1")
    fleet.write("north", (0, 3))
    fleet.refresh("v1", "v2")
    registry.leave_registry("guest")
    fleet.write("south", (0, 3))
    fleet.refresh("v1", "v2", "v1")
    fleet.write("north", (0, 4))
    registry.close()
    fleet.refresh("v1", "v2", "v1", "v0")
    assert not fleet.refresh("v1", "v2", "v0").waiting
    assert fleet.state("v0") == fleet.expected()["v0"]
    told = read_coordination(fleet.root / "v0" / "w")
    assert told is not None
    assert len(told.spans) == 3


def test_a_registry_that_is_lost_for_good(fleet: Fleet) -> None:
    fleet.diamond()
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    fleet.write("north", (0, 1))
    fleet.refresh("v1", "v2", "v0")
    (fleet.root / "registry.db").unlink()
    registry = open_registry("registry.db", fleet.root)
    registry.join_registry("somebody", MemberFacts({"elsewhere": ("t",)}))
    registry.close()
    for name in ("v1", "v2", "v0"):
        with viewkeeper.open(fleet.root / name, spark=fleet.spark) as project:
            project.refresh(full_refresh=["lines"])
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    fleet.write("south", (0, 1))
    assert not fleet.refresh("v1", "v2", "v1", "v0").waiting
    assert fleet.state("v0") == fleet.expected()["v0"]
