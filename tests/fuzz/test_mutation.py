"""The fuzzer itself: it repeats its inputs, finds what is not ours, and ends what hangs.

A fuzzer that cannot fail proves nothing, so each of its three demands is shown to be made.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from unittest import mock

import pytest

from tests.fuzz import mutation
from tests.fuzz.isolation import ROOT, fuzz_isolated
from tests.fuzz.mutation import fuzz, fuzz_text, mutants
from viewkeeper.errors import HistoryError


@pytest.fixture(autouse=True)
def usual_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as in `make test`: what must fail shall not fail 100,000 times."""
    monkeypatch.setattr(mutation, "INPUTS", 0)


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

    monkeypatch.setattr(mutation, "SECONDS", 0.2)
    with pytest.raises(AssertionError, match=r"HangError .no end after 0.2 s of the processor"):
        fuzz(hang, [b"a"])


def test_what_waits_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "WAITING", 0.2)
    with pytest.raises(AssertionError, match=r"HangError .no end after 0.2 s"):
        fuzz(lambda _: threading.Event().wait(60), [b"a"])


def test_no_reader_takes_a_hang_for_a_damaged_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_data: bytes) -> None:
        try:
            threading.Event().wait(60)
        except Exception as error:
            raise HistoryError("cannot be read") from error

    monkeypatch.setattr(mutation, "WAITING", 0.2)
    with pytest.raises(AssertionError, match="HangError"):
        fuzz(read, [b"a"])


def test_what_hangs_in_native_code_ends_the_process() -> None:
    code = (
        "import itertools; from tests.fuzz import mutation; mutation.SECONDS = 0.2;"
        "mutation.fuzz(lambda _: sum(itertools.repeat(0)), [b'a'])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=300)
    assert ended.returncode == -signal.SIGVTALRM


def test_one_defect_does_not_hide_another() -> None:
    def read(data: bytes) -> None:
        if data[:1] == b"{":
            raise KeyError
        raise ValueError

    with pytest.raises(AssertionError, match=r"(?s)KeyError at .*ValueError at |ValueError.*KeyE"):
        fuzz(read, [b"{}"])


def test_a_crash_is_a_failure_with_the_input(scratch: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended with -11; its files"):
        fuzz_isolated("tests.fuzz.test_mutation", scratch, tmp_path)
    assert (tmp_path / "input").read_bytes() != b"good"


def attack(folder: Path) -> None:
    """A reader that a damaged input brings down."""

    def read(data: bytes) -> None:
        (folder / "input").write_bytes(data)
        if data != b"good":
            os.kill(os.getpid(), signal.SIGSEGV)

    fuzz(read, [b"good"])


@pytest.mark.parametrize("found", ["find_growth_after_a_peak", "find_what_is_kept"])
def test_memory_is_measured_in_a_process_of_its_own(found: str) -> None:
    """In one that has run for long, a system that takes back unused memory hides what is taken."""
    code = f"from tests.fuzz import test_mutation; test_mutation.{found}()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def find_growth_after_a_peak() -> None:
    """Memory that was given back is no excuse for taking it again."""
    bytes(64 << 20)
    with (
        mock.patch.multiple(mutation, GROWTH=32 << 20, INPUTS=0),
        pytest.raises(AssertionError, match="memory grew"),
    ):
        fuzz(lambda data: b"x" * (48 << 20), [b"a"], inputs=3)


def find_what_is_kept() -> None:
    """Memory that an input leaves behind is found, however little each does."""
    kept = []
    with (
        mock.patch.multiple(mutation, KEPT=16 << 20, INPUTS=0),
        pytest.raises(AssertionError, match="was not given back"),
    ):
        fuzz(lambda data: kept.append(b"x" * (1 << 19)), [b"a"], inputs=100)


def test_memory_that_grows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr(mutation, "GROWTH", 32 << 20)
    with pytest.raises(AssertionError, match="memory grew"):
        fuzz(lambda data: kept.append(b"x" * (1 << 21)), [b"a"], inputs=1000)
    assert len(kept) < 200, "it is ended at once, not when memory is full"
