"""Small scenes with schema changes, written by hand: tables, a view, and named steps.

A table is called `source.name` and has an identity; its columns are single letters, each identified
by the table's number and its place. Runs are the world's own, so what is asserted of a scene is
what sources, channels and Dyno really did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from viewkeeper.errors import SimulationError
from viewkeeper.evolution.dyno.dyno_loop import DynoSetting
from viewkeeper.evolution.dyno.rewriter import SubstituteTable, Wishes
from viewkeeper.evolution.dyno.table_identity import DynoColumn, DynoShape
from viewkeeper.evolution.extent import Extent
from viewkeeper.evolution.preferences import NamedParts, Preferences
from viewkeeper.simulate.scenario import CommitStep, DeliverStep, EvaluateStep
from viewkeeper.simulate.schema_changes.reshaped_judge import ReshapedState
from viewkeeper.simulate.schema_changes.reshaped_scenario import (
    Effect,
    PlaceMeaning,
    ReshapedScenario,
    ReshapedTransaction,
    ShownOutput,
    Sketch,
)
from viewkeeper.simulate.schema_changes.reshaped_tables import (
    Operation,
    ReshapedTable,
    Row,
    WriteOperation,
)
from viewkeeper.simulate.schema_changes.reshaped_world import BUDGET, ReshapedWorld, Step


def column(table: int, letter: str, letters: str) -> int:
    return 10 * table + letters.index(letter)


def shape(id: int, name: str, letters: str) -> DynoShape:
    columns = (DynoColumn(column(id, each, letters), each, pa.int64()) for each in letters)
    return DynoShape(id, name, tuple(columns))


def table(id: int, name: str, letters: str, *rows: Row) -> ReshapedTable:
    return ReshapedTable(shape(id, name, letters), dict.fromkeys(rows, 1))


def meaning(source: str, of: ReshapedTable) -> PlaceMeaning:
    return PlaceMeaning((source, of.shape.id), {each.name: each.id for each in of.shape.columns})


def insert(id: int, *rows: Row) -> WriteOperation:
    return WriteOperation(id, tuple((row, 1) for row in rows))


def change(
    source: str, *operations: Operation, effects: Sequence[Effect] = (), kept: bool = True
) -> ReshapedTransaction:
    return ReshapedTransaction(source, operations, tuple(effects), kept, "change")


def stand_in(source: str, of: ReshapedTable, other: str, instead: ReshapedTable) -> SubstituteTable:
    """One table for another, columns with the same letters."""
    pairs = zip(of.shape.columns, instead.shape.columns, strict=True)
    return SubstituteTable(
        (source, of.shape.id),
        (other, instead.shape.id),
        {one.id: two.id for one, two in pairs},
    )


def scene(
    text: str,
    places: Sequence[tuple[str, ReshapedTable]],
    joins: Sequence[tuple[tuple[int, str], tuple[int, str]]],
    outputs: Mapping[str, tuple[int, str]],
    tables: Mapping[str, Iterable[ReshapedTable]],
    transactions: Sequence[ReshapedTransaction],
    stand_ins: Sequence[SubstituteTable] = (),
    dispensable: Iterable[str] = (),
    fifo: bool = True,
) -> ReshapedScenario:
    sketch = Sketch(
        tuple(meaning(source, of) for source, of in places),
        tuple(joins),
        tuple(ShownOutput(name, place, letter) for name, (place, letter) in outputs.items()),
    )
    preferences = Preferences(Extent.ANY, NamedParts(columns=frozenset(dispensable)))
    return ReshapedScenario(
        f"CREATE MATERIALIZED VIEW v AS {text}",
        sketch,
        {source: {each.shape.id: each for each in here} for source, here in tables.items()},
        Wishes(preferences, tuple(stand_ins)),
        tuple(transactions),
        fifo,
    )


def steps(world: ReshapedWorld, text: str) -> None:
    """Make steps that are written as words: `commit x`, `evaluate x`, `deliver x [reports]`."""
    for line in text.strip().splitlines():
        match line.split():
            case ["commit", source]:
                world.make_step(CommitStep(source))
            case ["evaluate", source]:
                world.make_step(EvaluateStep(source))
            case ["deliver", source]:
                world.make_step(DeliverStep(source))
            case ["deliver", source, channel]:
                world.make_step(DeliverStep(source, channel))
            case words:
                raise AssertionError(f"not a step: {words}")


def shown(states: Sequence[ReshapedState]) -> list[tuple[dict[str, int], set[Row]]]:
    """What a reader saw: what each state stands for, and its rows (no row twice in a scene)."""
    assert all(count == 1 for state in states for _, count in state.rows)
    return [(dict(state.claim), {row for row, _ in state.rows}) for state in states]


def started(scenario: ReshapedScenario, setting: DynoSetting) -> ReshapedWorld:
    return ReshapedWorld(scenario, setting)


def follow_reshaped(world: ReshapedWorld, steps: list[Step]) -> None:
    """Make the given steps, then run to the end: oldest messages first, commits last."""
    for step in steps:
        world.make_step(step)
    order: tuple[type[Step], ...] = (DeliverStep, EvaluateStep, CommitStep)
    for _ in range(BUDGET):
        enabled = world.enabled_steps()
        if not enabled:
            break
        world.make_step(min(enabled, key=lambda step: order.index(type(step))))
    if not world.is_done:
        raise SimulationError("the run did not end")
