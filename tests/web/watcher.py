"""Somebody who watches a maintainer over HTTP all the time, whatever becomes of it.

A thread asks for figures, probes and a sum over a view again and again, and keeps every answer. A
process that is not there is no answer; each process is told by the time of its start, which its
own figures have. What must hold of all the answers is checked afterwards.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise

from tests.web.conftest import Site
from tests.web.test_metrics import Sample, samples_of

PAUSE_SECONDS = 0.2
NOT_THERE = (OSError, http.client.HTTPException)


@dataclass
class Look:
    """What was answered at one moment."""

    samples: dict[Sample, float]
    alive: int
    ready: int
    answer: list[object]

    def sum_of(self, name: str, **labels: str) -> float:
        """The sum of all samples with this name and these labels."""
        wanted = set(labels.items())
        return sum(
            value
            for (each, facts), value in self.samples.items()
            if each == name and wanted <= set(facts)
        )

    @property
    def life(self) -> float:
        """Which process answered."""
        return self.sum_of("process_start_time_seconds")


@dataclass
class Watcher:
    """Looks at a site in a thread until it is stopped."""

    site: Site
    sql: str
    looks: list[Look] = field(default_factory=list)
    refused: int = 0
    errors: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Watcher:
        self._thread = threading.Thread(target=self._look_on)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _look_on(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            try:
                self.looks.append(self._look())
            except NOT_THERE:
                self.refused += 1
            except Exception as error:  # noqa: BLE001 - the test fails by what is kept here
                self.errors.append(repr(error))

    def _look(self) -> Look:
        metrics = self.site.ask("/metrics")
        assert metrics.status == 200, metrics
        alive, ready = self.site.ask("/healthz"), self.site.ask("/readyz")
        found = self.site.ask("/api/query", {"sql": self.sql})
        answer = found.facts["rows"][0] if found.status == 200 else [found.body]
        return Look(samples_of(metrics.body), alive.status, ready.status, answer)

    @property
    def lives(self) -> dict[float, list[Look]]:
        """All looks, by the process that answered."""
        lives: dict[float, list[Look]] = {}
        for look in list(self.looks):
            lives.setdefault(look.life, []).append(look)
        return lives

    def wait_for_look(self, is_so: object, seconds: float = 120.0) -> Look:
        """Wait for an answer, given from now on, of which something holds."""
        assert callable(is_so)
        end, seen = time.monotonic() + seconds, len(self.looks)
        while time.monotonic() < end:
            assert not self.errors, self.errors
            for look in self.looks[seen:]:
                seen += 1
                if is_so(look):
                    return look
            time.sleep(0.05)
        raise AssertionError(f"no such answer within {seconds:g} s; the last: {self.looks[-1:]}")


def falling_counters(looks: list[Look]) -> list[tuple[Sample, float, float]]:
    """Counters, and counts of histograms, that became smaller from one look to the next."""
    return [
        (sample, before.samples[sample], value)
        for before, after in pairwise(looks)
        for sample, value in after.samples.items()
        if is_counter(sample[0]) and value < before.samples.get(sample, value)
    ]


def is_counter(name: str) -> bool:
    return name.startswith("viewkeeper_") and name.endswith(("_total", "_count", "_bucket", "_sum"))


def read_stream(site: Site, count: int) -> list[dict[str, object]]:
    """The first messages of the event stream."""
    connection = http.client.HTTPConnection(site.address.host, site.address.port, timeout=60)
    try:
        connection.request("GET", "/api/events", headers=site.headers)
        response = connection.getresponse()
        assert (response.status, response.getheader("content-type", "")[:17]) == (
            200,
            "text/event-stream",
        )
        found: list[dict[str, object]] = []
        while len(found) < count:
            line = response.readline()
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                found.append(json.loads(line.removeprefix(b"data: ")))
        return found
    finally:
        connection.close()
