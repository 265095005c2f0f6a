"""Channels between sources and a warehouse: questions one way, reports and answers the other.

Messages of one channel keep their order. Reports and answers of a source share one channel where
the world is FIFO, and overtake each other where it is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, Literal, TypeVar

from viewkeeper.simulate.scenario import DeliverStep, EvaluateStep

QuestionT = TypeVar("QuestionT")
MessageT = TypeVar("MessageT")


class MessageChannels(Generic[QuestionT, MessageT]):
    """What is on its way between a warehouse and its sources."""

    def __init__(self, sources: Iterable[str], fifo: bool) -> None:
        self._fifo = fifo
        self.questions: dict[str, deque[QuestionT]] = {name: deque() for name in sources}
        channels = ("both",) if fifo else ("reports", "answers")
        self.messages: dict[tuple[str, str], deque[MessageT]] = {
            (name, channel): deque() for name in self.questions for channel in channels
        }

    def send_message(
        self, source: str, kind: Literal["reports", "answers"], message: MessageT
    ) -> None:
        """Send a message of a source on its way."""
        self.messages[source, "both" if self._fifo else kind].append(message)

    def enabled_steps(self) -> list[EvaluateStep | DeliverStep]:
        """The questions that can be evaluated and the messages that can be delivered now."""
        asked = [EvaluateStep(name) for name, queue in self.questions.items() if queue]
        sent = [DeliverStep(name, way) for (name, way), queue in self.messages.items() if queue]
        return [*asked, *sent]

    @property
    def is_empty(self) -> bool:
        return not any(self.questions.values()) and not any(self.messages.values())
