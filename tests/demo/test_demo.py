"""The demo does what it promises: both kinds of batches, every state right, nothing left behind."""

from __future__ import annotations

import io
import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from tests.demo.conftest import SMALL, Run
from viewkeeper.cli.commands.demo_command import report_data, result_sentences, show_result
from viewkeeper.cli.main import cli
from viewkeeper.demo.demo_run import MORE_SECONDS, WriterCrew
from viewkeeper.demo.display import DemoScreen, meter_line, meter_table, percentile_of
from viewkeeper.demo.shop_world import ShopWorld


def test_every_state_is_right(run: Run) -> None:
    verdict = run.result.verdict
    assert verdict.ok, "\n".join(map(str, verdict.findings))
    assert verdict.states > 5
    assert verdict.transactions == run.result.written.total.transactions
    assert verdict.changes == run.result.written.total.changes


def test_batches_run_inline_and_on_spark(run: Run) -> None:
    meter = run.result.meter
    assert meter.spark_batches > 0
    # A machine that is too busy for small batches has large ones only, after it got more time.
    assert meter.inline_batches > 0 or run.result.written.seconds > MORE_SECONDS
    # Each transaction has one change more than its writer notes: the row in the ledger.
    written = run.result.written.total
    assert 0 < meter.changes <= written.changes + written.transactions
    assert not meter.troubles


def test_all_databases_change_at_the_same_time(run: Run) -> None:
    numbers = [ledger["n"].to_pylist() for ledger in run.claim.ledgers.values()]
    assert len(numbers) == 3
    assert all(len(each) > 5 for each in numbers)


def test_the_report_is_for_people_and_for_scripts(run: Run) -> None:
    body = json.loads(json.dumps(report_data(run.result, 3.0, 7)))
    assert body["ok"] is True
    assert body["judge"]["states"] == run.result.verdict.states
    assert body["maintained"]["batches"] == {
        "inline": run.result.meter.inline_batches,
        "spark": run.result.meter.spark_batches,
    }
    assert "4 processes committed" in result_sentences(run.result)[0]


def test_the_display_shows_everything(run: Run) -> None:
    file = io.StringIO()
    console = Console(width=120, file=file)
    console.print(meter_table(run.result.meter, until=None))
    show_result(DemoScreen(console), run.result)
    shown = file.getvalue()
    for word in ("seen", "maintained", "p95", "crm", "on Spark", "per batch", "equal to recomp"):
        assert word in shown
    assert "inline" in meter_line(run.result.meter)


def test_percentiles_are_values_that_occurred() -> None:
    assert percentile_of([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile_of([3.0, 1.0, 2.0], 0.95) == 3.0
    assert percentile_of([], 0.95) == 0.0


@pytest.fixture
def shop(tmp_path: Path) -> ShopWorld:
    shop = ShopWorld(tmp_path / "shop", SMALL)
    shop.fill_databases(seed=1)
    return shop


def test_no_writer_outlives_its_crew(shop: ShopWorld) -> None:
    with WriterCrew(shop, seed=1) as crew:
        crew.start_writers()
        crew.check_writers()
        processes = list(crew.processes.values())
    assert all(process.returncode is not None for process in processes)


def test_a_writer_that_dies_is_an_error(shop: ShopWorld) -> None:
    shop.database_path("crm").write_bytes(b"no database" * 100)
    with WriterCrew(shop, seed=1) as crew:
        crew.start_writers()
        crew.processes["crm"].wait(timeout=60)
        with pytest.raises(click.ClickException, match='writer "crm" failed'):
            crew.check_writers()


def test_a_folder_in_use_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    result = CliRunner().invoke(cli, ["demo", "--keep", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not empty" in result.output
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
