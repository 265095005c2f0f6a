"""An endpoint of Spark Connect in a process of its own, and clients of it.

Clients are those of PySpark, by their own classes: those of `pyspark.sql` would first ask whether
this process has a session already.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.connect.session import SparkSession as RemoteSession

PATIENCE = 240.0


@dataclass(frozen=True)
class Endpoint:
    """A server that clients can use."""

    process: subprocess.Popen[str]
    folder: Path
    port: int
    url: str

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Signal the server; its exit code, and what it wrote until then."""
        self.process.send_signal(number)
        said, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, said

    def processes(self) -> list[int]:
        """The server and all that it has started, as far as they run."""
        return processes_of_session(self.process.pid)


@contextmanager
def serving(
    folder: Path, *words: str, port: int = 0, environment: Mapping[str, str] | None = None
) -> Iterator[Endpoint]:
    """`viewkeeper serve`, at a port that is free or the one that is given; killed at the end of the
    block if it runs."""
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "viewkeeper.cli.main", "serve", address, *words]
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            line = read_line(process)
            found = re.search(r"(sc://[^:]+:(\d+)\S*)", line)
            assert found, line
            yield Endpoint(process, folder, int(found[2]), found[1])
        finally:
            for left in processes_of_session(process.pid):
                os.kill(left, signal.SIGKILL)


def read_line(process: subprocess.Popen[str]) -> str:
    """The next line that a process writes, or all of it if it has ended."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
    assert ready, "it said nothing"
    return process.stdout.readline()


def processes_of_session(session: int) -> list[int]:
    """The running processes of a session of the operating system."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(folder.name))
    return found


def wait_for_no_process(session: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while processes_of_session(session):
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.05)


@contextmanager
def connecting(url: str) -> Iterator[RemoteSession]:
    """A client's session, which is over at the end of the block."""
    session = RemoteSession.builder.remote(url).create()
    try:
        yield session
    finally:
        session.stop()
