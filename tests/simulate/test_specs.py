"""The worked examples of the papers, step by step: every file of tests/specs, every run in it.

A spec says what the paper says: who is asked for what, what the answers are, what the view is
after each step, and the level of the whole run. A run whose title says `without` something runs
with a part of the product switched off here, to show what that part is for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from viewkeeper.errors import SimulationError
from viewkeeper.simulate.scripts.script_format import Script, ScriptRun
from viewkeeper.simulate.scripts.script_reader import read_script
from viewkeeper.simulate.scripts.script_run import perform_run
from viewkeeper.simulate.simulated_store import SimulatedStore
from viewkeeper.updates.backlog import Backlog

SPECS = sorted((Path(__file__).parent.parent / "specs").glob("*.txt"))
Switch = Callable[[pytest.MonkeyPatch], None]


def forget_what_is_committed(patch: pytest.MonkeyPatch) -> None:
    """PVM without its related processed set: a finished update is known no more."""

    def clean(backlog: Backlog) -> None:
        backlog._kept = [kept for kept in backlog if not kept.committed]

    patch.setattr(Backlog, "forget_settled", clean)


def drop_negative_counts(patch: pytest.MonkeyPatch) -> None:
    """A store in which a row that is not there cannot be deleted in advance."""
    apply = SimulatedStore._apply_change

    def positive(store: SimulatedStore, change: object) -> None:
        apply(store, change)  # type: ignore[arg-type]  # whatever the original takes
        for row in [row for row, count in store._counts.items() if count < 0]:
            del store._counts[row]

    patch.setattr(SimulatedStore, "_apply_change", positive)


SWITCHES: dict[str, Switch] = {
    "without the related processed set": forget_what_is_committed,
    "without negative counts": drop_negative_counts,
}


def read(path: Path) -> Script:
    return read_script(path.read_text(encoding="utf-8"), path.name)


def runs() -> list[tuple[Script, ScriptRun]]:
    return [(script, run) for script in map(read, SPECS) for run in script.runs]


@pytest.mark.parametrize(
    ("script", "run"), runs(), ids=lambda each: getattr(each, "title", None) or each.path
)
def test_runs_as_the_paper_says(
    script: Script, run: ScriptRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    for phrase, switch in SWITCHES.items():
        if phrase in run.title:
            switch(monkeypatch)
    assert perform_run(script, run).verdict is not None, "the run must come to its end"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_expects_the_view_and_the_level(path: Path) -> None:
    for run in read(path).runs:
        told = {getattr(line.what, "what", None) for line in run.lines}
        assert {"level"} <= told, f"{run.title} ends without a level"
        assert told & {"view", "commits", "stored"}, f"{run.title} says nothing about the view"


@pytest.mark.parametrize("phrase", SWITCHES)
def test_every_switch_is_used(phrase: str) -> None:
    titles = [run.title for _, run in runs()]
    assert any(phrase in title for title in titles)


def test_a_wrong_expectation_is_found_at_its_line() -> None:
    path = next(path for path in SPECS if path.name == "sweep-figure-5.txt")
    text = path.read_text(encoding="utf-8").replace("expect view (5,6)[2]\n", "expect view (5,6)\n")
    script = read_script(text, path.name)
    line = text.splitlines().index("  expect view (5,6)") + 1
    with pytest.raises(SimulationError, match=rf"sweep-figure-5.txt:{line}: expected view"):
        perform_run(script, script.runs[0])
