"""Kills while views advance apart: at every step of a lane, and at random moments.

A view is computed in a lane, slowly, and others are not: so most kills find a batch of the one
under way and commits of the others. Twins are two views with one text, of which one is in the lane:
what each ts did to the one it must have done to the other. In the campaign the judge wants every
state of every ts, of the join and of all reports on it.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import viewkeeper
from tests.engine.by_hand import load_by_hand
from tests.engine.shop import LINES, Shop, rows_of
from tests.engine.test_run import eventually
from tests.faults.deaths import LANE_STEPS, step
from tests.faults.ordeal import ordeal
from tests.faults.processes import maintainer
from tests.faults.shop import copy_project
from tests.live.judge import feed

LANE = ("--lane", "lines")
KILLS = 6


@contextmanager
def writing(shop: Shop, seed: int) -> Iterator[None]:
    """Somebody who writes all the time."""
    rng, stop = random.Random(seed), threading.Event()

    def write() -> None:
        while not stop.wait(0.01):
            n = rng.randrange(40)
            shop.execute("crm", f"UPDATE customer SET name = 'n{rng.random()}' WHERE id = {n % 8}")
            shop.execute("shop", f"INSERT INTO item VALUES ({n}, {n % 5}, {rng.randrange(4)})")
            shop.execute("shop", f"DELETE FROM item WHERE order_id = {rng.randrange(40)}")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=60)


def finish_twins(shop: Shop) -> None:
    """Run in peace until all is there; then both have the same past, and the present is right."""
    project = viewkeeper.open(shop.folder)
    with maintainer(shop.folder, *LANE) as process:
        eventually(lambda: len({v.ts for v in project.newest_head().views.values()}) == 1)
        eventually(lambda: rows_of(project.view("lines")) == shop.recomputed(LINES))
        assert process.stop() == 0, process.output
    one, other = feed(project, "lines"), feed(project, "twin")
    assert one == other
    assert len(one) > 1
    assert rows_of(project.view("twin")) == shop.recomputed(LINES)
    project.close()


@pytest.mark.parametrize(
    "sides", [("before",), pytest.param(("after", "before"), marks=pytest.mark.campaign)]
)
def test_twins_survive_kills_at_every_step_of_a_lane(
    sides: tuple[str, ...], tmp_path: Path
) -> None:
    shop = Shop(tmp_path, {"twin": LINES, "lines": LINES}, "history: 1s\n")
    shop.fill()
    load_by_hand(shop)
    rng = random.Random(7)
    with writing(shop, seed=8):
        for name in LANE_STEPS:
            for side in sides:
                chosen = step(name, rng.randint(1, 3), side)
                with maintainer(shop.folder, *LANE, chosen) as process:
                    code = process.ended()
                    assert code == -signal.SIGKILL, f"{chosen}, {code}:\n{process.output}"
        with maintainer(shop.folder, *LANE) as process:
            process.wait_for("batch")
            time.sleep(rng.uniform(0, 1.0))
            process.kill()
    finish_twins(shop)


@pytest.mark.campaign
@pytest.mark.parametrize("side", ["before", "after"])
def test_killed_at_every_step_of_a_lane(
    side: str, loaded: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(loaded, tmp_path / "shop", "")
    with ordeal(project, 31, request) as case:
        with case.writing() as applications:
            for name in LANE_STEPS:
                case.die_at(step(name, 2, side), options=LANE)
            assert applications.stop() == 0
        case.finish(LANE)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(2))
def test_killed_at_random_moments_with_a_family_apart(
    seed: int, reporting: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """All reports on the join are of its family: folds, windows, values, children."""
    project = copy_project(reporting, tmp_path / "shop", "history: 1s\n")
    with ordeal(project, 40 + seed, request) as case:
        with case.writing() as applications:
            for _ in range(KILLS):
                line, most = case.rng.choice([("ready", 0.5), ("batch", 0.5), ("batch", 2.0)])
                case.kill_after(line, case.rng.uniform(0, most), LANE)
            assert applications.stop() == 0
        case.finish(LANE)
