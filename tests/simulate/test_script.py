"""The text language: what is written is read back, and what is wrong is found at its line.

Random scenarios with random schedules go through the text and must come out the same, and a run
that is replayed from its text must show the same states.
"""

from __future__ import annotations

import random

import pytest

from viewkeeper.errors import SimulationError
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.simulate.campaigns.workload import JoinShape, Workload, random_scenario
from viewkeeper.simulate.scenario import AlgorithmSubject, read_step
from viewkeeper.simulate.scripts.script_format import Script, script_of
from viewkeeper.simulate.scripts.script_reader import read_script
from viewkeeper.simulate.scripts.script_run import perform_run
from viewkeeper.simulate.simulated_world import SimulatedWorld
from viewkeeper.simulate.step_choice import play_randomly, random_tempo

GOOD = """\
view SELECT p.name, q.b FROM x.people p, y.q q WHERE p.id = q.a  # a comment
table x.people (id*, name text)  (1,'ada #1') (2,'it''s')
table y.q (a, b)
  (1,-)[2]
transaction T1  +x.people(3,-) -y.q(1,-)
late T1 at x
reporter T1 at y
channels tails
algorithm sweep parallel=2
steps first
  commit T1
run all of it
  first
  reveal T1 at x
  drain
  expect view ('ada #1',-)
  expect level complete
"""


@pytest.mark.parametrize("seed", range(40))
def test_what_is_written_is_read_back(seed: int) -> None:
    rng = random.Random(seed)
    shape = JoinShape.read_shape(rng.choice(["chain:3", "star:3", "self:3", "cycle:3"]))
    transactions = rng.choice(list(Transactions))
    scenario = random_scenario(rng, Workload(shape, transactions, rng.random() < 0.5, False))
    subject = AlgorithmSubject("sweep", {"parallel": 3})
    world = SimulatedWorld(scenario, subject)
    play_randomly(world, rng, random_tempo(rng, world))
    steps = [read_step(text) for text in world.trace.steps]
    text = str(script_of(scenario, subject, steps, "again"))
    script = read_script(text)
    assert str(script) == text
    assert script.scenario == scenario
    again = perform_run(script, script.runs[0]).world
    assert again.store.states == world.store.states


def test_text_null_comments_and_groups() -> None:
    script = read_script(GOOD)
    assert script.scenario.tables[0].rows == {(1, "ada #1"): 1, (2, "it's"): 1}
    assert script.scenario.late == {("x", "T1")}
    assert perform_run(script, script.runs[0]).verdict is not None
    assert str(read_script(str(script))) == str(script)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("y.q (a, b)", "y.q (a, b c d)", 3, "expected a column"),
        ("(1,-)[2]", "(1,?)[2]", 3, "expected an integer"),
        ("(1,-)[2]", "(1)[2]", 3, "is no row of y.q"),
        ("+x.people(3,-)", "+x.peopl(3,-)", 5, "there is no table x.peopl"),
        ("late T1 at x", "late T2 at x", 6, "T2 is no transaction at source x"),
        ("channels tails", "channels both", 8, "fifo, cuts or tails"),
        ("sweep parallel=2", "swep", 9, 'there is no algorithm "swep"'),
        ("  commit T1", "  commit T2", 11, "there is no transaction T2"),
        ("  drain", "  drian", 15, "not a step"),
        ("  drain", "  deliver w", 15, "there is no source w"),
        ("expect view", "expect vieew", 16, "can be expected"),
        ("view SELECT p.name", "view SELECT p.nam", 1, "nam"),
        ("view SELECT", "  SELECT", 1, "needs a statement above"),
        ("channels", "chanels", 8, "begins no statement"),
    ],
)
def test_an_error_names_its_line(old: str, new: str, line: int, message: str) -> None:
    assert old in GOOD
    with pytest.raises(SimulationError) as raised:
        read_script(GOOD.replace(old, new, 1), "it.txt")
    assert str(raised.value).startswith(f"it.txt:{line}: ")
    assert message in str(raised.value)


def test_a_step_that_is_not_possible_says_what_is() -> None:
    script: Script = read_script(GOOD.replace("  drain", "  evaluate y"), "it.txt")
    with pytest.raises(SimulationError, match=r'it.txt:15: "evaluate y" is not possible') as raised:
        perform_run(script, script.runs[0])
    assert "deliver" in (raised.value.hint or "")
