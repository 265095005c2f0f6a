"""Campaigns with schema changes: seeds of one inner algorithm under one setting of Dyno.

A seed determines the scenario and the pace; neither the algorithm nor the setting goes into the
scenario, so that all of them meet the same worlds. Strong consistency is demanded of every run, and
complete where all schema changes keep values and the inner algorithm is complete.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from viewkeeper.evolution.dyno.dyno_loop import OPTIMISTIC, PESSIMISTIC, Detection, DynoSetting
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.promises import Level
from viewkeeper.simulate.campaigns.algorithm_campaign import SeedOutcome
from viewkeeper.simulate.schema_changes.reshaped_judge import first_fault, level_of
from viewkeeper.simulate.schema_changes.reshaped_workload import random_reshaped_scenario
from viewkeeper.simulate.schema_changes.reshaped_world import ReshapedWorld, play_reshaped

ALGORITHMS = ("sweep", "pvm", "batch_sweep")

SETTINGS: dict[str, DynoSetting] = {
    "pessimistic": DynoSetting(detection=PESSIMISTIC),
    "optimistic": DynoSetting(detection=OPTIMISTIC),
    "handles": DynoSetting(
        detection=Detection(before=True, during=True, after=False), asking="handle"
    ),
}
"""By name with all three detections; by name without the first; by handle, where nothing has to be
detected afterwards."""


@dataclass(frozen=True, slots=True)
class ReshapedCell:
    """What a campaign is about: an inner algorithm, and how schema changes are noticed."""

    algorithm: str
    setting: str

    @property
    def name(self) -> str:
        return f"{self.algorithm}, {self.setting}"

    @property
    def promised_level(self) -> Level:
        return Level.STRONG

    @property
    def dyno_setting(self) -> DynoSetting:
        base = SETTINGS[self.setting]
        return DynoSetting(self.algorithm, base.detection, base.asking)

    def replay_command(self, seed: int) -> str:
        """What replays a seed."""
        return (
            f"viewkeeper simulate --schema-changes {self.setting} --algorithm {self.algorithm}"
            f" --seed {seed}"
        )

    def judge_seed(self, seed: int) -> SeedOutcome:
        """Run a seed and judge it."""
        world = world_of(self.dyno_setting, seed)
        error = None
        found = Level.NONE
        try:
            play_reshaped(world, random.Random(f"{seed} pace"))
            found = judge_reshaped(world)
            error = find_shortfall(world, found)
        except Exception as raised:  # noqa: BLE001 - whatever is raised is this seed's outcome
            error = f"{type(raised).__name__}: {raised}"
        updates = len(world.scenario.transactions)
        return SeedOutcome(
            seed, found, found, updates, world.asked, 0, error, count_reshaped_facts(world)
        )


def count_reshaped_facts(world: ReshapedWorld) -> dict[str, int]:
    """What happened in a run that a table of runs should say."""
    reshaping = [t for t in world.scenario.transactions if t.kind != "rows"]
    return {
        "schema changes": len(reshaping),
        "broken": world.broken,
        "undone": world.dyno.aborts,
        "merged": world.dyno.merged,
        "kept": world.scenario.keeps_values,
    }


def world_of(setting: DynoSetting, seed: int) -> ReshapedWorld:
    """The world of a seed, before its first step."""
    return ReshapedWorld(random_reshaped_scenario(random.Random(f"{seed} scenario")), setting)


def judge_reshaped(world: ReshapedWorld) -> Level:
    """The level of a run; where the inner algorithm promises states as of every ts, of these, but
    not more than strong if a reader of the newest state sees less."""
    newest = level_of(world.judge, world.store.states)
    if newest < Level.STRONG or not KINDS[world.setting.algorithm].as_of:
        return newest
    return level_of(world.judge, world.store.as_of)


def find_shortfall(world: ReshapedWorld, found: Level) -> str | None:
    """What is wrong, if the run is below what it must be."""
    wrong = first_fault(world.judge, world.store.states)
    if found < Level.STRONG:
        return "not strong" if wrong is None else wrong.what
    complete = min(KINDS[world.setting.algorithm].promise.values()) is Level.COMPLETE
    if complete and world.scenario.keeps_values and found < Level.COMPLETE:
        return "not complete, though all schema changes keep values"
    return None
