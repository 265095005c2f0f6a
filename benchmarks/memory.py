"""The memory of this process and of all that it started, sampled while something runs.

On Spark the work is done by three kinds of processes: the driver, the JVM, and the Python workers
that the JVM starts. `/proc` tells which are whose. The sum of their resident sets counts pages that
they share, files mapped by several workers among them, once for each: it is an upper bound.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

Kind = Literal["driver", "jvm", "workers"]
KINDS: tuple[Kind, ...] = ("driver", "jvm", "workers")

INTERVAL_SECONDS = 0.2


class Peaks:
    """The most bytes seen: of resident sets by kind and together, and of a folder."""

    def __init__(self, folder: Path) -> None:
        self.by_kind: Counter[Kind] = Counter()
        self.total = 0
        self.folder_bytes = 0
        self._folder = folder

    def see(self) -> None:
        """Take one sample."""
        now = resident()
        for kind in KINDS:
            self.by_kind[kind] = max(self.by_kind[kind], now[kind])
        self.total = max(self.total, now.total())
        self.folder_bytes = max(self.folder_bytes, size(self._folder))

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {self.by_kind[kind] >> 20} MB" for kind in KINDS)
        return f"{self.total >> 20} MB together ({kinds})"


@contextmanager
def watched(folder: Path) -> Iterator[Peaks]:
    """Sample in a thread until the block ends."""
    peaks, stop = Peaks(folder), threading.Event()

    def watch() -> None:
        while not stop.wait(INTERVAL_SECONDS):
            peaks.see()

    thread = threading.Thread(target=watch, name="memory", daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        stop.set()
        thread.join()
        peaks.see()


def resident() -> Counter[Kind]:
    """The resident bytes of this process, its JVM, and the JVM's Python workers."""
    parents, sizes, names = {}, {}, {}
    for process in Path("/proc").glob("[0-9]*"):
        # Processes may end while they are looked at.
        with suppress(OSError, ValueError, IndexError):
            name, _, rest = (process / "stat").read_text().partition("(")[2].rpartition(")")
            number = int(process.name)
            parents[number] = int(rest.split()[1])
            sizes[number] = int((process / "statm").read_text().split()[1])
            names[number] = name
    page, own, found = os.sysconf("SC_PAGE_SIZE"), os.getpid(), Counter[Kind]()
    for number, pages in sizes.items():
        if _descends(number, own, parents):
            found[_kind(number, own, names[number])] += pages * page
    return found


def _kind(number: int, own: int, name: str) -> Kind:
    if number == own:
        return "driver"
    return "jvm" if name.startswith("java") else "workers"


def _descends(number: int, ancestor: int, parents: dict[int, int]) -> bool:
    while number != ancestor and number in parents:
        number = parents[number]
    return number == ancestor


def size(folder: Path) -> int:
    """The bytes of all files below a folder; files may come and go meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size
    return total
