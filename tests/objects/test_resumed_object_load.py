"""A load that is killed goes on in object storage too, from another machine, exactly.

What a part has written is in the bucket, and so is what says that it is done. So a process that has
nothing of the first one, not even its local folder, goes on with its parts.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import LINES, Shop, rows_of
from tests.engine.test_resumed_load import ORDERS, SETTINGS, SUMS, Listener, change_rows, kill_load
from tests.objects.s3_server import PrivateS3, root_at
from tests.samples import keep_some
from viewkeeper.storage.objects.object_path import ObjectPath
from viewkeeper.warehouse.metadata.unfinished_load import FOLDER, list_unfinished


class BucketShop:
    """A shop whose warehouse is in a bucket; each process has a local folder of its own."""

    def __init__(self, folder: Path, s3: PrivateS3, sql: str) -> None:
        self.shop = Shop(folder, {"v": sql}, SETTINGS)
        self.shop.fill()
        self._s3, self._url, self._machines = s3, s3.new_url(), 0
        file = folder / "viewkeeper.yml"
        self._settings = file.read_text().replace("./warehouse", self._url) + s3.yaml
        self.move_machine()

    def move_machine(self) -> None:
        """The next process has nothing of the last one."""
        self._machines += 1
        text = f"{self._settings}local: machine{self._machines}\n"
        (self.shop.folder / "viewkeeper.yml").write_text(text)

    @property
    def root(self) -> ObjectPath:
        """The warehouse, as one who only looks sees it."""
        return root_at(self._s3, self._url, self.shop.folder / "looking")

    def files_of(self, folder: str) -> set[str]:
        return {path.name for path in (self.root / folder).rglob("*.parquet")}

    def go_on(self, spark: SparkSession) -> Listener:
        """Refresh, from another machine; what was said."""
        self.move_machine()
        listener = Listener()
        with viewkeeper.open(self.shop.folder, spark=spark) as project:
            assert project.refresh(listener).waiting == {}
            assert rows_of(project.view("v")) == self.shop.recomputed(self.shop.views["v"])
        assert list_unfinished(self.root) == []
        assert not [*(self.root / FOLDER).iterdir()]
        return listener


@pytest.mark.parametrize(
    ("sql", "parts"),
    keep_some([(ORDERS, 3), (SUMS, 5), (LINES, 2), (ORDERS, 99)], range(2)),
    ids=["direct-3", "report-5", "join-2", "direct-all"],
)
def test_a_killed_load_goes_on_elsewhere(
    tmp_path: Path, s3: PrivateS3, spark: SparkSession, sql: str, parts: int
) -> None:
    world = BucketShop(tmp_path, s3, sql)
    there = min(kill_load(world.shop, spark, parts), parts)
    kept = world.files_of("views" if sql == ORDERS else FOLDER)
    assert len(kept) >= there > 0
    change_rows(world.shop)
    stages = world.go_on(spark).stages
    said = f"scanning and joining, {there} parts of a load that was interrupted are there"
    assert stages[0] == ("v", said)
    if sql == ORDERS:
        # What was done is part of the table, as it was written, under the epoch of who died.
        assert kept <= world.files_of("views")
    change_rows(world.shop)
    world.go_on(spark)
    if sql == ORDERS:
        assert kept <= world.files_of("views"), "a start has removed files of a table"


def test_it_is_killed_again_and_again(tmp_path: Path, s3: PrivateS3, spark: SparkSession) -> None:
    world = BucketShop(tmp_path, s3, ORDERS)
    for parts in (1, 2, 4):
        kill_load(world.shop, spark, parts)
        change_rows(world.shop)
        world.move_machine()
    assert "4 parts" in world.go_on(spark).stages[0][1]


def test_what_a_load_that_was_given_up_has_written_goes_with_a_start(
    tmp_path: Path, s3: PrivateS3, spark: SparkSession
) -> None:
    """Not before: a process that slept through a takeover must not remove what another one uses."""
    world = BucketShop(tmp_path, s3, ORDERS)
    kill_load(world.shop, spark, 3)
    kept = world.files_of("views")
    world.shop.define("v", ORDERS.replace("+ 1", "+ 2"))
    assert world.go_on(spark).stages[0] == ("v", "scanning and joining")
    assert kept <= world.files_of("views")
    world.go_on(spark)
    assert not kept & world.files_of("views")
