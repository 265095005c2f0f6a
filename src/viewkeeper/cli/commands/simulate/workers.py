"""Campaigns on all cores: seeds in small portions, one process per core, and a progress bar.

Outcomes come back in any order and are summed up, so the result does not depend on the number of
processes. Ctrl-C says how far it came and what was found until then; portions that were begun end
by themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from viewkeeper.cli.format import amount_text
from viewkeeper.cli.terminal import make_console, print_note
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.simulate.campaigns.algorithm_campaign import (
    C,
    CampaignCell,
    CampaignTally,
    SeedOutcome,
)

PORTION = 20
TELL_SECONDS = 30.0
"""How often progress is told where there is no terminal for a bar."""

Portion = tuple[int, list[SeedOutcome]]
Wanted = tuple[int, range]


def run_campaign(
    cells: Sequence[C], seeds: int, jobs: int, level: Level | None = None, quiet: bool = False
) -> list[CampaignTally[C]]:
    """Run so many seeds of every cell; `level` is demanded instead of what is promised."""
    tallies = [
        CampaignTally(cell, cell.promised_level if level is None else level) for cell in cells
    ]
    show = not quiet and sys.stderr.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(
        *columns, TimeRemainingColumn(), console=make_console(stderr=True), disable=not show
    )
    portions = _run_portions(cells, seeds, jobs)
    told = time.monotonic()
    with bar:
        task = bar.add_task("seeds", total=seeds * len(cells))
        try:
            for index, outcomes in portions:
                tallies[index].add_outcomes(outcomes)
                bar.advance(task, len(outcomes))
                failed = sum(len(tally.failed) for tally in tallies)
                if failed:
                    bar.update(task, description=f"seeds, {failed} below")
                if not (quiet or show) and time.monotonic() - told > TELL_SECONDS:
                    told = time.monotonic()
                    done = sum(tally.seeds for tally in tallies)
                    print_note(
                        f"{done:,} of {amount_text(seeds * len(cells), 'seed')}; {failed:,} below"
                    )
        except KeyboardInterrupt:
            bar.stop()
            print_note(_progress_text(tallies, seeds * len(cells)))
            raise
        finally:
            portions.close()
    for tally in tallies:
        tally.failed.sort(key=lambda outcome: outcome.seed)
    return tallies


def _progress_text(tallies: Sequence[CampaignTally[C]], total: int) -> str:
    done = sum(tally.seeds for tally in tallies)
    failed = sum(len(tally.failed) for tally in tallies)
    return (
        f"stopped after {done:,} of {amount_text(total, 'seed')}; {failed:,} of them below "
        "the level"
    )


def _run_portions(
    cells: Sequence[CampaignCell], seeds: int, jobs: int
) -> Generator[Portion, None, None]:
    """Outcomes as they come, with the index of their cell."""
    wanted = [
        (index, range(start, min(start + PORTION, seeds)))
        for index in range(len(cells))
        for start in range(0, seeds, PORTION)
    ]
    if jobs == 1:
        for index, portion in wanted:
            yield index, _run_seeds(cells[index], portion)
        return
    # Not forked: Arrow has threads by now.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(wanted)), context, initializer=prepare_worker)
    with pool:
        yield from _run_window(pool, cells, wanted, 3 * jobs)


def _run_window(
    pool: ProcessPoolExecutor, cells: Sequence[CampaignCell], wanted: list[Wanted], window: int
) -> Generator[Portion, None, None]:
    """Few portions are handed out at a time, so that an interrupt need not wait for many."""
    left = iter(wanted)
    running = dict[Future[list[SeedOutcome]], int]()
    try:
        while True:
            for index, portion in islice(left, window - len(running)):
                running[pool.submit(_run_seeds, cells[index], portion)] = index
            if not running:
                return
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield running.pop(future), future.result()
    finally:
        for future in running:
            future.cancel()


def _run_seeds(cell: CampaignCell, seeds: Sequence[int]) -> list[SeedOutcome]:
    return [cell.judge_seed(seed) for seed in seeds]


def prepare_worker() -> None:
    """Ignore Ctrl-C: all processes of the terminal get it, and the first decides what it means.

    A worker that waits for its next portion does not notice that the first one was killed, so a
    thread does.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "only workers call this"
    parent.join()
    os._exit(1)
