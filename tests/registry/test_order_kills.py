"""kill -9 of whoever writes the order, at random moments: what was acknowledged stays.

Reporters are processes of their own, on one store at the same time; one of them is killed again and
again. Then the service is, under a reporter that simply keeps asking. What a caller was told must
be in the order, with the number that it was told, once; and everything else of the order must be
what was sent: for each source its positions, without a hole.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import defaultdict
from pathlib import Path

from tests.faults.processes import Process
from tests.registry.order_places import (
    GROUP,
    SECRET,
    Place,
    gather,
    ids,
    reading,
    reporting,
    whole_order,
)
from viewkeeper.errors import RegistryAwayError
from viewkeeper.order.registry_address import open_registry
from viewkeeper.order.registry_protocol import Registry
from viewkeeper.order.service.http_registry import HttpRegistry
from viewkeeper.testing.private_servers import PrivatePostgres

KILLS = 3


def test_killed_reporters_lose_and_double_nothing(store: Place) -> None:
    rng = random.Random(6)
    told: dict[int, str] = {}
    registry = store.open()
    members = {f"member of {source}": reading(source) for source in ("steady", "killed")}
    group = gather(registry, members)
    seen: list[tuple[int, str]] = []
    with writer(store, "steady") as steady:
        steady.wait_for("ack")
        for _ in range(KILLS):
            with writer(store, "killed") as killed:
                killed.wait_for("ack")
                time.sleep(rng.uniform(0, 0.3))
                killed.kill()
            note(told, "killed", killed)
            now = whole_order(registry, group)
            assert now[: len(seen)] == seen, "the order has changed"
            seen = now
        assert steady.stop() == 0, steady.output
    note(told, "steady", steady)
    check(registry, group, told)
    assert {text.partition("@")[0] for text in told.values()} == {"steady", "killed"}


def writer(store: Place, source: str) -> Process:
    return Process("tests.registry.order_writer", [store.url, source])


def note(told: dict[int, str], source: str, process: Process) -> None:
    """What a process said was acknowledged; a line that was cut off by the kill does not count."""
    for line in process.lines:
        words = line.split()
        if words[:1] == ["ack"] and len(words) == 3:
            told[int(words[1])] = f"{source}@{words[2]}"


def check(registry: Registry, group: str, told: dict[int, str]) -> None:
    """The order has what was told, no gap, and every source's positions in order, once."""
    order = whole_order(registry, group)
    assert [n for n, _ in order] == list(range(1, len(order) + 1))
    numbered = dict(order)
    missing = {n: text for n, text in told.items() if numbered.get(n) != text}
    assert not missing, f"acknowledged, and not so in the order: {missing}"
    positions: dict[str, list[int]] = defaultdict(list)
    for _, text in order:
        source, _, position = text.partition("@")
        positions[source].append(int(position))
    for source, found in positions.items():
        assert found == list(range(1, len(found) + 1)), f"positions of {source}"


def test_a_killed_service_loses_and_doubles_nothing(tmp_path: Path) -> None:
    rng = random.Random(7)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ["registry", "serve", "--store", str(tmp_path / "registry.db")]
    arguments += ["--listen", f"127.0.0.1:{port}"]
    registry = HttpRegistry(f"http://127.0.0.1:{port}", patience_seconds=120, secret=SECRET)
    told: dict[int, str] = {}
    ends = threading.Event()
    reports = threading.Thread(target=report, args=(registry, told, ends))
    try:
        reports.start()
        for _ in range(KILLS):
            with Process("viewkeeper.cli.main", arguments) as service:
                service.wait_for("serving")
                wait_for_more(told)
                time.sleep(rng.uniform(0, 0.3))
                service.kill()
        with Process("viewkeeper.cli.main", arguments) as service:
            service.wait_for("serving")
            ends.set()
            reports.join(timeout=120)
            check(registry, GROUP, told)
    finally:
        ends.set()
        reports.join(timeout=130)


def test_a_killed_server_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """A registry in PostgreSQL, under a reporter that asks again when it is away."""
    rng = random.Random(8)
    server = PrivatePostgres(tmp_path / "server", {"wal_level": "replica"})
    server.start()
    registry = open_registry(server.url_of())
    told: dict[int, str] = {}
    ends = threading.Event()
    reports = threading.Thread(target=report_again, args=(registry, told, ends))
    try:
        reports.start()
        for _ in range(KILLS):
            wait_for_more(told)
            time.sleep(rng.uniform(0, 0.3))
            server.kill()
            server.start()
        wait_for_more(told)
        ends.set()
        reports.join(timeout=120)
        check(registry, GROUP, told)
    finally:
        ends.set()
        reports.join(timeout=130)
        registry.close()
        server.stop()


def report_again(registry: Registry, told: dict[int, str], ends: threading.Event) -> None:
    """As `report`, and what got no answer is simply done again."""
    position, reporter = 0, reporting(registry, "shop")
    while not ends.is_set():
        try:
            n = registry.register_ids(GROUP, ids("shop", position + 1, position + 2), reporter)
        except RegistryAwayError:
            time.sleep(0.05)
            continue
        position += 2
        told[n] = f"shop@{position}"


def report(registry: HttpRegistry, told: dict[int, str], ends: threading.Event) -> None:
    reporter = reporting(registry, "shop")
    position = 0
    while not ends.is_set():
        n = registry.register_ids(GROUP, ids("shop", position + 1, position + 2), reporter)
        position += 2
        told[n] = f"shop@{position}"


def wait_for_more(told: dict[int, str]) -> None:
    count, end = len(told), time.monotonic() + 120
    while len(told) == count:
        assert time.monotonic() < end, "nothing is acknowledged any more"
        time.sleep(0.01)
