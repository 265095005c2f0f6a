"""Steps: the moments of a run at which something can go one way or another.

A run is determined by its scenario and its steps. Each step has a text form, which is how schedules
are written in tests, printed when a seed fails, and read back:

>>> read_step("deliver x answers"), str(RevealStep("x", "T3"))
(DeliverStep(source='x', channel='answers'), 'reveal T3 at x')
"""

from __future__ import annotations

from dataclasses import dataclass


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
