"""A scenario: a view, tables with rows, transactions, and how sources and warehouse are connected.

It says what happens, not when: the schedule, a list of steps, says that
(`viewkeeper.simulate.world`). Both together are a run, and both have a text form
(`viewkeeper.simulate.scripts.script_format`).

A run is determined by its scenario and its steps. Each step has a text form, which is how schedules
are written in tests, printed when a seed fails, and read back:

>>> read_step("deliver x answers"), str(RevealStep("x", "T3"))
(DeliverStep(source='x', channel='answers'), 'reveal T3 at x')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from viewkeeper.check.history.recorded_history import Bag, CommittedTransaction
from viewkeeper.view.definition import Field, Relation, ViewDefinition


@dataclass(frozen=True, slots=True)
class ScenarioTable:
    """A relation of the scenario: its columns, its key (none: a bag), its rows at the start."""

    relation: Relation
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    rows: Bag


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens in a world.

    `fifo`: reports and answers of a source share one channel, as the papers assume. Otherwise they
    travel apart and an answer says by its cut what it contains. `tails`: an answer then brings the
    changes that the asker does not know yet; otherwise it waits until they were delivered.
    `reporter` maps a global transaction to the source that reports it for all; by default each
    source reports its own part. `late` are transactions, by name, that are reported before they are
    visible to questions at these sources (PostgreSQL); they become visible by a step of their own.
    """

    view: ViewDefinition
    tables: tuple[ScenarioTable, ...]
    transactions: tuple[CommittedTransaction, ...]
    fifo: bool = True
    tails: bool = False
    reporter: Mapping[str, str] = field(default_factory=dict)
    late: frozenset[tuple[str, str]] = frozenset()

    @property
    def source_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(table.relation.source for table in self.tables))

    @property
    def key_fields(self) -> dict[Relation, tuple[Field, ...]]:
        """The key columns of every table that has a key."""
        return {
            table.relation: tuple(f for f in table.fields if f.name in table.key)
            for table in self.tables
            if table.key
        }


@dataclass(frozen=True, slots=True)
class AlgorithmSubject:
    """The algorithm under test: its name in the catalogue and its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitStep:
    """A transaction commits at its sources, and its report is sent."""

    transaction: str

    def __str__(self) -> str:
        return f"commit {self.transaction}"


@dataclass(frozen=True, slots=True)
class EvaluateStep:
    """A source evaluates the oldest question that it was sent, and sends the answer."""

    source: str

    def __str__(self) -> str:
        return f"evaluate {self.source}"


@dataclass(frozen=True, slots=True)
class DeliverStep:
    """The oldest message of a channel reaches the warehouse.

    With FIFO channels a source has one, `both`; otherwise `reports` and `answers`.
    """

    source: str
    channel: str = "both"

    def __str__(self) -> str:
        return f"deliver {self.source}" + (f" {self.channel}" if self.channel != "both" else "")


@dataclass(frozen=True, slots=True)
class RepeatStep:
    """The last report of a source is delivered a second time."""

    source: str

    def __str__(self) -> str:
        return f"repeat {self.source}"


@dataclass(frozen=True, slots=True)
class RevealStep:
    """A transaction that was committed late becomes visible to questions at a source."""

    source: str
    transaction: str

    def __str__(self) -> str:
        return f"reveal {self.transaction} at {self.source}"


@dataclass(frozen=True, slots=True)
class CrashStep:
    """The warehouse dies and starts again from what is durable."""

    def __str__(self) -> str:
        return "crash"


Step = CommitStep | EvaluateStep | DeliverStep | RepeatStep | RevealStep | CrashStep


def read_step(text: str) -> Step:
    """A step from its text; ValueError if it is none."""
    match text.split():
        case ["commit", transaction]:
            return CommitStep(transaction)
        case ["evaluate", source]:
            return EvaluateStep(source)
        case ["deliver", source]:
            return DeliverStep(source)
        case ["deliver", source, "reports" | "answers" as channel]:
            return DeliverStep(source, channel)
        case ["repeat", source]:
            return RepeatStep(source)
        case ["reveal", transaction, "at", source]:
            return RevealStep(source, transaction)
        case ["crash"]:
            return CrashStep()
        case _:
            raise ValueError(f"not a step: {text!r}")
