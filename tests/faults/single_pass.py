"""One pass of maintenance after another, each in a process of its own that starts at once.

    python -m tests.faults.single_pass journal

A server: it imports everything once, and every pass is a fork of it, so that thousands of passes
are affordable. Requests and answers are lines of JSON (`tests.faults.passes` is the other end). A
pass does what `run` does until there is nothing more to do, upkeep included, with small commits in
the journal (`journal`) or each commit with its tables at once (`tables`); `strace` may be attached
to it first and let system calls fail, or kill at them. Settling lets the judge look at
what a fault has left, then makes a pass in peace, then lets the judge look at everything.

A pass waits for its sources however long it is stopped: one that took them for away would commit
nothing, and whatever is done to it then is no trial. A traced pass gives its half-made files the
same names every time.

A pass says how it ended through memory that it shares with the server, because writing to a pipe
is one of the system calls that may fail.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pyarrow.parquet

from tests.faults.judge import Judge
from tests.faults.medium import copy_medium, mounted
from tests.faults.passes import JOURNAL, LIMIT_SECONDS, PATIENCE_SECONDS, TABLES
from tests.faults.project_clock import follow_file
from tests.faults.writer import write_some
from viewkeeper.engine import upkeep
from viewkeeper.engine.batch import part_sweep
from viewkeeper.engine.connections import open_sources
from viewkeeper.engine.project import open_project
from viewkeeper.engine.report import SilentObserver
from viewkeeper.errors import ViewkeeperError
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.storage import disk
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.retention import clean_warehouse

IMPORTED = (deltalake, pyarrow.parquet, SqliteSource)
"""What is imported late elsewhere; a pass shall not spend its time on that."""

WAY = sys.argv[1] if len(sys.argv) > 1 else JOURNAL
"""How a pass commits."""

ROUNDS = 1
"""How often a pass looks."""

TAKEN_PASSES = 3
"""How many passes somebody makes who has taken a warehouse over."""

TAKEN_DATABASES = ("shop", "crm")
"""What is written to meanwhile."""

REPORT_BYTES = 1 << 20


class Troubles(SilentObserver):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_trouble(self, error: ViewkeeperError) -> None:
        self.lines.append(f"trouble {error}")


def main() -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        asked = json.loads(line)
        project = Path(asked["project"])
        match asked["work"]:
            case "pass":
                answer = run_apart(partial(make_pass, project), asked["trace"])
            case "settle":
                answer = run_apart(partial(settle, project))
            case "outlive":
                answer = outlive(project, asked["trace"])
            case "cut":
                answer = cut_power(project, asked["trace"], Path(asked["image"]))
        print(json.dumps(answer), flush=True)


def make_pass(project: Path) -> str:
    """Everything that waits, committed; what became old, folded and deleted."""
    hurry()
    be_patient()
    follow_file(project)
    told = Troubles()
    with open_project(project) as opened, opened.open_maintainer("run", told) as keeper:
        keeper.start_run()
        store = keeper.workspace.store
        if WAY == JOURNAL:
            # Without the thread of `run`: a flush comes at the same call every time.
            store.group.begin(nullcontext)
        chores = upkeep.Upkeep(keeper.workspace, keeper.plans.lanes.under_way)
        for _ in range(ROUNDS):
            keeper.see_commits(PATIENCE_SECONDS)
            keeper.maintain_views()
            keeper.acknowledge_commits(now=True)
            store.group.flush_tables()
            chores.run_due_steps()
        keeper.acknowledge_commits(now=True)
        store.group.end()
    return "\n".join(told.lines)


def settle(project: Path) -> str:
    """Judge what is there, go on in peace, and judge again: all there, once."""
    judge = Judge(project)
    judge.check()
    said = make_pass(project)
    try:
        judge.check_end()
    except AssertionError as error:
        raise AssertionError(f"{error}; the pass in peace said: {said or 'nothing'}") from error
    return f"{read_head(project / 'warehouse').record} {said}"


def hurry() -> None:
    """Every pass merges and folds, and deletes what it has replaced."""
    if WAY == TABLES:
        part_sweep.RETURN_BYTES = 200
    upkeep.MERGE_FILES = 3
    upkeep.ROUTINE_SECONDS = -1.0
    setattr(upkeep, "clean_warehouse", partial(clean_warehouse, retention_s=-1.0, fold_at_least=2))  # noqa: B010


def be_patient() -> None:
    """Who is stopped, however often and long, does not take its sources for away."""
    open_sources.SILENT_SECONDS = PATIENCE_SECONDS
    open_sources.CLOSE_SECONDS = PATIENCE_SECONDS


def repeat_names() -> None:
    """Let half-made files have the same names in every pass: by thread, and by number in it."""
    made: Counter[str] = Counter()

    def next_name() -> uuid.UUID:
        thread = threading.current_thread().name
        made[thread] += 1
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{thread} {made[thread]}")

    setattr(disk, "uuid", SimpleNamespace(uuid4=next_name))  # noqa: B010


def outlive(project: Path, trace: list[str]) -> dict[str, Any]:
    """A pass is stopped at a call; others take over and go far; then it wakes.

    While its lock holds nobody gets in. Somebody who removes the lock file does, as does one to
    whom a file server gives the lock of a holder that it believes to be dead.
    """
    first = Child(partial(make_pass, project), trace)
    if not first.is_stopped():
        return {**first.ended(), "met": False}
    if not can_write(project):
        # Another of its threads was stopped inside SQLite, and holds the application's database.
        first.go_on()
        return {**first.ended(), "met": False}
    shut_out = run_apart(partial(make_pass, project))
    (project / "warehouse" / "lock").unlink(missing_ok=True)
    second = run_apart(partial(take_over, project))
    first.go_on()
    ended = first.ended()
    after = read_head(project / "warehouse").record
    return {**ended, "met": True, "shut_out": shut_out, "second": second, "after": after}


def can_write(project: Path) -> bool:
    """Whether nobody holds a database of the applications that are written to next."""
    for name in TAKEN_DATABASES:
        connection = sqlite3.connect(project / f"{name}.db", isolation_level=None, timeout=2)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        finally:
            connection.close()
    return True


def cut_power(project: Path, trace: list[str], image: Path) -> dict[str, Any]:
    """A pass that is frozen again and again; each time the power is cut in a copy of the world.

    The copy has the sources as they are and the warehouse as it is on the medium.
    """
    running = Child(partial(make_pass, project), trace)
    copy, medium = project.with_name("copy"), image.with_name("copy.img")
    before = read_head(project / "warehouse").record
    failures: list[str] = []
    cuts = 0
    while running.is_stopped(cuts + 1):
        cuts += 1
        seen = read_head(project / "warehouse").record
        copy_medium(image, medium)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(project, copy, ignore=lambda _, names: {"warehouse"} & {*names})
        with mounted(medium, copy / "warehouse"):
            ended = run_apart(partial(settle, copy))
        print(f"cut {cuts}: {ended['code']} {ended['said'][-200:]}", file=sys.stderr, flush=True)
        if ended["code"] or int(ended["said"].split()[0]) < seen:
            failures.append(f"cut {cuts}, record {seen} was seen: {ended['said']}")
        running.go_on()
    ended = running.ended()
    if read_head(project / "warehouse").record == before:
        failures.append(f"the pass committed nothing, so {cuts} cuts tried nothing: {ended}")
    return {**ended, "cuts": cuts, "failures": failures}


def take_over(project: Path) -> str:
    """More transactions and more passes; the record that they come to."""
    for seed in range(TAKEN_PASSES):
        write_some(project, random.Random(seed), TAKEN_DATABASES, 2)
        make_pass(project)
    return str(read_head(project / "warehouse").record)


def run_apart(work: Callable[[], str], trace: Sequence[str] = ()) -> dict[str, Any]:
    """Do it in a fork; how that ended: its exit code, negative for a signal, and what it said."""
    return Child(work, trace).ended()


class Child:
    """A fork that works, perhaps watched by strace, which then says what it has met."""

    def __init__(self, work: Callable[[], str], trace: Sequence[str]) -> None:
        self._report = mmap.mmap(-1, REPORT_BYTES)
        self._log = tempfile.NamedTemporaryFile("r", prefix="viewkeeper-strace-")  # noqa: SIM115
        waits, goes = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(goes)
            os.read(waits, 1)
            if trace:
                repeat_names()
            os._exit(protected(work, self._report))
        os.close(waits)
        self._tracer = attach(self._pid, ["-o", self._log.name, *trace]) if trace else None
        os.write(goes, b"!")
        os.close(goes)

    def is_stopped(self, times: int = 1) -> bool:
        """Wait until a signal stops it, for the so manieth time, or until it ends."""
        end = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < end:
            if self._stops() >= times:
                return True
            found = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is not None:
                return False
            time.sleep(0.002)
        return False

    def go_on(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def ended(self) -> dict[str, Any]:
        """Wait for it; what it said, and whether strace did what it was asked for."""
        code = wait_for(self._pid)
        if self._tracer is not None:
            self._tracer.communicate()
        said = self._report[: self._report.find(b"\0")].decode()
        met = bool(re.search("INJECTED|killed by SIGKILL", self._met()))
        self._report.close()
        self._log.close()
        return {"code": code, "said": said, "met": met}

    def _stops(self) -> int:
        """How often it was stopped; every thread is told, the one that met the call first."""
        return self._met().count("--- SIGSTOP {")

    def _met(self) -> str:
        return Path(self._log.name).read_text(errors="replace")


def protected(work: Callable[[], str], report: mmap.mmap) -> int:
    """Exit codes as those of the program: 0, 2 for an error of ours, 1 for a traceback."""
    loose: list[str] = []
    sys.unraisablehook = lambda found: loose.append(f"unraisable {found.exc_value!r}")
    threading.excepthook = lambda found: loose.append(f"in a thread {found.exc_value!r}")
    try:
        code, said = 0, work()
    except ViewkeeperError as error:
        code, said = 2, f"error {error}"
    except BaseException:  # noqa: BLE001 - it is what the campaign looks for
        code, said = 1, traceback.format_exc()
    if loose:
        code, said = 1, "\n".join([*loose, said])
    told = said.encode()[: REPORT_BYTES - 1]
    report[: len(told)] = told
    return code


def attach(child: int, trace: Sequence[str]) -> subprocess.Popen[str]:
    """Let strace watch a process that waits for it."""
    command = ["strace", "-p", str(child), *trace]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    first = tracer.stderr.readline()
    if "attached" not in first:
        os.kill(child, signal.SIGKILL)
        raise RuntimeError(f"strace could not attach: {first}{tracer.stderr.read()}")
    return tracer


def wait_for(child: int) -> int:
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 124


if __name__ == "__main__":
    main()
