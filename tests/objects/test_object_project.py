"""A whole project whose warehouse is in object storage, over SQLite sources.

Loaded, maintained, killed and started again, from another local folder too; read as of the past, by
Arrow, Spark, `query` and `deltalake`; compacted, published, verified. Every state is compared with
what SQLite computes.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import viewkeeper
from tests.cli.conftest import call
from tests.engine.shop import LINES, Shop, rows_of
from tests.faults.processes import Process
from tests.objects.faulty_requests import Faults
from tests.objects.s3_server import ObjectServer, PrivateS3
from viewkeeper.engine.project import Project
from viewkeeper.errors import ProjectError, WarehouseError

BIG = "SELECT o.id, o.placed FROM shop.orders o"


@pytest.fixture
def shop(tmp_path: Path, s3: PrivateS3) -> Shop:
    made = Shop(tmp_path, {"lines": LINES}, "freshness: 0s\n")
    made.fill()
    file = tmp_path / "viewkeeper.yml"
    file.write_text(file.read_text().replace("./warehouse", s3.new_url()) + s3.yaml)
    return made


def url_of(shop: Shop) -> str:
    return (shop.folder / "viewkeeper.yml").read_text().splitlines()[0].split(": ")[1]


def change(shop: Shop, generator: random.Random, number: int) -> None:
    """One transaction of inserts, deletes and updates."""
    old = generator.randrange(40)
    shop.execute(
        "shop",
        f"INSERT INTO orders VALUES ({1000 + number}, {generator.randrange(8)}, '2024-02-01')",
        f"INSERT INTO item VALUES ({1000 + number}, {generator.randrange(5)}, 2)",
        f"DELETE FROM item WHERE order_id = {old}",
        f"UPDATE item SET quantity = quantity + 1 WHERE order_id = {generator.randrange(40)}",
    )


def refresh_often(
    shop: Shop, project: Project, generator: random.Random, changes: int
) -> dict[int, Counter[tuple[Any, ...]]]:
    """What SQLite has computed at each ts of the view, which is refreshed after each change."""
    states = {}
    for number in range(changes + 1):
        if number:
            change(shop, generator, number - 1)
        project.refresh()
        states[project.view("lines").ts] = shop.recomputed(LINES)
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
    return states


def lake_bag(shop: Shop, server: ObjectServer, project: Project) -> Counter[tuple[Any, ...]]:
    """The view's rows as `deltalake` reads them, summed by their counts."""
    head = project.view("lines").head
    url = f"{url_of(shop)}/views/{head.table}"
    rows = DeltaTable(url, storage_options=server.lake_options).to_pyarrow_table().to_pylist()
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        found[row["order_id"], row["name"], row["title"], row["cents"]] += row["_count"]
    return +found


def test_a_project_lives_in_a_bucket(shop: Shop, s3: PrivateS3) -> None:
    generator = random.Random(5)
    with viewkeeper.open(shop.folder) as project:
        states = refresh_often(shop, project, generator, 5)
        for ts, wanted in states.items():
            assert rows_of(project.view("lines"), ts) == wanted, f"as of {ts}"
        assert lake_bag(shop, s3, project) == shop.recomputed(LINES)
    assert not (shop.folder / "s3:").exists()
    shutil.rmtree(shop.folder / "local")
    change(shop, generator, 90)
    with viewkeeper.open(shop.folder) as project:
        project.refresh()
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
        project.compact()
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
        assert lake_bag(shop, s3, project) == shop.recomputed(LINES)


def test_killed_runs_go_on_from_another_folder(shop: Shop, s3: PrivateS3) -> None:
    """Kills at random moments of a run that commits small batches; each next one is elsewhere."""
    generator, file = random.Random(11), shop.folder / "viewkeeper.yml"
    plain, number = file.read_text(), 0
    with viewkeeper.open(shop.folder) as project:
        project.refresh()
    for round_number in range(4):
        file.write_text(f"{plain}local: machine{round_number}\n")
        with Process("tests.objects.runner", [str(shop.folder)]) as process:
            process.wait_for("ready", 90.0)
            for _ in range(generator.randrange(2, 6)):
                change(shop, generator, number)
                number += 1
                process.wait_for("batch", 60.0)
            change(shop, generator, number)
            number += 1
            process.kill()
    with viewkeeper.open(shop.folder) as project:
        project.refresh()
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
        assert lake_bag(shop, s3, project) == shop.recomputed(LINES)


