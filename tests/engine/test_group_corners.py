"""Groups at bad moments: batches that are cut, sources and registries that are away at a start,
views that lag when a group closes, loads during which one begins. Nothing is lost or mixed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import viewkeeper
from tests.engine.fleet import BASES, PARENT, Fleet
from viewkeeper.engine.group import membership, order_client
from viewkeeper.engine.load import loader
from viewkeeper.engine.load.load_job import LoadedTables, load_view
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.report import SilentObserver
from viewkeeper.errors import RegistryAwayError, SourceAwayError
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.registry_address import open_registry
from viewkeeper.order.registry_protocol import MemberFacts
from viewkeeper.order.store.stored_registry import StoredRegistry
from viewkeeper.warehouse.metadata.coordination import read_coordination
from viewkeeper.warehouse.metadata.plan_files import BatchPlan


def agrees(fleet: Fleet) -> bool:
    """Whether every numbered state of the child is that of its parents."""
    numbers = {name: fleet.numbers(name) for name in ("v0", "v1")}
    for n, ts in numbers["v0"].items():
        if n == 0 or n not in numbers["v1"]:
            continue
        parents = fleet.state("v1", numbers["v1"][n])
        child = Counter({(i, north, south, north): c for (i, north, south), c in parents.items()})
        if fleet.state("v0", ts) != child:
            print(n, ts, fleet.state("v0", ts), child)
            return False
    return True


@pytest.mark.parametrize("algorithm", ["sweep", "pvm_cc"])
def test_a_batch_is_not_cut_inside_an_id(fleet: Fleet, algorithm: str) -> None:
    fleet.diamond()
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    settings = fleet.root / "v0" / "viewkeeper.yml"
    settings.write_text(settings.read_text() + f"algorithm: {algorithm}\nbatch: {{rows: 1}}\n")
    for value in range(1, 4):
        fleet.write("north", (0, value), (1, value))
        fleet.refresh("v1", "v2")
    assert not fleet.refresh("v0").waiting
    assert fleet.state("v0") == fleet.expected()["v0"]
    assert agrees(fleet)


@pytest.mark.parametrize("missing", ["v1/w", "north.db"])
def test_ids_wait_for_a_source_that_is_away_at_the_start(fleet: Fleet, missing: str) -> None:
    fleet.project("v1", BASES, PARENT)
    sql = "SELECT l.id, l.nv, l.sv, n.v AS again FROM one.lines l JOIN north.t n ON n.id = l.id"
    sources = {"one": "{kind: warehouse, path: ../v1}", "north": BASES["north"]}
    fleet.project("v0", sources, sql)
    fleet.refresh("v1", "v0", "v1", "v0")
    fleet.write("north", (0, 1))
    assert not fleet.refresh("v1").waiting
    there, hidden = fleet.root / missing, fleet.root / "hidden"
    there.rename(hidden)
    assert fleet.refresh("v0").waiting
    hidden.rename(there)
    assert not fleet.refresh("v0").waiting
    assert fleet.state("v0") == fleet.expected()["v0"]
    assert agrees(fleet)
    fleet.write("north", (0, 2))
    assert not fleet.refresh("v1", "v0").waiting
    assert agrees(fleet)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Loads wait until this is set."""
    go = threading.Event()

    def waits(*args: Any) -> LoadedTables:
        assert go.wait(60)
        return load_view(*args)

    monkeypatch.setattr(loader, "load_view", waits)
    monkeypatch.setattr(membership, "JOIN_SECONDS", 0.0)
    yield go
    go.set()


@contextmanager
def maintained(fleet: Fleet, name: str, *full_refresh: str) -> Iterator[Maintainer]:
    """A project that is maintained step by step."""
    with (
        viewkeeper.open(fleet.root / name, spark=fleet.spark) as project,
        project.open_maintainer("run", SilentObserver()) as maintainer,
    ):
        maintainer.start_run(full_refresh)
        yield maintainer
        maintainer.finish_loads()


def step(maintainer: Maintainer, times: int = 5) -> None:
    for _ in range(times):
        maintainer.see_commits()
        maintainer.maintain_views()
        time.sleep(0.05)


