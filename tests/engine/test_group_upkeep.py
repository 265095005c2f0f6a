"""Groups over time: what is folded, verified, loaded again and replaced while others go on."""

from __future__ import annotations

import sqlite3

import viewkeeper
from tests.engine.fleet import Fleet
from viewkeeper.warehouse.metadata.head import read_head


def test_every_state_is_verified_and_folded_in_a_group(fleet: Fleet) -> None:
    fleet.diamond()
    for name in ("v0", "v1", "v2"):
        settings = fleet.root / name / "viewkeeper.yml"
        settings.write_text(settings.read_text() + "history: 1h\nretention: 0\n")
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    for value in range(1, 5):
        fleet.write("north", (0, value), (value, value))
        fleet.refresh("v1", "v2")
        fleet.write("south", (0, value), (value, value))
        fleet.refresh("v2", "v1", "v2")
        if value % 2:
            assert not fleet.refresh("v0").waiting
            with viewkeeper.open(fleet.root / "v0", spark=fleet.spark) as project:
                [found] = project.verify(every_state=True)
                assert found.ok
                assert found.states > value
        for name in ("v1", "v2"):
            with viewkeeper.open(fleet.root / name, spark=fleet.spark) as project:
                project.compact()
    with viewkeeper.open(fleet.root / "v0", spark=fleet.spark) as project:
        # Its parents have gone on, and folded what it had not taken back then.
        project.refresh(full_refresh=["lines"])
    assert not fleet.refresh("v1", "v2", "v0").waiting
    assert fleet.state("v0") == fleet.expected()["v0"]


def test_a_database_that_was_made_anew(fleet: Fleet) -> None:
    fleet.diamond()
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    for value in range(1, 8):
        fleet.write("north", (0, value), (1, value))
        fleet.refresh("v1", "v2", "v0")
    fleet.bases["north"].close()
    for file in fleet.root.glob("north.db*"):
        file.unlink()
    fleet.bases["north"] = made = sqlite3.connect(fleet.root / "north.db")
    made.execute("PRAGMA journal_mode = WAL")
    made.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER NOT NULL)")
    made.execute("INSERT INTO t VALUES (0, 70), (1, 70)")
    made.commit()
    fleet.refresh("v1", "v2")
    assert "the change log is not there" in str(read_head(fleet.root / "v1" / "w").views["lines"])
    for name in ("v1", "v2"):
        with viewkeeper.open(fleet.root / name, spark=fleet.spark) as project:
            project.refresh(full_refresh=["lines"])
    # The new log begins behind all old positions, so the group's order goes on.
    fleet.refresh("v1", "v2", "v0", "v1", "v2", "v0")
    fleet.write("north", (0, 71))
    fleet.write("south", (0, 71))
    assert not fleet.refresh("v1", "v2", "v1", "v0", "v0").waiting
    assert fleet.state("v1") == fleet.state("v2") == fleet.expected()["v1"]
    assert fleet.state("v0") == fleet.expected()["v0"]
