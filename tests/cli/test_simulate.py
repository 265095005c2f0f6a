"""`viewkeeper simulate`: what it says and how it ends, on seeds, scripts and tables.

A failing seed must give a command that replays it and a script that fails when it is run; here that
is an algorithm of which more is demanded than it promises.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import call
from viewkeeper.maintain.algorithm_catalogue import KINDS

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "tests/specs/sweep-figure-5.txt"
TOO_MUCH = ["simulate", "--algorithm", "strobe", "--scenario", "local", "--level", "strong"]


def test_seeds_that_keep_the_promise() -> None:
    result = call("simulate", "--algorithm", "sweep", "--seeds", "12", "--jobs", "1")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "sweep, single",
        "sweep, local",
        "sweep, global",
    ]
    assert all("12 seeds, lowest level complete, complete wanted" in line for line in lines)


def test_the_number_of_processes_does_not_matter() -> None:
    words = ["simulate", "--algorithm", "pvm", "--scenario", "global", "--seeds", "45"]
    alone, together = (call(*words, "--jobs", jobs) for jobs in ("1", "2"))
    assert alone.exit_code == together.exit_code == 0
    assert alone.stdout == together.stdout


def test_a_failure_replays_and_is_a_script_that_fails(tmp_path: Path) -> None:
    result = call(*TOO_MUCH, "--seeds", "20", "--jobs", "1")
    assert result.exit_code == 1
    assert "BELOW strong" in result.stdout
    command = re.search(r"^  viewkeeper (simulate .*)$", result.stdout, re.M)
    assert command is not None
    again = call(*shlex.split(command[1]))
    assert again.exit_code == 1
    text = result.stdout[result.stdout.index("view SELECT") :]
    script, explanation = text.split("\n\n", 1)
    assert script in again.stdout
    assert "matches no source vector" in explanation
    file = tmp_path / "small.txt"
    file.write_text(script, encoding="utf-8")
    assert call("simulate", str(file), "--level", "strong").exit_code == 1
    assert call("simulate", str(file)).exit_code == 0, "what it promises it keeps"


def test_one_seed_drawn_and_recorded(tmp_path: Path) -> None:
    drawing, record = tmp_path / "run.svg", tmp_path / "run.json"
    words = ["simulate", "--algorithm", "batch_sweep", "--seed", "3", "--scenario", "local"]
    result = call(*words, "--diagram", str(drawing), "--history", str(record))
    assert result.exit_code == 0, result.output
    assert "batch_sweep, local, seed 3: complete, complete wanted" in result.stdout
    assert "<svg" in drawing.read_text(encoding="utf-8")
    assert call("check", str(record), "--level", "complete").exit_code == 0


def test_a_script_file(tmp_path: Path) -> None:
    result = call("simulate", str(SPEC))
    assert result.exit_code == 0, result.output
    assert result.stdout.count("complete, 6 lookups") == 2
    wrong = tmp_path / "wrong.txt"
    text = SPEC.read_text(encoding="utf-8")
    wrong.write_text(text.replace("expect lookups 6", "expect lookups 5"), encoding="utf-8")
    failed = call("simulate", str(wrong))
    assert failed.exit_code == 1
    assert "expected lookups 5, found 6" in failed.stdout
    wrong.write_text(text.replace("deliver y", "delivre y"), encoding="utf-8")
    unread = call("simulate", str(wrong))
    assert unread.exit_code == 2
    assert "not a step: 'delivre y'" in unread.stderr


def test_the_script_in_the_documentation_fails_as_it_says(tmp_path: Path) -> None:
    page = (ROOT / "docs/algorithms.md").read_text(encoding="utf-8")
    block = re.search(r"```text\n(.*?)```", page, re.S)
    assert block is not None
    file = tmp_path / "printed.txt"
    file.write_text(block[1], encoding="utf-8")
    result = call("simulate", str(file), "--level", "strong")
    assert result.exit_code == 1
    assert "strong was wanted" in result.stdout


def test_the_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- algorithms:begin -->\nold\n<!-- algorithms:end -->\nz\n")
    result = call("simulate", "--table", "--seeds", "1", "--jobs", "1", "--into", str(page))
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    assert text.startswith("a\n<!-- algorithms:begin -->\n")
    assert text.endswith("<!-- algorithms:end -->\nz\n")
    assert "old" not in text
    for name in KINDS:
        assert f"| `{name}` |" in text
        assert result.stdout.count(f"| `{name}` |") == 3
    page.write_text("no place")
    assert call("simulate", "--table", "--seeds", "1", "--into", str(page)).exit_code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say one of"),
        (["--algorithm", "swep"], 'did you mean "sweep"?'),
        (["--algorithm", "sweep", "--view", "ring:3"], "not a shape"),
        (["--algorithm", "sweep", "--option", "speed=3"], 'no option "speed"'),
        (["--algorithm", "sweep", "--option", "speed"], "expected key=value"),
        (["--algorithm", "sweep", "--seed", "1", "--diagram", "x.svg"], "need a --scenario"),
        ([str(SPEC), "--diagram", "x.svg"], "several runs"),
        ([str(SPEC), "--run", "7"], "it has 2 runs"),
        ([str(SPEC), "--table"], "say one of"),
    ],
)
def test_refusals(words: list[str], message: str) -> None:
    result = call("simulate", *words)
    assert result.exit_code == 2
    assert message in result.stderr


@contextmanager
def campaign_at_work() -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A campaign in a process of its own, and the processes that it has started."""
    program = [sys.executable, "-m", "viewkeeper.cli.main", "simulate", "--algorithm", "sweep"]
    words = [*program, "--seeds", "100000", "--jobs", "2"]
    # A parent may ignore SIGINT (nohup, a job in the background), and children inherit that.
    running = subprocess.Popen(
        words,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        deadline = time.monotonic() + 120
        while len(children.read_text().split()) < 3 and time.monotonic() < deadline:
            time.sleep(0.2)
        yield running, [int(child) for child in children.read_text().split()]
    finally:
        running.kill()
        running.wait()


def test_an_interrupt_says_how_far_it_came() -> None:
    with campaign_at_work() as (running, _):
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=240)
    assert running.returncode == 130
    assert re.search(r"stopped after [\d,]+ of 300,000 seeds; 0 of them below the level", said)


