"""Performing a script: make its steps, and see at every expectation whether it is true.

A script is exact: a step that is not possible is an error, and so is an expectation that fails,
each at its line. What is expected of questions, answers, compensations and commits is about the
last step (or the last `drain`); several such lines in a row are one list. The level is what the
checker finds for the whole run, which must be over then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import assert_never

from viewkeeper.check.checker import Verdict, check
from viewkeeper.errors import ExpectationError, SimulationError
from viewkeeper.simulate.row_text import read_bag, write_bag
from viewkeeper.simulate.scripts.script_format import Drain, Expect, Line, Run, Script
from viewkeeper.simulate.simulated_world import World
from viewkeeper.simulate.step_choice import drain
from viewkeeper.simulate.trace import What
from viewkeeper.simulate.world_steps import Crash

NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Performed:
    """A run that was made; `verdict` is the checker's, None if the run did not get to its end."""

    world: World
    verdict: Verdict | None


def perform(script: Script, run: Run) -> Performed:
    """Make a run of a script; a SimulationError names the line that does not hold."""
    world = World(script.scenario, run.subject, observed=True)
    stage = _Stage(script.path, world)
    for what, group in groupby(run.lines, key=_kind):
        lines = list(group)
        if what == "step":
            for line in lines:
                stage.make(line)
        else:
            stage.expect(what, lines)
    return Performed(world, stage.verdict() if world.done else None)


def _kind(line: Line) -> str:
    return line.what.what if isinstance(line.what, Expect) else "step"


class _Stage:
    """A world and the place in its trace where the last step began."""

    def __init__(self, path: str | None, world: World) -> None:
        self._path = path
        self._world = world
        self._begin = 0
        self._verdict: Verdict | None = None

    def make(self, line: Line) -> None:
        """Make a step, which must be possible."""
        world, step = self._world, line.what
        self._begin = len(world.trace.entries)
        if isinstance(step, Drain):
            drain(world)
            return
        assert not isinstance(step, Expect)
        possible = [*world.enabled(), *world.repeatable(), Crash()]
        if step not in possible:
            raise self._error(line, f'"{step}" is not possible now', self._hint())
        world.make(step)

    def _hint(self) -> str:
        return "possible: " + (", ".join(map(str, self._world.enabled())) or "nothing")

    def _error(self, line: Line, message: str, hint: str | None = None) -> SimulationError:
        return SimulationError(f"{self._path or 'script'}:{line.number}: {message}", hint=hint)

    def verdict(self) -> Verdict:
        """What the checker says of the run so far."""
        if self._verdict is None:
            self._verdict = check(self._world.history())
        return self._verdict

    # -- expectations ------------------------------------------------------------------------------

    def expect(self, what: str, lines: Sequence[Line]) -> None:
        """See whether consecutive expectations of one kind hold."""
        wanted = [line.what.text for line in lines if isinstance(line.what, Expect)]
        try:
            found, wanted = self._compared(lines[0], wanted)
        except ValueError as wrong:
            raise self._error(lines[0], str(wrong)) from wrong
        if found != wanted:
            told, real = " | ".join(wanted) or NOTHING, " | ".join(found) or NOTHING
            where = f"{self._path or 'script'}:{lines[0].number}"
            raise ExpectationError(f"{where}: expected {what} {told}, found {real}")

    def _compared(self, line: Line, wanted: list[str]) -> tuple[list[str], list[str]]:
        """What was found and what was wanted, in the same words."""
        assert isinstance(line.what, Expect)
        match line.what.what:
            case "view":
                return [write_bag(self._world.store.rows)], [_bag(wanted[0])]
            case "stored":
                return [write_bag(self._world.store.counts)], [_bag(wanted[0])]
            case "commits":
                return self._said("store"), _bags(wanted)
            case "answered":
                return self._said("evaluate"), _bags(wanted)
            case "asked":
                found = self._said("ask") + self._said("ask again")
                return found, [_question(text) for text in wanted if text != NOTHING]
            case "compensated":
                return self._said("compensate"), [text for text in wanted if text != NOTHING]
            case "lookups":
                return [str(sum(self._world.asks.values()))], wanted
            case "level":
                return [self._level(line)], wanted
            case _:
                assert_never(line.what.what)

    def _said(self, what: What) -> list[str]:
        entries = [e for e in self._world.trace.entries[self._begin :] if e.what == what]
        if what in ("store", "evaluate"):
            return [text for entry in entries for text in entry.rows]
        return [entry.text for entry in entries]

    def _level(self, line: Line) -> str:
        if not self._world.done:
            raise self._error(line, "the run is not over", self._hint())
        return self.verdict().level.word


def _bag(text: str) -> str:
    return write_bag(read_bag(text))


def _bags(wanted: Sequence[str]) -> list[str]:
    """Bags in a row, `|` between those of one line."""
    return [_bag(bag) for text in wanted if text != NOTHING for bag in text.split("|")]


def _question(text: str) -> str:
    """A question with its keys in order; a product of terms as it is written."""
    parts = []
    for part in text.split(";"):
        name, _, keys = part.strip().partition(" ")
        plain = keys == "all" or name in "+-"
        parts.append(part.strip() if plain else f"{name} {_bag(keys)}")
    return "; ".join(parts)