def test_a_group_that_begins_during_a_load_loses_nothing(
    fleet: Fleet, held: threading.Event
) -> None:
    fleet.project("v1", BASES, PARENT)
    with maintained(fleet, "v1") as v1:
        step(v1)
        assert v1.loader.is_busy
        fleet.write("north", (0, 1))
        registry = open_registry("registry.db", fleet.root)
        registry.join_registry("other", MemberFacts({"north": ("t",)}, ("v1",)))
        registry.close()
        step(v1)
        held.set()
        v1.finish_loads()
        fleet.write("south", (0, 1))
        step(v1)
    told = read_coordination(fleet.root / "v1" / "w")
    assert told is not None
    assert [span.alone for span in told.spans] == [True, False]
    assert fleet.state("v1") == fleet.expected()["v1"]


def passed(root: Path, identity: str) -> bool:
    """Whether a warehouse has passed ids of a group."""
    told = read_coordination(root)
    return told is not None and (told.spans[-1].identity, told.spans[-1].n > 0) == (identity, True)


def test_what_a_view_lacks_of_another_order_is_no_number_of_this_one(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "JOIN_SECONDS", 0.0)
    fleet.diamond()
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    for value in range(5):
        fleet.write("north", (0, value))
        fleet.refresh("v1", "v2", "v0")
    registry = open_registry("registry.db", fleet.root)
    with maintained(fleet, "v1") as v1:
        fleet.write("north", (0, 7))
        v1.see_commits()
        v1.see_commits()
        lacking = BatchPlan(v1.store.next_plan, v1.lookout.sightings.take_entries())
        assert lacking.entries
        v1.store.write_plan(lacking)
        v1.store.commit([], lacking.n)
        found = registry.join_registry(
            "other", MemberFacts({"north": ("t",), "west": ("t",)}, ("v1",))
        )
        west = registry.claim_source(found.group, "west", "other", 60.0)
        assert west is not None
        registry.register_ids(found.group, [GlobalId("west", 1)], west)
        fleet.refresh("v2", "v0")
        end = time.monotonic() + 5
        while not passed(v1.store.local_root, found.identity):
            assert time.monotonic() < end
            v1.see_commits()
            time.sleep(0.05)
        v1.maintain_views()
    registry.close()
    assert fleet.state("v1") == fleet.expected()["v1"]


def test_a_registry_that_is_away_at_the_start(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.diamond()
    fleet.refresh("v1", "v2", "v0", "v1", "v2")
    with monkeypatch.context() as patched:

        def away(*_: object) -> None:
            raise RegistryAwayError("registry.db", "it does not answer")

        with maintained(fleet, "v0") as v0:
            patched.setattr(StoredRegistry, "join_registry", away)
            step(v0)
            patched.undo()
            time.sleep(order_client.RETRY_SECONDS)
            step(v0)
            v0.finish_loads()
            assert not v0.waiting_views()
    assert fleet.state("v0") == fleet.expected()["v0"]


def test_a_reporter_that_cannot_see_a_source_lets_others_report(fleet: Fleet) -> None:
    fleet.diamond()
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    with maintained(fleet, "v1") as v1:
        step(v1)
        v1.workspace.connections.note_error(SourceAwayError("north", "the network is down"))
        v1.see_commits()
        fleet.write("north", (0, 1))
        assert not fleet.refresh("v2").waiting
    assert fleet.state("v2") == fleet.expected()["v2"]


def test_a_parent_that_is_being_loaded_again_is_waited_for(
    fleet: Fleet, held: threading.Event
) -> None:
    held.set()
    fleet.diamond()
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    held.clear()
    with maintained(fleet, "v0") as v0:
        step(v0)
        with maintained(fleet, "v2", "lines") as v2:
            step(v2)
            fleet.write("north", (0, 1))
            step(v2)
            fleet.refresh("v1")
            assert v2.store.head.refreshes == ("lines",)
            step(v0)
            assert "lines" in v0.waiting_views()
            held.set()
            v2.finish_loads()
            step(v2)
        end = time.monotonic() + 10
        while v0.waiting_views() and time.monotonic() < end:
            step(v0, 1)
            v0.finish_loads()
        assert not v0.waiting_views()
    assert fleet.state("v0") == fleet.expected()["v0"]
