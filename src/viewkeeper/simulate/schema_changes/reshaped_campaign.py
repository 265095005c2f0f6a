"""Campaigns with schema changes: seeds of one inner algorithm under one setting of Dyno.

A seed determines the scenario and the pace; neither the algorithm nor the setting goes into the
scenario, so that all of them meet the same worlds. Strong consistency is demanded of every run, and
complete where all schema changes keep values and the inner algorithm is complete.

A view is a chain of two or three places over two or three sources, sometimes with a relation at two
places. Beside its tables there are *stand-ins*, followed from the start, and *shadows*: tables that
the view does not read but that have the same columns, so that a swap of names is not noticed by a
query that succeeds.

The generator says with every change what it means for the view (`changes`); the judge believes that
and nothing else.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from viewkeeper.evolution.dyno.dyno_loop import OPTIMISTIC, PESSIMISTIC, Detection, DynoSetting
from viewkeeper.evolution.dyno.rewriter import SubstituteTable, Wishes
from viewkeeper.evolution.dyno.table_identity import DynoColumn, DynoShape, Key
from viewkeeper.evolution.extent import Extent
from viewkeeper.evolution.preferences import NamedParts, Preferences
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.simulate.campaigns.algorithm_campaign import SeedOutcome
from viewkeeper.simulate.schema_changes.reshaped_judge import first_fault, level_of
from viewkeeper.simulate.schema_changes.reshaped_scenario import (
    PlaceMeaning,
    ReshapedScenario,
    ReshapedTransaction,
    ShownOutput,
    Sketch,
)
from viewkeeper.simulate.schema_changes.reshaped_tables import ReshapedTable
from viewkeeper.simulate.schema_changes.reshaped_world import ReshapedWorld, play_reshaped
from viewkeeper.simulate.schema_changes.scenario_model import (
    ScenarioModel,
    random_rows,
    random_schema_change,
    random_writes,
)

LETTERS = "abvw"


def random_reshaped_scenario(rng: random.Random) -> ReshapedScenario:
    """A scenario; some have only schema changes that keep values."""
    model, wishes, start = _random_start(rng)
    kept_only = rng.random() < 0.4
    made: list[ReshapedTransaction] = []
    for _ in range(rng.randint(6, 14)):
        source = rng.choice(sorted(model.tables))
        if rng.random() < 0.4:
            transaction = random_schema_change(model, source, kept_only)
        else:
            transaction = ReshapedTransaction(
                source, tuple(random_writes(model, source, rng.randint(1, 2)))
            )
        if transaction is not None and transaction.operations:
            made.append(transaction)
            if transaction.kind == "rows":
                model.commit_operations(source, list(transaction.operations))
    return ReshapedScenario(
        start[0], model.sketch, start[1], wishes, tuple(made), fifo=rng.random() < 0.5
    )


def _random_start(
    rng: random.Random,
) -> tuple[ScenarioModel, Wishes, tuple[str, dict[str, dict[int, ReshapedTable]]]]:
    sources = ["x", "y", "z"][: rng.choice([2, 2, 3])]
    ids = count(1)
    tables: dict[str, dict[int, ReshapedTable]] = {source: {} for source in sources}

    def add(source: str, name: str, letters: str) -> tuple[Key, dict[str, int]]:
        columns = tuple(DynoColumn(next(ids), letter, pa.int64()) for letter in letters)
        shape = DynoShape(next(ids), name, columns)
        tables[source][shape.id] = ReshapedTable(shape, random_rows(rng, len(letters)))
        plain = zip(LETTERS, columns, strict=True)
        return (source, shape.id), {letter: column.id for letter, column in plain}

    used: list[PlaceMeaning] = []
    for number in range(rng.choice([2, 3, 3])):
        source = sources[number % len(sources)] if number < 2 else rng.choice(sources)
        used.append(PlaceMeaning(*add(source, f"r{number + 1}", LETTERS)))
    if len(used) == 2 and rng.random() < 0.3:
        used.append(used[0])
    for number, source in enumerate(sources):
        if not tables[source] or rng.random() < 0.6:
            add(source, f"s{number + 1}", LETTERS)
    stand_ins = []
    for number, meaning in enumerate(dict.fromkeys(m.table for m in used)):
        if rng.random() < 0.7:
            columns = next(m.columns for m in used if m.table == meaning)
            letters = LETTERS if rng.random() < 0.5 else "cdef"
            key, theirs = add(rng.choice(sources), f"t{number + 1}", letters)
            mapped = {columns[letter]: theirs[letter] for letter in LETTERS}
            stand_ins.append(SubstituteTable(meaning, key, mapped, rng.choice(list(Extent))))
    sketch = _random_sketch(rng, used)
    dispensable = frozenset(
        o.name for o in sketch.outputs if o.letter == "w" and rng.random() < 0.7
    )
    preferences = Preferences(Extent.ANY, NamedParts(columns=dispensable))
    wishes = Wishes(preferences, tuple(stand_ins))
    names = {m.table: tables[m.table[0]][m.table[1]].shape.name for m in used}
    model = ScenarioModel(
        rng,
        {s: dict(t) for s, t in tables.items()},
        sketch,
        list(used),
        wishes.stand_ins,
        dispensable,
    )
    return model, wishes, (_select_text(sketch, names), tables)


def _random_sketch(rng: random.Random, used: list[PlaceMeaning]) -> Sketch:
    outputs = [ShownOutput(f"v{p}", p, "v") for p in range(len(used))]
    outputs += [ShownOutput(f"w{p}", p, "w") for p in range(len(used)) if rng.random() < 0.7]
    joins = tuple(((p, "b"), (p + 1, "a")) for p in range(len(used) - 1))
    limit = (rng.randrange(len(used)), "v", 2) if rng.random() < 0.3 else None
    return Sketch(tuple(used), joins, tuple(outputs), limit)


def _select_text(sketch: Sketch, names: dict[Key, str]) -> str:
    shown = ", ".join(f"p{o.place}.{o.letter} AS {o.name}" for o in sketch.outputs)
    tables = ", ".join(
        f"{m.table[0]}.{names[m.table]} p{place}" for place, m in enumerate(sketch.places)
    )
    where = [f"p{p}.{a} = p{q}.{b}" for (p, a), (q, b) in sketch.joins]
    if sketch.limit is not None:
        where.append("p{}.{} < {}".format(*sketch.limit))
    return f"CREATE MATERIALIZED VIEW v AS SELECT {shown} FROM {tables} WHERE {' AND '.join(where)}"


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
