"""Performing a script: make its steps, and see at every expectation whether it is true.

A script is exact: a step that is not possible is an error, and so is an expectation that fails,
each at its line. What is expected of questions, answers, compensations and commits is about the
last step (or the last `drain_world`); several such lines in a row are one list. The level is what
the checker finds for the whole run, which must be over then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import assert_never

from viewkeeper.check.checker import Verdict, check_history
from viewkeeper.errors import ExpectationError, SimulationError
from viewkeeper.simulate.row_text import read_bag, write_bag
from viewkeeper.simulate.scenario import CrashStep
from viewkeeper.simulate.scripts.script_format import Drain, Expect, Script, ScriptLine, ScriptRun
from viewkeeper.simulate.simulated_world import SimulatedWorld
from viewkeeper.simulate.step_choice import drain_world
from viewkeeper.simulate.trace import What

NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class PerformedRun:
    """A run that was made; `verdict` is the checker's, None if the run did not get to its end."""

    world: SimulatedWorld
    verdict: Verdict | None


def perform_run(script: Script, run: ScriptRun) -> PerformedRun:
    """Make a run of a script; a SimulationError names the line that does not hold."""
    world = SimulatedWorld(script.scenario, run.subject, observed=True)
    stage = _ScriptStage(script.path, world)
    for what, group in groupby(run.lines, key=_kind_of):
        lines = list(group)
        if what == "step":
            for line in lines:
                stage.make_step(line)
        else:
            stage.check_expectation(what, lines)
    return PerformedRun(world, stage.check_run() if world.is_done else None)


def _kind_of(line: ScriptLine) -> str:
    return line.what.what if isinstance(line.what, Expect) else "step"


class _ScriptStage:
    """A world and the place in its trace where the last step began."""

    def __init__(self, path: str | None, world: SimulatedWorld) -> None:
        self._path = path
        self._world = world
        self._begin = 0
        self._verdict: Verdict | None = None

    def make_step(self, line: ScriptLine) -> None:
        """Make a step, which must be possible."""
        world, step = self._world, line.what
        self._begin = len(world.trace.entries)
        if isinstance(step, Drain):
            drain_world(world)
            return
        assert not isinstance(step, Expect)
        possible = [*world.enabled_steps(), *world.repeatable_steps(), CrashStep()]
        if step not in possible:
            raise self._error_at(line, f'"{step}" is not possible now', self._possible_steps())
        world.make_step(step)

    def _possible_steps(self) -> str:
        return "possible: " + (", ".join(map(str, self._world.enabled_steps())) or "nothing")

    def _error_at(self, line: ScriptLine, message: str, hint: str | None = None) -> SimulationError:
        return SimulationError(f"{self._path or 'script'}:{line.number}: {message}", hint=hint)

    def check_run(self) -> Verdict:
        """What the checker says of the run so far."""
        if self._verdict is None:
            self._verdict = check_history(self._world.run_history())
        return self._verdict

    def check_expectation(self, what: str, lines: Sequence[ScriptLine]) -> None:
        """See whether consecutive expectations of one kind hold."""
        wanted = [line.what.text for line in lines if isinstance(line.what, Expect)]
        try:
            found, wanted = self._compare_expected(lines[0], wanted)
        except ValueError as wrong:
            raise self._error_at(lines[0], str(wrong)) from wrong
        if found != wanted:
            told, real = " | ".join(wanted) or NOTHING, " | ".join(found) or NOTHING
            where = f"{self._path or 'script'}:{lines[0].number}"
            raise ExpectationError(f"{where}: expected {what} {told}, found {real}")

    def _compare_expected(self, line: ScriptLine, wanted: list[str]) -> tuple[list[str], list[str]]:
        """What was found and what was wanted, in the same words."""
        assert isinstance(line.what, Expect)
        match line.what.what:
            case "view":
                return [write_bag(self._world.store.visible_rows)], [_normal_bag(wanted[0])]
            case "stored":
                return [write_bag(self._world.store.stored_counts)], [_normal_bag(wanted[0])]
            case "commits":
                return self._entries_of("store"), _normal_bags(wanted)
            case "answered":
                return self._entries_of("evaluate"), _normal_bags(wanted)
            case "asked":
                found = self._entries_of("ask") + self._entries_of("ask again")
                return found, [_normal_question(text) for text in wanted if text != NOTHING]
            case "compensated":
                return self._entries_of("compensate"), [text for text in wanted if text != NOTHING]
            case "lookups":
                return [str(sum(self._world.asks.values()))], wanted
            case "level":
                return [self._level_found(line)], wanted
            case _:
                assert_never(line.what.what)

    def _entries_of(self, what: What) -> list[str]:
        entries = [e for e in self._world.trace.entries[self._begin :] if e.what == what]
        if what in ("store", "evaluate"):
            return [text for entry in entries for text in entry.rows]
        return [entry.text for entry in entries]

    def _level_found(self, line: ScriptLine) -> str:
        if not self._world.is_done:
            raise self._error_at(line, "the run is not over", self._possible_steps())
        return self.check_run().level.lower_name


def _normal_bag(text: str) -> str:
    return write_bag(read_bag(text))


def _normal_bags(wanted: Sequence[str]) -> list[str]:
    """Bags in a row, `|` between those of one line."""
    return [_normal_bag(bag) for text in wanted if text != NOTHING for bag in text.split("|")]


def _normal_question(text: str) -> str:
    """A question with its keys in order; a product of terms as it is written."""
    parts = []
    for part in text.split(";"):
        name, _, keys = part.strip().partition(" ")
        plain = keys == "all" or name in "+-"
        parts.append(part.strip() if plain else f"{name} {_normal_bag(keys)}")
    return "; ".join(parts)
