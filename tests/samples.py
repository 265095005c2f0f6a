"""Samples: of many parameters a few run always, the others in the campaigns of `make faults`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def keep_some(values: Iterable[Any], kept: Sequence[int]) -> list[Any]:
    """Parameters of a test; those at the places that are `kept` run always, the others only in
    campaigns."""
    found = [
        value if at in kept else pytest.param(*as_values(value), marks=pytest.mark.campaign)
        for at, value in enumerate(values)
    ]
    assert max(kept) < len(found), "nothing is there to be kept"
    return found


def as_values(value: Any) -> tuple[Any, ...]:
    """The values of one set of parameters: a tuple has several of them."""
    return value if isinstance(value, tuple) else (value,)
