"""The seeded world of schema changes: sources, channels and Dyno, one step at a time.

As in `viewkeeper.simulate.simulated_world` nothing happens by itself: a transaction commits, a source
evaluates a question, a message arrives. So a schema change can come at any moment, also between a
question and its evaluation. A reply is handed over when everything that it saw has been delivered:
with one FIFO channel per source that is at once, otherwise it waits.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

from viewkeeper.delta.reference_carrier import Reference
from viewkeeper.errors import SimulationError
from viewkeeper.evolution.dyno.dyno_events import (
    Action,
    Broke,
    Event,
    Question,
    Redefine,
    Replied,
    Report,
    Stamped,
    Stop,
)
from viewkeeper.evolution.dyno.dyno_loop import Dyno, Setting
from viewkeeper.evolution.dyno.table_identity import define
from viewkeeper.maintain.algorithm_protocol import Commit as Committed
from viewkeeper.simulate.schema_changes.reshaped_judge import Judge
from viewkeeper.simulate.schema_changes.reshaped_scenario import Scenario
from viewkeeper.simulate.schema_changes.reshaped_source import ReshapedSource
from viewkeeper.simulate.schema_changes.reshaped_store import ReshapedStore
from viewkeeper.simulate.world_steps import Commit, Deliver, Evaluate

Step = Commit | Evaluate | Deliver

BUDGET = 1_000
"""Steps after which a run that does not end is called stuck."""


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply on its way, and the position of the state that it saw."""

    reply: Replied | Broke
    position: int


class ReshapingWorld:
    """A scenario at work under one setting of Dyno."""

    def __init__(self, scenario: Scenario, setting: Setting) -> None:
        self.scenario = scenario
        self.setting = setting
        logs = scenario.logs()
        self._sources = {
            name: ReshapedSource(name, tables, logs[name])
            for name, tables in scenario.tables.items()
        }
        definition = define(scenario.text, scenario.shapes)
        self.judge = Judge(scenario)
        columns = tuple(output.name for output in definition.view.outputs)
        start = self.judge.at((0,) * len(self.judge.sources), columns)
        self.store = ReshapedStore(columns, dict(start), self.judge.sources)
        self.dyno = Dyno(Reference(), definition, scenario.shapes, scenario.wishes, setting)
        self._inbox: dict[str, deque[Question]] = {name: deque() for name in self._sources}
        channels = ("both",) if scenario.fifo else ("reports", "answers")
        self._channels: dict[tuple[str, str], deque[Report | _Reply]] = {
            (name, channel): deque() for name in self._sources for channel in channels
        }
        self._delivered = dict.fromkeys(self._sources, 0)
        self._held: list[tuple[str, _Reply]] = []
        self.steps: list[Step] = []
        self.broken = 0
        self.asked = 0

    # -- the run -----------------------------------------------------------------------------------

    def enabled(self) -> list[Step]:
        """The steps that can be made now."""
        steps: list[Step] = [Commit(name) for name, s in self._sources.items() if s.left]
        steps += [Evaluate(name) for name, asked in self._inbox.items() if asked]
        steps += [Deliver(n, channel) for (n, channel), queue in self._channels.items() if queue]
        return steps

    def make(self, step: Step) -> None:
        """Make a step; it must be enabled. A commit is named by its source."""
        self.steps.append(step)
        match step:
            case Commit(source):
                self._channel(source, "reports").append(self._sources[source].commit())
            case Evaluate(source):
                question = self._inbox[source].popleft()
                reply = _Reply(*self._sources[source].evaluate(question, self.setting.asking))
                self.broken += isinstance(reply.reply, Broke)
                self._channel(source, "answers").append(reply)
            case Deliver(source, channel):
                self._deliver(source, self._channels[source, channel].popleft())

    def _channel(self, source: str, kind: str) -> deque[Report | _Reply]:
        return self._channels[source, "both" if self.scenario.fifo else kind]

    def _deliver(self, source: str, message: Report | _Reply) -> None:
        if isinstance(message, Report):
            self._delivered[source] = message.position
            self._receive(message)
        else:
            self._held.append((source, message))
        for waiting in list(self._held):
            if waiting[1].position <= self._delivered[waiting[0]]:
                self._held.remove(waiting)
                self._receive(waiting[1].reply)

    def _receive(self, event: Event) -> None:
        for action in self.dyno.receive(event):
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        match action:
            case Question():
                self.asked += 1
                self._inbox[action.source].append(action)
            case Stamped():
                self.store.stamp(action)
            case Committed():
                self.store.commit(action)
            case Redefine():
                self.store.redefine(action)
            case Stop():
                raise SimulationError(f"the view stopped: {action.reason}")

    @property
    def done(self) -> bool:
        return not self.enabled() and not self._held and self.dyno.idle


def play(world: ReshapingWorld, rng: random.Random) -> None:
    """Run a world to its end by chance, at a pace that is drawn first."""
    weights: dict[type[Any], float] = {
        Commit: rng.choice([0.3, 1.0, 4.0]),
        Evaluate: rng.choice([0.1, 0.5, 2.0]),
        Deliver: rng.choice([0.3, 1.0, 3.0]),
    }
    for _ in range(BUDGET):
        steps = world.enabled()
        if not steps:
            break
        world.make(rng.choices(steps, [weights[type(step)] for step in steps])[0])
    if not world.done:
        raise SimulationError("the run did not end")


def follow(world: ReshapingWorld, steps: list[Step]) -> None:
    """Make the given steps, then run to the end: oldest messages first, commits last."""
    for step in steps:
        world.make(step)
    order: tuple[type[Step], ...] = (Deliver, Evaluate, Commit)
    for _ in range(BUDGET):
        enabled = world.enabled()
        if not enabled:
            break
        world.make(min(enabled, key=lambda step: order.index(type(step))))
    if not world.done:
        raise SimulationError("the run did not end")
