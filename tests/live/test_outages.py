"""Servers that stop in every way they know, and networks that are cut, under writers, all the time.

The maintainer's process lives through all of it, the view over the other database goes on during
each outage, the views over the one that was away catch up after each, and every state that any view
ever had is right, against the database's own log.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.faults.processes import PATIENCE_SECONDS, Process, maintainer
from tests.live.judge import judge
from tests.live.kinds import Kind
from tests.live.test_live import KINDS, make_crm, make_project
from tests.live.writers import Writers
from tests.network import Proxy
from viewkeeper.warehouse.metadata.head import read_head

pytestmark = pytest.mark.campaign

ROUNDS = int(os.environ.get("VIEWKEEPER_OUTAGES", "8"))
STOPS = {
    "postgres": {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT},
    "mariadb": {"stop": signal.SIGTERM, "kill": signal.SIGKILL},
}


class Outages:
    """A database under writers behind a network, and how both fail."""

    def __init__(self, kind: Kind, name: str, proxy: Proxy, project: Path) -> None:
        self._kind = kind
        self._stops = STOPS[name.partition("-")[0]]
        self._proxy = proxy
        self._project = project

    @property
    def ways(self) -> list[str]:
        return [*self._stops, "restart", "reset", "silent"]

    @contextmanager
    def outage(self, way: str) -> Iterator[None]:
        """Inside, the database is away; a reset and a restart are over at once."""
        if way == "silent":
            self._proxy.go_silent()
        elif way == "reset":
            self._proxy.reset()
        elif way == "restart":
            self._kind.server.stop()
            self._kind.server.start()
        else:
            os.kill(self._kind.server.pid, self._stops[way])
        yield
        if way == "silent":
            self._proxy.reset()
            self._proxy.mend()
        elif way in self._stops:
            self._kind.server.stop()
            self._kind.server.start()

    def ts(self, view: str) -> int:
        return read_head(self._project / "warehouse").views[view].ts


def wait_until(true: Callable[[], bool], process: Process, said: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert process.runs, f"{said}: it has ended:\n{process.output}"
        assert time.monotonic() < end, f"{said}:\n{process.output}"
        time.sleep(0.05)


@pytest.mark.parametrize("name", KINDS)
def test_outages_are_lived_through(name: str, tmp_path: Path, spark: SparkSession) -> None:
    kind = KINDS[name](tmp_path / "server")
    kind.server.start()
    rng = random.Random(f"outages of {name}")
    try:
        kind.create()
        names = make_crm(tmp_path / "crm.db")
        with Proxy(kind.server.port) as proxy:
            make_project(tmp_path, kind)
            file = tmp_path / "viewkeeper.yml"
            behind = file.read_text().replace(f":{kind.server.port}/", f":{proxy.port}/")
            file.write_text(behind.replace("url:", "statement_seconds: 2, url:"))
            with viewkeeper.open(tmp_path, spark=spark) as project:
                project.refresh()
            with Writers(kind, tmp_path / "crm.db", seed=7, connections=2) as writers:
                with maintainer(tmp_path) as process:
                    process.wait_for("batch")
                    outages = Outages(kind, name, proxy, tmp_path)
                    for _ in range(ROUNDS):
                        live_through(outages, rng, process)
                    assert process.stop() == 0, process.output
                assert writers.commits > ROUNDS
            proxy.reset()
            with viewkeeper.open(tmp_path, spark=spark) as project:
                assert project.refresh().waiting == {}
                assert judge(project, kind.log(), tmp_path / "crm.db", names) > ROUNDS
    finally:
        kind.server.stop()


def live_through(outages: Outages, rng: random.Random, process: Process) -> None:
    """One outage: the other database's view goes on in it, the join catches up after it."""
    way = rng.choice(outages.ways)
    time.sleep(rng.random() * 0.5)
    with outages.outage(way):
        newest = outages.ts("ledger_crm") + 3
        wait_until(lambda: outages.ts("ledger_crm") > newest, process, f"{way}: others wait")
    newest = outages.ts("ledger_crm")
    wait_until(lambda: outages.ts("order_lines") > newest, process, f"{way}: no catching up")
