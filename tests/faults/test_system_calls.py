"""A pass of maintenance, killed and refused at every system call that changes something.

A project is prepared so that one pass recovers, plans, sweeps, keeps history, commits to the
journal or to tables, flushes, merges, folds, deletes, acknowledges and trims. For each of its
changing calls that pass is made once on a copy, under strace, which kills at the call or lets it
fail; then the judge looks at what is left, a pass in peace goes on from it, and the judge looks
again: lost 0, doubled 0. A refusal ends the pass with an error of ours and a way out, or concerns
something that is merely tried again. A call of a thread that comes in another order this time is
not met, and does not count.

Folders are made once and stay, so there is another project for them, whose first pass it is.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.passes import JOURNAL, TABLES, Ended, Outlived, Passes, pass_server
from tests.faults.shop import copy_project
from tests.faults.system_calls import KINDS, Call, recorded_calls, recording
from tests.faults.tally import Faults
from tests.faults.writer import write_some
from viewkeeper.warehouse.metadata.head import read_head

pytestmark = pytest.mark.campaign

SETTINGS = "history: 1s\n"
PREPARING_PASSES = 4
ERRORS = {"fsync": ("EIO",), "rename": ("EIO",), "unlink": ("EIO",)}
"""With which errors a call fails, where not with both in turn."""

ONLY = int(os.environ.get("VIEWKEEPER_FAULT", "0"))
"""Which call of its kind to meet, to have one failure again; 0 for all."""

STRIDE = int(os.environ.get("VIEWKEEPER_FAULT_STRIDE", "1"))
"""Meet every so manieth call of a kind, where there is no time for all."""


class Bench:
    """The server of passes, a prepared project, and what a pass over it does."""

    def __init__(self, passes: Passes, prepared: Path, folder: Path) -> None:
        self.passes = passes
        self._prepared = prepared
        self.project = folder / "shop"
        self._log = folder / "calls"
        before = read_head(self.renew() / "warehouse").record
        ended = passes.run(self.project, recording(self._log))
        assert ended.code == 0, ended.said
        after = read_head(self.project / "warehouse").record
        assert after > before, f"it committed nothing, so that it is no trial: {ended.said}"

    def renew(self) -> Path:
        """The prepared project once more, always in the same place."""
        shutil.rmtree(self.project, ignore_errors=True)
        return copy_project(self._prepared, self.project, SETTINGS)

    def calls(self, kind: str) -> list[tuple[int, Call]]:
        numbered = list(enumerate(recorded_calls(self._log, kind, self.project), 1))
        return [numbered[ONLY - 1]] if ONLY else numbered[::STRIDE]


@pytest.fixture(scope="module")
def bench(reporting: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """On a disk in memory where there is one: what is killed is the process, not the machine.

    The parameter says how passes commit, and how many came before.
    """
    way, before = request.param
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="viewkeeper-", dir=place) as folder:
        prepared = copy_project(reporting, Path(folder) / "prepared", SETTINGS)
        rng = random.Random(1)
        with pass_server(way) as passes:
            for _ in range(before):
                write_some(prepared, rng, ("shop", "crm"), 2)
                assert passes.run(prepared).code == 0
            write_some(prepared, rng, ("shop", "crm"), 2)
            yield Bench(passes, prepared, Path(folder))


every_kind = pytest.mark.parametrize(
    ("kind", "bench"),
    [
        *(
            pytest.param(kind, (way, PREPARING_PASSES), id=f"{kind}-{way}")
            for way in (JOURNAL, TABLES)
            for kind in KINDS
        ),
        pytest.param("mkdir", (JOURNAL, 0), id="mkdir-first"),
    ],
    indirect=["bench"],
)


@every_kind
def test_killed_at_every_changing_call(
    kind: str, bench: Bench, request: pytest.FixtureRequest
) -> None:
    faults = Faults("kill at a changing system call")
    for number, call in bench.calls(kind):
        ended = bench.passes.run(bench.renew(), call.arguments("signal=KILL"))
        if not ended.met:
            continue
        with faults.attempt(f"{number}: {call}"):
            assert ended.code == -signal.SIGKILL, f"exit code {ended.code}: {ended.said}"
            bench.passes.settle(bench.project)
    faults.check(again(request))


@every_kind
def test_refused_at_every_changing_call(
    kind: str, bench: Bench, request: pytest.FixtureRequest
) -> None:
    faults = Faults(f"failing {kind}")
    for number, call in bench.calls(kind):
        errors = ERRORS.get(kind, ("EIO", "ENOSPC"))
        error = errors[number % len(errors)]
        ended = bench.passes.run(bench.renew(), call.arguments(f"error={error}"))
        if not ended.met:
            continue
        with faults.attempt(f"{number}: {call} {error}"):
            check_refusal(ended)
            bench.passes.settle(bench.project)
    faults.check(again(request))


@every_kind
def test_a_zombie_woken_after_every_changing_call(
    kind: str, bench: Bench, request: pytest.FixtureRequest
) -> None:
    """It is stopped after a call; its lock is gone, others go on; it wakes and commits nothing."""
    faults = Faults("zombie stopped at a changing system call")
    for number, call in bench.calls(kind):
        if "/warehouse/" not in call.path:
            # Who is stopped inside SQLite holds the application's database; that is SQLite's.
            continue
        found = bench.passes.outlive(bench.renew(), call.arguments("signal=STOP"))
        if found is None:
            continue
        with faults.attempt(f"{number}: {call}"):
            check_zombie(found)
            bench.passes.settle(bench.project)
    faults.check(again(request))


def check_zombie(found: Outlived) -> None:
    """Nobody got in while it held its lock; who came after was not disturbed by it."""
    ended, shut_out, second = found.ended, found.shut_out, found.second
    assert shut_out.code == 2, shut_out.said
    assert "another process maintains it" in shut_out.said
    assert second.code == 0, second.said
    assert ended.code in (0, 2), f"exit code {ended.code}: {ended.said}"
    assert found.record == int(second.said), f"records went from {second.said} to {found.record}"


def check_refusal(ended: Ended) -> None:
    """It stopped with a way out, or went on; and said what the system said, whole."""
    assert ended.code in (0, 2), f"exit code {ended.code}: {ended.said}"
    if ended.code == 2:
        assert re.search(r"\n  hint: ", ended.said), f"no way out: {ended.said}"


def again(request: pytest.FixtureRequest) -> str:
    test = f".venv/bin/python -m pytest -m campaign '{request.node.nodeid}'"
    return f"{test} (VIEWKEEPER_FAULT=NUMBER for one)"
