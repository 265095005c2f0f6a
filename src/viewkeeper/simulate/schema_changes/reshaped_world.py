"""The seeded world of schema changes: sources, channels and Dyno, one step at a time.

As in `viewkeeper.simulate.simulated_world` nothing happens by itself: a transaction commits, a
source evaluates a question, a message arrives. So a schema change can come at any moment, also
between a question and its evaluation. A reply is handed over when everything that it saw has been
delivered: with one FIFO channel per source that is at once, otherwise it waits.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from viewkeeper.delta.reference_carrier import Reference
from viewkeeper.errors import SimulationError
from viewkeeper.evolution.dyno.dyno_events import (
    Action,
    BrokenQuestion,
    DynoQuestion,
    DynoRedefinition,
    DynoReply,
    DynoReport,
    DynoStamp,
    DynoStop,
    Event,
)
from viewkeeper.evolution.dyno.dyno_loop import Dyno, DynoSetting
from viewkeeper.evolution.dyno.table_identity import define_view
from viewkeeper.maintain.algorithm_protocol import CommitAction as Committed
from viewkeeper.simulate.message_channels import MessageChannels
from viewkeeper.simulate.schema_changes.reshaped_judge import ReshapedJudge
from viewkeeper.simulate.schema_changes.reshaped_scenario import ReshapedScenario
from viewkeeper.simulate.schema_changes.reshaped_source import ReshapedSource
from viewkeeper.simulate.schema_changes.reshaped_store import ReshapedStore
from viewkeeper.simulate.world_steps import CommitStep, DeliverStep, EvaluateStep

Step = CommitStep | EvaluateStep | DeliverStep

BUDGET = 1_000
"""Steps after which a run that does not end is called stuck."""


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply on its way, and the position of the state that it saw."""

    reply: DynoReply | BrokenQuestion
    position: int


class ReshapedWorld:
    """A scenario at work under one setting of Dyno."""

    def __init__(self, scenario: ReshapedScenario, setting: DynoSetting) -> None:
        self.scenario = scenario
        self.setting = setting
        logs = scenario.logs_by_source()
        self._sources = {
            name: ReshapedSource(name, tables, logs[name])
            for name, tables in scenario.tables.items()
        }
        definition = define_view(scenario.text, scenario.initial_shapes)
        self.judge = ReshapedJudge(scenario)
        columns = tuple(output.name for output in definition.view.outputs)
        start = self.judge.at((0,) * len(self.judge.sources), columns)
        self.store = ReshapedStore(columns, dict(start), self.judge.sources)
        self.dyno = Dyno(Reference(), definition, scenario.initial_shapes, scenario.wishes, setting)
        self._channels = MessageChannels[DynoQuestion, DynoReport | _Reply](
            self._sources, scenario.fifo
        )
        self._delivered = dict.fromkeys(self._sources, 0)
        self._held: list[tuple[str, _Reply]] = []
        self.steps: list[Step] = []
        self.broken = 0
        self.asked = 0

    # -- the run -----------------------------------------------------------------------------------

    def enabled_steps(self) -> list[Step]:
        """The steps that can be made now."""
        steps: list[Step] = [
            CommitStep(name) for name, s in self._sources.items() if s.remaining_count
        ]
        return [*steps, *self._channels.enabled_steps()]

    def make_step(self, step: Step) -> None:
        """Make a step; it must be enabled. A commit is named by its source."""
        self.steps.append(step)
        match step:
            case CommitStep(source):
                report = self._sources[source].commit_next()
                self._channels.send_message(source, "reports", report)
            case EvaluateStep(source):
                question = self._channels.questions[source].popleft()
                reply = _Reply(
                    *self._sources[source].evaluate_question(question, self.setting.asking)
                )
                self.broken += isinstance(reply.reply, BrokenQuestion)
                self._channels.send_message(source, "answers", reply)
            case DeliverStep(source, channel):
                self._deliver_message(source, self._channels.messages[source, channel].popleft())

    def _deliver_message(self, source: str, message: DynoReport | _Reply) -> None:
        if isinstance(message, DynoReport):
            self._delivered[source] = message.position
            self._receive_event(message)
        else:
            self._held.append((source, message))
        for waiting in list(self._held):
            if waiting[1].position <= self._delivered[waiting[0]]:
                self._held.remove(waiting)
                self._receive_event(waiting[1].reply)

    def _receive_event(self, event: Event) -> None:
        for action in self.dyno.receive_event(event):
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        match action:
            case DynoQuestion():
                self.asked += 1
                self._channels.questions[action.source].append(action)
            case DynoStamp():
                self.store.note_stamp(action)
            case Committed():
                self.store.apply_commit(action)
            case DynoRedefinition():
                self.store.redefine_view(action)
            case DynoStop():
                raise SimulationError(f"the view stopped: {action.reason}")

    @property
    def is_done(self) -> bool:
        return not self.enabled_steps() and not self._held and self.dyno.is_idle


def play_reshaped(world: ReshapedWorld, rng: random.Random) -> None:
    """Run a world to its end by chance, at a pace that is drawn first."""
    weights: dict[type[Any], float] = {
        CommitStep: rng.choice([0.3, 1.0, 4.0]),
        EvaluateStep: rng.choice([0.1, 0.5, 2.0]),
        DeliverStep: rng.choice([0.3, 1.0, 3.0]),
    }
    for _ in range(BUDGET):
        steps = world.enabled_steps()
        if not steps:
            break
        world.make_step(rng.choices(steps, [weights[type(step)] for step in steps])[0])
    if not world.is_done:
        raise SimulationError("the run did not end")


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
