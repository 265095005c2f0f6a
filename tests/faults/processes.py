"""The processes of a test: writers that go on whatever happens, and a maintainer that is killed.

Both are real processes with pipes; when a test ends, however it ends, they are gone. What a
maintainer says is read by a thread, so that a test can wait for it with a limit.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.faults.shop import ROOT

PATIENCE_SECONDS = 240.0
NOTHING: Mapping[str, str] = {}


class Process:
    """A child that speaks in lines; killed at the latest when the block ends."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        folder: Path = ROOT,
        environment: Mapping[str, str] = NOTHING,
    ) -> None:
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._child = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A group of its own, so that a JVM that it started can be ended with it.
            process_group=0,
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def wait_for(self, start: str, seconds: float = PATIENCE_SECONDS) -> str:
        """The next line with this start; an AssertionError if the process ends or is too slow."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                line = self._queue.get(timeout=left)
            except queue.Empty:
                break
            assert line is not None, f"it ended without {start!r}:\n{self.output}"
            if line.startswith(start):
                return line
        raise AssertionError(f"no {start!r} within {seconds:g} seconds:\n{self.output}")

    def say(self, line: str) -> None:
        """Write a line to its input."""
        assert self._child.stdin is not None
        print(line, file=self._child.stdin, flush=True)

    def stop(self, by: int | None = None) -> int:
        """Ask it to stop, by a signal or by the end of its input; its exit code."""
        if by is not None:
            self._child.send_signal(by)
        elif self._child.stdin and not self._child.stdin.closed:
            self._child.stdin.close()
        return self.ended()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._child.poll() is None

    def kill(self) -> None:
        """End it by SIGKILL now; it must not have ended before, and it alone is killed."""
        assert self._child.poll() is None, f"it ended by itself:\n{self.output}"
        self._child.kill()
        self._child.wait()

    def ended(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait until it ends by itself; its exit code, negative for a signal."""
        try:
            return self._child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds:g} s:\n{self.output}") from None

    def listened(self) -> None:
        """Wait for the last line of a process that has ended."""
        self._listener.join(PATIENCE_SECONDS)

    @property
    def output(self) -> str:
        return "\n".join(self.lines[-60:])

    def _end_group(self) -> None:
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.lines.append(line.rstrip("\n"))
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.kill()
        self._child.wait()
        self._end_group()
        if self._child.stdin and not self._child.stdin.closed:
            self._child.stdin.close()
        self._listener.join()
        assert self._child.stdout is not None
        self._child.stdout.close()


def writers(project: Path, seed: int, *databases: str, pause_seconds_max: float = 0.06) -> Process:
    """The applications, writing to all databases or to these."""
    arguments = [str(project), str(seed), str(pause_seconds_max), *databases]
    process = Process("tests.faults.writer", arguments)
    process.wait_for("ready")
    return process


def maintainer(project: Path, *arguments: str, environment: Mapping[str, str] = NOTHING) -> Process:
    """The process under test."""
    return Process("tests.faults.runner", [str(project), *arguments], environment=environment)


def command(project: Path, *arguments: str) -> Process:
    """The program itself."""
    return Process("viewkeeper.cli.main", ["--project", str(project), *arguments])
