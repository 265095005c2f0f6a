"""A Spark standalone cluster on this machine: a master, and workers that can be killed.

Each worker is a process with a folder of its own, and starts its executors as processes below it.
Nothing of the driver's memory is there in the tasks, as on other machines.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from viewkeeper.errors import SparkUnavailableError
from viewkeeper.testing.private_servers import free_port

HOST = "127.0.0.1"
START_SECONDS = 120.0
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "CoarseGrainedExecutorBackend"


class StandaloneCluster:
    """The processes of a cluster; `url` is what a project names as its master.

    Workers are added one by one; their logs are in the cluster's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._page = free_port(), free_port()
        self._workers: list[subprocess.Popen[bytes]] = []
        self._made = 0
        self.url = f"spark://{HOST}:{self._port}"
        ports = ("--port", str(self._port), "--webui-port", str(self._page))
        self._master = self._start(MASTER, *ports)
        self._wait_for(self._folder / "0.log", "I have been elected leader")

    def add_worker(self) -> None:
        """One more worker, with one core."""
        home = self._folder / f"worker-{self._made}"
        options = ("--cores", "1", "--memory", "1g", "--work-dir", str(home))
        self._workers.append(
            self._start(WORKER, *options, "--webui-port", str(free_port()), self.url)
        )
        self._wait_for(self._folder / f"{self._made - 1}.log", "Successfully registered")

    def worker_pids(self) -> list[int]:
        """The processes of the workers; their executors are below them."""
        return [worker.pid for worker in self._workers]

    def kill_worker(self) -> None:
        """Kill a worker and its executors, as a machine that is gone."""
        worker = self._workers.pop(0)
        for pid in [*executors_of(worker.pid), worker.pid]:
            kill_process(pid)
        worker.wait()

    def kill_executors(self) -> int:
        """Kill all executors; the workers start others. How many there were."""
        pids = [pid for worker in self._workers for pid in executors_of(worker.pid)]
        for pid in pids:
            kill_process(pid)
        return len(pids)

    def stop(self) -> None:
        """End all processes."""
        while self._workers:
            self.kill_worker()
        self._master.kill()
        self._master.wait()

    def _start(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        # What this process imports from elsewhere is not there on another machine.
        environment.pop("PYTHONPATH", None)
        with (self._folder / f"{self._made}.log").open("wb") as log:
            self._made += 1
            return subprocess.Popen(
                [str(home / "bin" / "spark-class"), program, "--host", HOST, *options],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _wait_for(self, log: Path, words: str) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if words in log.read_text(errors="replace"):
                return
            time.sleep(0.1)
        raise SparkUnavailableError(
            f"a process of the cluster did not start within {START_SECONDS:g} seconds",
            detail=log.read_text(errors="replace")[-3000:],
        )


@contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[StandaloneCluster]:
    """A cluster for as long as the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = StandaloneCluster(folder)
    try:
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.stop()


def executors_of(worker: int) -> list[int]:
    """The executors that a worker has started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # Processes of others may end while they are looked at.
        with suppress(FileNotFoundError, ProcessLookupError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == worker and EXECUTOR in (process / "cmdline").read_text():
                found.append(int(process.name))
    return found


def kill_process(pid: int) -> None:
    """End a process by SIGKILL, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
