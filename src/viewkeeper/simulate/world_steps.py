"""Steps: the moments of a run at which something can go one way or another.

A run is determined by its scenario and its steps. Each step has a text form, which is how schedules
are written in tests, printed when a seed fails, and read back:

>>> read_step("deliver x answers"), str(Reveal("x", "T3"))
(Deliver(source='x', channel='answers'), 'reveal T3 at x')
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction commits at its sources, and its report is sent."""

    transaction: str

    def __str__(self) -> str:
        return f"commit {self.transaction}"


@dataclass(frozen=True, slots=True)
class Evaluate:
    """A source evaluates the oldest question that it was sent, and sends the answer."""

    source: str

    def __str__(self) -> str:
        return f"evaluate {self.source}"


@dataclass(frozen=True, slots=True)
class Deliver:
    """The oldest message of a channel reaches the warehouse.

    With FIFO channels a source has one, `both`; otherwise `reports` and `answers`.
    """

    source: str
    channel: str = "both"

    def __str__(self) -> str:
        return f"deliver {self.source}" + (f" {self.channel}" if self.channel != "both" else "")


@dataclass(frozen=True, slots=True)
class Repeat:
    """The last report of a source is delivered a second time."""

    source: str

    def __str__(self) -> str:
        return f"repeat {self.source}"


@dataclass(frozen=True, slots=True)
class Reveal:
    """A transaction that was committed late becomes visible to questions at a source."""

    source: str
    transaction: str

    def __str__(self) -> str:
        return f"reveal {self.transaction} at {self.source}"


@dataclass(frozen=True, slots=True)
class Crash:
    """The warehouse dies and starts again from what is durable."""

    def __str__(self) -> str:
        return "crash"


Step = Commit | Evaluate | Deliver | Repeat | Reveal | Crash


def read_step(text: str) -> Step:
    """A step from its text; ValueError if it is none."""
    match text.split():
        case ["commit", transaction]:
            return Commit(transaction)
        case ["evaluate", source]:
            return Evaluate(source)
        case ["deliver", source]:
            return Deliver(source)
        case ["deliver", source, "reports" | "answers" as channel]:
            return Deliver(source, channel)
        case ["repeat", source]:
            return Repeat(source)
        case ["reveal", transaction, "at", source]:
            return Reveal(source, transaction)
        case ["crash"]:
            return Crash()
        case _:
            raise ValueError(f"not a step: {text!r}")
