"""One life of a simulated warehouse: its machine, and what was sent to it and received by it.

A crash ends a life and loses all of this; what is stored stays, and the next life begins with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from viewkeeper.maintain.algorithm_protocol import Algorithm, AskAction
from viewkeeper.simulate.message_channels import MessageChannels
from viewkeeper.updates.source_protocol import Answer
from viewkeeper.updates.transaction import Transaction


@dataclass(frozen=True, slots=True, eq=False)
class ReportMessage:
    """A message: a transaction, or all parts of a global one."""

    transactions: tuple[Transaction, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReplyMessage:
    """A message: the answers to a question."""

    ask: AskAction
    answers: tuple[Answer, ...]


class WarehouseLife:
    """One life of a warehouse; a crash ends it, and loses all of this."""

    def __init__(self, algorithm: Algorithm, positions: Mapping[str, int], fifo: bool) -> None:
        """`positions` are where the sources are for the stored view."""
        self.algorithm = algorithm
        self.channels = MessageChannels[AskAction, ReportMessage | ReplyMessage](positions, fifo)
        self.received = {name: set[int]() for name in positions}
        self.contiguous = dict(positions)
        """The positions up to which everything of a source was received."""
        self.held: list[ReplyMessage] = []
        """Answers that the machine may not have yet."""
        self.last: dict[str, ReportMessage] = {}
        """The last report of each source, which may be delivered again."""

    def receive_report(
        self, report: ReportMessage, stored: Mapping[str, int]
    ) -> tuple[Transaction, ...]:
        """Take in a report; what of it was not received before, and is not in the stored view."""
        new = tuple(
            t
            for t in report.transactions
            if t.position not in self.received[t.source] and t.position > stored[t.source]
        )
        for transaction in new:
            self.received[transaction.source].add(transaction.position)
            self.last[transaction.source] = report
        for source, received in self.received.items():
            while self.contiguous[source] + 1 in received:
                self.contiguous[source] += 1
        return new

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way and the machine has nothing to do."""
        return self.channels.is_empty and not self.held and self.algorithm.is_idle