def test_commands_on_a_bucket(shop: Shop) -> None:
    folder = str(shop.folder)
    assert call("--project", folder, "run", "--once", "-q").exit_code == 0
    asked = call("--project", folder, "query", "SELECT count(*) AS n FROM lines")
    assert asked.exit_code == 0, asked.output
    assert str(sum(shop.recomputed(LINES).values())) in asked.stdout
    shown = call("--project", folder, "status")
    assert shown.exit_code == 0, shown.output
    assert "lines" in shown.stdout
    for words in (["verify", "--files"], ["doctor"], ["explain", "lines"]):
        answer = call("--project", folder, *words)
        assert answer.exit_code == 0, answer.output


def test_spark_reads_a_bucket(shop: Shop, spark: SparkSession) -> None:
    """Without Hadoop's libraries for S3: tasks read the files themselves."""
    rows = ", ".join(f"({n}, {n % 8}, '2024-01-01')" for n in range(5_000, 125_000))
    shop.execute("shop", f"INSERT INTO orders VALUES {rows}")
    shop.define("big", BIG)
    with viewkeeper.open(shop.folder, spark) as project:
        project.refresh()
        assert project.view("big").df().count() == 120_040
        since = project.view("big").ts
        shop.execute(
            "shop",
            "DELETE FROM orders WHERE id BETWEEN 6000 AND 6099",
            "UPDATE orders SET placed = '2024-03-01' WHERE id = 7",
        )
        project.refresh()
        found = Counter(tuple(row) for row in project.view("big").df().collect())
        assert found == rows_of(project.view("big"))
        assert len(found) == 119_940
        moved = project.view("big").changes(since).collect()
        assert sum(row["_count"] for row in moved) == -100
        assert all(each.ok for each in project.verify(["lines", "big"]))
        project.compact()
        assert Counter(tuple(row) for row in project.view("big").df().collect()) == found
        project.publish(["lines"])
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)


@pytest.mark.parametrize("seed", range(2))
def test_requests_that_fail_are_settled(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """One request in ten is refused or has its answer lost; refreshes that give up are repeated."""
    faults, generator = Faults(monkeypatch), random.Random(seed)
    with viewkeeper.open(shop.folder) as project:
        project.refresh()
        for number in range(8):
            change(shop, generator, number)
            faults.seed(generator, 0.1)
            for _ in range(5):
                try:
                    project.refresh()
                    break
                except WarehouseError:
                    continue
            faults.end()
            project.refresh()
            assert rows_of(project.view("lines")) == shop.recomputed(LINES)


WRONG = {
    "warehouse: s3://bucket\nstorage: {endpoit: x}\n": 'unknown key "storage.endpoit"',
    "warehouse: s3://bucket\nstorage: {allow_http: 1}\n": "must be true or false",
    "warehouse: s3://bucket//w\n": "is no address of a warehouse",
    "warehouse: ftp://bucket/w\n": "a folder, or one of s3://",
    "warehouse: w\nstorage: {region: x}\n": '"storage" is for a warehouse in object storage',
    "warehouse: w\nlocal: l\n": '"local" is for a warehouse in object storage',
}


@pytest.mark.parametrize(("text", "said"), WRONG.items())
def test_wrong_settings_are_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "viewkeeper.yml"
    file.write_text(text + "sources: {crm: {kind: sqlite, path: crm.db}}\n")
    with pytest.raises(ProjectError) as caught:
        viewkeeper.open(tmp_path)
    assert said in str(caught.value)


def test_a_secret_that_is_not_set_is_named(tmp_path: Path) -> None:
    file = tmp_path / "viewkeeper.yml"
    file.write_text(
        "warehouse: s3://bucket/w\nstorage: {secret_access_key: '${VIEWKEEPER_NO_SUCH}'}\n"
        "sources: {crm: {kind: sqlite, path: crm.db}}\n"
    )
    with pytest.raises(ProjectError, match="VIEWKEEPER_NO_SUCH"):
        viewkeeper.open(tmp_path)


def test_a_bucket_that_does_not_answer_is_named(tmp_path: Path, s3: PrivateS3) -> None:
    file = tmp_path / "viewkeeper.yml"
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT c.a FROM crm.c")
    sources = "sources: {crm: {kind: sqlite, path: crm.db}}\n"
    file.write_text(f"warehouse: s3://nosuchbucket/w\n{s3.yaml}{sources}")
    with pytest.raises(WarehouseError, match="there is no such bucket"):
        viewkeeper.open(tmp_path)
