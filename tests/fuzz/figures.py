"""What a run of a fuzzer cost: inputs, processor seconds, memory; shown when the tests end.

Memory is read as two numbers. The *peak* is what one input can make a reader take, whatever length
it claims. What is *kept* is how much larger the process is after the last input than it was after
the first tenth of them, when everything is imported and every cache is filled: a reader that does
not give back a little for every input shows there, and nowhere else.
"""

from __future__ import annotations

import gc
import resource
import time
from dataclasses import dataclass
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class FuzzFigures:
    """What one run of a fuzzer cost; memory in bytes."""

    label: str
    inputs: int
    cpu_seconds: float
    peak: int
    kept: int

    def render_line(self, test: str) -> str:
        """One line of the summary."""
        reader = f"{test} ({self.label})" if self.label else test
        each = self.cpu_seconds / max(self.inputs, 1) * 1000
        return (
            f"{reader}: {self.inputs:,} inputs, {self.cpu_seconds:.1f} s of processor"
            f" ({each:.2f} ms each), peak +{self.peak >> 20} MB, kept +{self.kept >> 20} MB"
        )


DONE: list[FuzzFigures] = []


class Meter:
    """Processor time and memory of this process from here on."""

    def __init__(self) -> None:
        gc.collect()
        forget_peak()
        self._began = time.process_time()
        self._before = self._warm = memory_now()

    def mark_warm(self) -> None:
        """From here on nothing needs to be kept."""
        self._warm = memory_now()

    def check_peak(self, most: int) -> None:
        """Fail if memory grew by more than so much at any time."""
        peak = memory_peak() - self._before
        assert peak < most, f"memory grew by {peak >> 20} MB"

    def read_figures(self, label: str, inputs: int) -> FuzzFigures:
        """What was used since the beginning."""
        seconds, peak = time.process_time() - self._began, memory_peak() - self._before
        gc.collect()
        kept = memory_now() - self._warm
        return FuzzFigures(label, inputs, seconds, max(peak, 0), max(kept, 0))


def forget_peak() -> None:
    """Begin a new peak of memory, where the system can: else an earlier one hides a later."""
    if _CLEAR.exists():
        _CLEAR.write_text("5")


def memory_peak() -> int:
    """The most memory that this process had at once."""
    return _read_status("VmHWM")


def memory_now() -> int:
    """The memory that this process has."""
    return _read_status("VmRSS")


def _read_status(key: str) -> int:
    if not _STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{key}:"))
    return int(line.split()[1]) << 10
