"""A contestant in its process: started, asked, measured and ended, whatever it does.

Memory is the largest sum over the process and all that it started, sampled after every answer; Java
and Python workers count.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.peers.installation import ROOT, Contestant, python_of
from benchmarks.peers.programs.protocol import Change, Digest

ANSWER_SECONDS_MAX = 900.0


class ContestantError(Exception):
    """A contestant ended or did not answer in time."""


class ContestantProcess:
    """The process of one contestant, over the databases in a folder; use as a context manager."""

    def __init__(self, contestant: Contestant, folder: Path) -> None:
        self._log = folder / "contestant.log"
        module = f"benchmarks.peers.programs.{contestant.program}"
        command = [str(python_of(contestant)), "-m", module, str(folder), *contestant.arguments]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self.memory_mb_max = 0

    def __enter__(self) -> ContestantProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(BrokenPipeError):
            self._send({"end": True})
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=60)
        # What it started is in its process group, and ends with it.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(BrokenPipeError):
            self._process.communicate()

    def wait_for_load(self) -> float:
        return float(self._read()["seconds"])

    def apply_change(self, change: Change) -> float:
        words = {"deleted": change.deleted, "inserted": list(change.inserted)}
        self._send({"change": words})
        return float(self._read()["seconds"])

    def check_view(self) -> Digest:
        self._send({"check": True})
        answer = self._read()
        return Digest(answer["rows"], answer["digest"])

    def _send(self, words: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        output = self._process.stdout
        assert output is not None
        ready, _, _ = select.select([output], [], [], ANSWER_SECONDS_MAX)
        line = output.readline() if ready else b""
        self.memory_mb_max = max(self.memory_mb_max, _memory_mb(self._process.pid))
        if not line:
            last = self._log.read_text(errors="replace").strip().splitlines()[-1:]
            raise ContestantError(last[0] if last else "no answer")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _memory_mb(group: int) -> int:
    """The memory of all processes of a session, in MB."""
    pages = 0
    for process in Path("/proc").glob("[0-9]*"):
        # Others may end while they are looked at.
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == group:
                pages += int(fields[21])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20
