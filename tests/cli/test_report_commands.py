"""Every command on a project with windows, scalars, the time, exploded rows and `refresh: full`.

What commands print of plain views is tested elsewhere; here each of them comes to its end on such
views, and says of them what is peculiar to them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.conftest import call
from tests.engine.shop import LINES, Shop
from tests.engine.shop_reports import REFRESH, SHOP_REPORTS


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The project after a load and two batches; to be copied by who changes something."""
    folder = tmp_path_factory.mktemp("reports") / "shop"
    folder.mkdir()
    shop = Shop(folder, {"lines": LINES, **SHOP_REPORTS}, f"history: 1h\n{REFRESH}")
    shop.fill()
    for number in range(3):
        result = call("-p", str(folder), "run", "--once", spark=spark)
        assert result.exit_code == 0, result.output
        shop.execute("shop", f"INSERT INTO orders VALUES ({50 + number}, 1, '2024-02-01')")
        shop.execute("crm", f"UPDATE customer SET city = 'z' WHERE id = {number}")
        shop.execute("catalogue", f"UPDATE product SET cents = 100 WHERE id = {number}")
    assert call("-p", str(folder), "run", "--once", spark=spark).exit_code == 0
    return folder


@pytest.mark.parametrize("view", SHOP_REPORTS)
def test_a_view_is_asked_explained_and_followed(
    view: str, reports: Path, spark: SparkSession
) -> None:
    asked = ["query", f"SELECT count(*) AS n FROM {view}", "--format", "json"]
    for words in (asked, ["explain", view], ["changes", view, "--json"], ["history", view]):
        result = call("-p", str(reports), *words, spark=spark)
        assert result.exit_code == 0, (words, result.output)
        assert result.stdout, words
    old = call("-p", str(reports), *asked, "--as-of", "4", spark=spark)
    assert old.exit_code == 0, old.output


def test_explain_says_what_is_peculiar_to_each_kind(reports: Path, spark: SparkSession) -> None:
    def explain(view: str) -> str:
        return call("-p", str(reports), "explain", view, spark=spark).stdout

    again = explain("towns")
    assert "incremental  no: Spark computes the whole view again" in again
    assert "lookups" not in again
    assert "batch" not in again, "nothing of it is maintained in batches"
    assert "clock" in explain("recent")


def test_status_and_doctor_know_every_view(reports: Path, spark: SparkSession) -> None:
    status = call("-p", str(reports), "status", "--json", spark=spark)
    assert status.exit_code == 0, status.output
    assert SHOP_REPORTS.keys() <= {view["name"] for view in json.loads(status.stdout)["views"]}
    doctor = call("-p", str(reports), "doctor", spark=spark)
    assert doctor.exit_code == 0, doctor.output


def test_all_are_verified_some_in_every_state(reports: Path, spark: SparkSession) -> None:
    every = ["verify", "--every-state", "dear", "firsts"]
    for words in (["verify"], every, ["verify", "--files"]):
        result = call("-p", str(reports), *words, spark=spark)
        assert result.exit_code == 0, (words, result.output)


def test_they_are_published_compacted_and_detached(
    reports: Path, tmp_path: Path, spark: SparkSession
) -> None:
    folder = Path(shutil.copytree(reports, tmp_path / "copy"))
    published = call("-p", str(folder), "publish", spark=spark)
    assert published.exit_code == 0, published.output
    compacted = call("-p", str(folder), "compact", spark=spark)
    assert compacted.exit_code == 0, compacted.output
    assert call("-p", str(folder), "run", "--once", spark=spark).exit_code == 0
    assert call("-p", str(folder), "verify", spark=spark).exit_code == 0
    detached = call("-p", str(folder), "detach", "--yes", spark=spark)
    assert detached.exit_code == 0, detached.output
