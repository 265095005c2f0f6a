"""What queries of Connect clients read is kept until they have ended, and given back once."""

from __future__ import annotations

import pytest

from viewkeeper.readers.connect.pinned_views import ViewPin
from viewkeeper.readers.connect.running_operations import ABANDONED_SECONDS, RunningOperations

KEY = ("session", "operation")


class Desk:
    """Operations, a clock that is moved by hand, and the pins that were given back."""

    def __init__(self) -> None:
        self.now = 0.0
        self.released: list[int] = []
        self._kept: list[ViewPin] = []
        self.operations = RunningOperations(self._release, lambda: self.now)

    def begin(self) -> int:
        """Begin the operation with a pin of its own; which one that is."""
        pin = ViewPin({})
        self._kept.append(pin)
        self.operations.begin_operation(KEY, pin, None)
        return id(pin)

    def _release(self, pin: ViewPin) -> None:
        self.released.append(id(pin))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_an_operation_ends_when_the_client_says_so_and_nobody_reads(desk: Desk) -> None:
    pin = desk.begin()
    desk.operations.end_operation(KEY)
    assert desk.released == []
    desk.operations.leave_stream(KEY)
    assert desk.released == [pin]
    desk.operations.end_operation(KEY)
    desk.operations.leave_stream(KEY)
    assert desk.released == [pin]


def test_an_answer_can_be_taken_up_again_until_it_is_abandoned(desk: Desk) -> None:
    pin = desk.begin()
    desk.operations.leave_stream(KEY)
    desk.operations.resume_operation(KEY)
    desk.now = 2 * ABANDONED_SECONDS
    desk.operations.end_session("another")
    assert desk.released == []
    desk.operations.leave_stream(KEY)
    desk.now += ABANDONED_SECONDS + 1
    desk.operations.end_session("another")
    assert desk.released == [pin]


def test_a_session_that_is_over_ends_its_operations(desk: Desk) -> None:
    pin = desk.begin()
    desk.operations.leave_stream(KEY)
    desk.operations.end_session("session")
    assert desk.released == [pin]


def test_an_operation_that_is_sent_again_keeps_what_both_read(desk: Desk) -> None:
    first, second = desk.begin(), desk.begin()
    assert desk.released == []
    desk.operations.leave_stream(KEY)
    desk.operations.end_operation(KEY)
    assert desk.released == []
    desk.operations.leave_stream(KEY)
    assert desk.released == [first, second]
