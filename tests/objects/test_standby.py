"""A second process takes over when the first dies or is stopped, and nothing is done twice.

On a disk and in object storage; by SIGKILL and by SIGSTOP. A process that is stopped, and goes on
after another one has taken over, ends with an error and has committed nothing since.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import viewkeeper
from tests.engine.shop import LINES, Shop, rows_of
from tests.faults.processes import Process
from tests.objects.s3_server import PrivateS3

PLACES = ["disk", "s3"]


@pytest.fixture(params=PLACES)
def shop(request: pytest.FixtureRequest, tmp_path: Path, s3: PrivateS3) -> Shop:
    made = Shop(tmp_path, {"lines": LINES}, "freshness: 0s\n")
    made.fill()
    if request.param == "s3":
        file = tmp_path / "viewkeeper.yml"
        text = file.read_text().replace("./warehouse", s3.new_url())
        file.write_text(text + s3.yaml)
    return made


def maintainer(shop: Shop, *options: str) -> Process:
    return Process("tests.objects.runner", [str(shop.folder), *options])


def add_order(shop: Shop, number: int) -> None:
    shop.execute(
        "shop",
        f"INSERT INTO orders VALUES ({number}, 1, '2024-02-01')",
        f"INSERT INTO item VALUES ({number}, 1, 2)",
    )


def wait_until_right(shop: Shop, seconds: float = 60.0) -> None:
    """Until the view shows what the databases hold; an AssertionError if it never does."""
    wait_for_rows(shop.folder, "lines", shop.recomputed(LINES), seconds)


def wait_for_rows(folder: Path, view: str, wanted: Counter[Any], seconds: float) -> None:
    """Until a view has these rows."""
    end = time.monotonic() + seconds
    with viewkeeper.open(folder) as project:
        while True:
            is_loaded = view in project.newest_head().views
            found = rows_of(project.view(view)) if is_loaded else Counter()
            if is_loaded and found == wanted:
                return
            assert time.monotonic() < end, f"more {found - wanted}, fewer {wanted - found}"
            time.sleep(0.05)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
def test_a_standby_takes_over(shop: Shop, by: signal.Signals) -> None:
    with maintainer(shop) as first:
        assert first.wait_for("ready", 60.0) == "ready epoch 1"
        wait_until_right(shop)
        add_order(shop, 1001)
        first.wait_for("batch", 60.0)
        wait_until_right(shop)
        with maintainer(shop, "--standby") as second:
            second.wait_for("begins", 60.0)
            time.sleep(0.5)
            assert not any(line.startswith("ready") for line in second.lines), "it waits"
            add_order(shop, 1002)
            wait_until_right(shop)
            os.kill(first.pid, by)
            began = time.monotonic()
            add_order(shop, 1003)
            assert second.wait_for("ready", 30.0) == "ready epoch 2"
            second.wait_for("batch", 60.0)
            wait_until_right(shop)
            print(f"taken over after {time.monotonic() - began:.1f} s")
            if by == signal.SIGSTOP:
                os.kill(first.pid, signal.SIGCONT)
                assert first.ended() == 2
                first.listened()
                assert "another process has taken it over" in first.output, first.output
            add_order(shop, 1004)
            wait_until_right(shop)
            assert second.stop(signal.SIGTERM) == 0
    wait_until_right(shop)


def test_a_standby_stops_when_it_is_asked_to(shop: Shop) -> None:
    with maintainer(shop) as first:
        first.wait_for("ready", 60.0)
        with maintainer(shop, "--standby") as second:
            second.wait_for("begins", 60.0)
            time.sleep(0.5)
            assert second.stop(signal.SIGTERM) == 0
        assert first.stop(signal.SIGTERM) == 0
    wait_until_right(shop)
