"""The fuzzer itself: it repeats its inputs, finds what is not ours, and ends what hangs.

A fuzzer that cannot fail proves nothing, so each of its three demands is shown to be made.
"""

from __future__ import annotations

import random

import pytest

from tests.fuzz import mutation
from tests.fuzz.mutation import fuzz, fuzz_text, mutants
from viewkeeper.errors import HistoryError


def test_the_same_seed_gives_the_same_inputs() -> None:
    good = [b'{"a": 1}', b"some other input"]
    once, again = (list(mutants(good, random.Random(7), 200)) for _ in range(2))
    assert once == again
    assert len(set(once)) > 150


def test_an_error_that_is_not_ours_is_found() -> None:
    with pytest.raises(AssertionError, match=r"ValueError .* is no error of ours; input: b"):
        fuzz(lambda data: data.index(b"{"), [b"{}"])


def test_our_own_errors_are_fine() -> None:
    def read(text: str) -> None:
        raise HistoryError(f"{len(text)} characters, and none is right")

    fuzz_text(read, ["a", "b"], inputs=100)


def test_what_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(_data: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr(mutation, "SECONDS", 1)
    with pytest.raises(AssertionError, match="TimeoutError"):
        fuzz(hang, [b"a"])


def test_memory_that_grows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr(mutation, "GROWTH", 32 << 20)
    with pytest.raises(AssertionError, match="memory grew"):
        fuzz(lambda data: kept.append(b"x" * (1 << 21)), [b"a"], inputs=100)
