"""Deliberately broken Dynos: each mistake must be found out by the judge within few seeds.

The switches are here, not in the product. The unbroken machine passes the very same seeds
(`test_reshaping.py`). Where the general workload is too tame for a mistake, it gets a scene of its
own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from tests.evolution.scenes import change, follow_reshaped, insert, scene, steps, table
from viewkeeper.errors import SimulationError
from viewkeeper.evolution import correction, dependencies
from viewkeeper.evolution.correction import Unit
from viewkeeper.evolution.dependencies import DependencyGraph, ReceivedUpdate
from viewkeeper.evolution.dyno import unit_work
from viewkeeper.evolution.dyno.dyno_events import Action
from viewkeeper.evolution.dyno.dyno_loop import OPTIMISTIC, Detection, Dyno, DynoSetting
from viewkeeper.evolution.dyno.unit_work import RowMaintenance
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.simulate.schema_changes.reshaped_campaign import (
    find_shortfall,
    judge_reshaped,
    world_of,
)
from viewkeeper.simulate.schema_changes.reshaped_tables import RenameOperation
from viewkeeper.simulate.schema_changes.reshaped_world import (
    ReshapedWorld,
    play_reshaped,
)

SEEDS = 25
Break = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is broken, and the setting in which that must show."""

    name: str
    setting: DynoSetting
    apply: Break | None = None


def forget_the_order_of_sources(patch: pytest.MonkeyPatch) -> None:
    """Semantic dependencies per relation only, as the paper has them."""
    whole = dependencies.graph_of

    def graph_of(updates: Sequence[ReceivedUpdate]) -> DependencyGraph:
        return whole([replace(update, moves=False) for update in updates])

    patch.setattr(correction, "graph_of", graph_of)


def merge_nothing(patch: pytest.MonkeyPatch) -> None:
    """A cycle is cut somewhere instead."""
    legal = correction.legal_order_of

    def alone(updates: Sequence[ReceivedUpdate]) -> tuple[Unit, ...]:
        return tuple((update,) for unit in legal(updates) for update in unit)

    patch.setattr("viewkeeper.evolution.dyno.dyno_loop.legal_order_of", alone)


def keep_what_is_undone(patch: pytest.MonkeyPatch) -> None:
    """What an aborted run held back goes into the next one."""
    undo, init = Dyno._undo_work, RowMaintenance.__init__
    left: list[RowMaintenance] = []

    def forgetful(dyno: Dyno) -> list[Action]:
        left[:] = [dyno._work] if isinstance(dyno._work, RowMaintenance) else []
        return undo(dyno)

    def begin(running: RowMaintenance, *given: object) -> None:
        init(running, *given)  # type: ignore[arg-type]  # whatever it was given
        if left:
            running._held += left.pop()._held

    patch.setattr(Dyno, "_undo_work", forgetful)
    patch.setattr(RowMaintenance, "__init__", begin)


def go_on_after_a_broken_query(patch: pytest.MonkeyPatch) -> None:
    """The work is forgotten, and its reports are taken for done."""
    undo = Dyno._undo_work

    def careless(dyno: Dyno) -> list[Action]:
        assert dyno._work is not None
        stamped, commit = dyno._finish_reports(dyno._work.unit, [])
        return [stamped, commit, *undo(dyno)]

    patch.setattr(Dyno, "_undo_work", careless)


def compensate_nothing(patch: pytest.MonkeyPatch) -> None:
    """Adaptation takes what it reads for the state that it wants."""
    whole = unit_work.Rereading.take_reply
    patch.setattr(unit_work.Rereading, "take_reply", lambda mine, event, _: whole(mine, event, ()))


SWEEP, BATCH = DynoSetting("sweep"), DynoSetting("batch_sweep", OPTIMISTIC)

MISTAKES = (
    Mistake("no semantic order per source", BATCH, forget_the_order_of_sources),
    Mistake("no merging, by name", SWEEP, merge_nothing),
    Mistake("no merging, by handle", DynoSetting("sweep", asking="handle"), merge_nothing),
    Mistake("no detection after, sweep", DynoSetting("sweep", Detection(after=False))),
    Mistake("no detection after, pvm", DynoSetting("pvm", Detection(after=False))),
    Mistake("no detection during", DynoSetting("sweep", Detection(during=False))),
    Mistake("detection before alone", DynoSetting("sweep", Detection(True, False, False))),
    Mistake("no second attempt", SWEEP, go_on_after_a_broken_query),
    Mistake("no compensation of what was read", SWEEP, compensate_nothing),
)


def _is_right(setting: DynoSetting, seed: int) -> bool:
    world = world_of(setting, seed)
    try:
        play_reshaped(world, random.Random(f"{seed} pace"))
    except (AssertionError, SimulationError, KeyError):
        return False  # a machine that trips over itself, or never ends, is found out
    return find_shortfall(world, judge_reshaped(world)) is None


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_found_within_few_seeds(
    monkeypatch: pytest.MonkeyPatch, mistake: Mistake
) -> None:
    if mistake.apply is not None:
        mistake.apply(monkeypatch)
    found = next((seed for seed in range(SEEDS) if not _is_right(mistake.setting, seed)), None)
    assert found is not None


OUT_OF_ORDER = """
commit x
deliver x
commit x
commit y
deliver x
deliver y
evaluate y
deliver y
evaluate x
deliver x
commit y
evaluate y
"""
"""The second insert of x and the one of y are at work together; that of y is ready and waits for
the other, whose question to y then breaks."""


@pytest.mark.parametrize("broken", [False, True])
def test_what_an_aborted_run_held_back_is_undone(
    monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    r, s = table(1, "r", "ab", (1, 7)), table(2, "s", "bc", (7, 70))
    scenario = scene(
        "SELECT p.a AS a, q.c AS c FROM x.r p, y.s q WHERE p.b = q.b",
        [("x", r), ("y", s)],
        [((0, "b"), (1, "b"))],
        {"a": (0, "a"), "c": (1, "c")},
        {"x": [r], "y": [s]},
        [
            change("x", insert(1, (2, 7))),
            change("x", insert(1, (3, 7))),
            change("y", insert(2, (7, 71))),
            change("y", RenameOperation(2, "t")),
        ],
    )
    if broken:
        keep_what_is_undone(monkeypatch)
    world = ReshapedWorld(scenario, DynoSetting("pvm"))
    steps(world, OUT_OF_ORDER)
    assert world.broken == 1
    follow_reshaped(world, [])
    assert world.dyno.aborts == 1
    assert (judge_reshaped(world) >= Level.STRONG) is not broken
