"""How many faults of each kind were tried and survived; shown when the tests end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

TRIED: Counter[str] = Counter()
FAILED: Counter[str] = Counter()
STEP_KILL = "kill at a named step"
ASKED: set[str] = set()
MET: set[str] = set()
"""Steps at which a process was to die, and at which one did."""


class Faults:
    """The faults of one kind; failures are gathered, so that one does not hide the next."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._failures: list[str] = []

    @contextmanager
    def attempt(self, fault: object) -> Iterator[None]:
        """One fault; what goes wrong in the block is its failure."""
        TRIED[self._kind] += 1
        try:
            yield
        except AssertionError as error:
            FAILED[self._kind] += 1
            self._failures.append(f"{fault}: {str(error)[:2000]}")

    def add(self, tried: int, failures: list[str]) -> None:
        """Faults that were tried elsewhere."""
        TRIED[self._kind] += tried
        FAILED[self._kind] += len(failures)
        self._failures += [failure[:2000] for failure in failures]

    def check(self, again: str) -> None:
        """Fail if one of them failed; `again` is the command that has them again."""
        if self._failures:
            told = "\n\n".join(self._failures[:20])
            raise AssertionError(f"{len(self._failures)} failed; again: {again}\n{told}")


@contextmanager
def step_of(names: Iterable[str]) -> Iterator[list[str]]:
    """One kill at the first of these steps; the block adds the one that was met."""
    met: list[str] = []
    TRIED[STEP_KILL] += 1
    ASKED.update(names)
    try:
        yield met
    except BaseException:
        FAILED[STEP_KILL] += 1
        raise
    MET.update(met)


def summary() -> list[str]:
    """A line per kind of fault, and one on the steps."""
    lines = [
        f"{kind}: {tried} tried, {tried - FAILED[kind]} survived" for kind, tried in TRIED.items()
    ]
    if ASKED:
        missed = ", ".join(sorted(ASKED - MET)) or "none"
        lines.append(f"steps: {len(ASKED)} asked for; never met: {missed}")
    return lines
