"""A process that dies at a chosen moment, without dying.

Every change that survives a process goes through one of a few system calls. `dying_at(k)` raises at
the k-th of them, before or after it took effect, an exception that no code of ours catches by kind;
what is then on the disk is what a kill at that moment leaves. `deaths` goes on until a step
survives.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

CALLS = ("fsync", "link", "replace", "unlink")


class Death(BaseException):
    """The process is gone."""


@contextmanager
def dying_at(moment: int, after: bool, calls: Sequence[str] = CALLS) -> Iterator[None]:
    """Die at the given one of these system calls; afterwards none has any effect."""
    done = 0

    def lethal(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal done
            done += 1
            if done > moment:
                raise Death
            result = real(*args, **options) if done < moment or after else None
            if done == moment:
                raise Death
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in calls:
            patch.setattr(os, name, lethal(getattr(os, name)))
        yield


def deaths(step: Callable[[int, bool], bool], *, thorough: bool = False) -> int:
    """Run a step dying at every moment until it survives; how many moments there were.

    `step(moment, after)` says whether it died. A thorough run dies both before and after every
    call, another takes turns.
    """
    moment = 0
    died = True
    while died:
        moment += 1
        sides = (False, True) if thorough else (moment % 2 == 0,)
        died = sum(step(moment, after) for after in sides) > 0
        assert moment < 200, "a step without end"
    return moment - 1
