"""`run` killed a few times: nothing is lost, nothing is applied twice, every state stays right.

A sample of what `make faults` does at length (`test_random_kills`, `test_steps`): one project, its
writers never pausing, killed at the steps between which most can go wrong and at random moments.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.deaths import ALL_STEPS, FULL, find_target, step
from tests.faults.ordeal import ordeal
from tests.faults.processes import maintainer
from tests.faults.shop import copy_project
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.warehouse.metadata import plan_files
from viewkeeper.warehouse.metadata.head import read_head


def test_every_step_is_a_function_that_there_is() -> None:
    """What moved elsewhere would only be missed by the campaigns."""
    steps = [*ALL_STEPS.values(), *FULL.values()]
    for target in {text.partition("@")[0] for text in steps} - {"sql"}:
        owner, name = find_target(target)
        assert callable(getattr(owner, name)), target


def test_killed_again_and_again(
    loaded: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(loaded, tmp_path / "shop", "history: 1s\n")
    with ordeal(project, 1, request) as case:
        with case.writing() as applications:
            case.die_at(step("plan", 2, "after"))
            case.die_at(step("record", 2, "after"))
            case.die_at(step("log entry", 2, "after"))
            case.die_at(step("redo", 1, "before"))
            case.die_at(step("trim begun", 2, "before"))
            case.kill_after("ready", case.rng.uniform(0, 0.5))
            case.kill_after("batch", case.rng.uniform(0, 0.5))
            assert applications.stop() == 0
        case.finish()


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_finish_its_commit(
    loaded: Path, tmp_path: Path, request: pytest.FixtureRequest, by: signal.Signals
) -> None:
    project = copy_project(loaded, tmp_path / "shop")
    with ordeal(project, 2, request) as case:
        with case.writing() as applications:
            with maintainer(project) as process:
                process.wait_for("batch")
                assert process.stop(by) == 0, process.output
            assert applications.stop() == 0
        head = case.judge.check()
        _, _, plans = plan_files.load_plans(project / "warehouse")
        assert plans[-1].n == head.plan, "a plan without its record"
        case.judge.check_no_orphans(head)


def test_another_reader_of_the_same_database_loses_nothing(
    loaded: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(loaded, tmp_path / "shop")
    other = SqliteSource("shop", project / "shop.db", "somebody else")
    start = other.follow_tables({"ledger": ["n"]})
    with ordeal(project, 3, request) as case:
        with case.writing() as applications:
            case.die_at(step("trim", 3, "after"))
            with maintainer(project) as process:
                process.wait_for("batch")
                assert applications.stop() == 0
                case.wait_until(case.is_caught_up, process)
                assert process.stop() == 0
        written = case.ask("shop", "SELECT count(*) FROM ledger")
        (boundary,) = other.look_for_transactions(start)
        batches = other.read_changes({"ledger": ["n"]}, start, boundary.position)
        seen = [n for _, batch in batches for n in batch["n"].to_pylist()]
        assert seen == list(range(1, written + 1))
        other.acknowledge_position(boundary.position)
        other.close()
        case.finish()
        assert read_head(project / "warehouse").views["shop_ledger"].rows == written