def test_workers_end_when_their_parent_was_killed() -> None:
    with campaign_at_work() as (running, workers):
        running.kill()
        running.communicate(timeout=240)
    assert len(workers) == 3
    deadline = time.monotonic() + 240
    while any(map(is_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(map(is_alive, workers))


def is_alive(process: int) -> bool:
    """Whether it still runs; in a container nobody may collect what has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("", 0, "up to "),
        ("rate=5000,views=3,latency=2ms", 0, "5,000"),
        ("rate=9000000", 1, "is not kept up with"),
        ("p95=1ms", 0, "no rate shows"),
        ("rat=5", 2, 'did you mean "rate"?'),
        ("rate=-1", 2, "out of range"),
        ("rate=nan", 2, "out of range"),
        ("views=1.5", 2, "a whole number"),
        ("latency=soon", 2, "must be a duration"),
        ("batch=40ms,change=0.06ms,rate=1000", 0, "60 us more for each change"),
        ("batch=2s", 0, "no rate shows"),
        ("change=1ms", 2, '"change" goes with "batch"'),
        ("batch=40ms,views=3", 2, 'has what "views" adds in it'),
    ],
)
def test_the_command_says_which_rates_fit(words: str, code: int, said: str) -> None:
    ended = call("simulate", "--capacity", words)
    assert ended.exit_code == code, ended.output
    assert said in ended.output


def test_capacity_goes_alone() -> None:
    ended = call("simulate", "--capacity", "rate=1", "--table")
    assert ended.exit_code == 2
    assert "goes alone" in ended.output
