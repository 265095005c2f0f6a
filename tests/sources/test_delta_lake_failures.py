"""What may happen to a Delta Lake table beside appended rows, and what we say.

Vacuumed files, cleaned logs, tables replaced or restored, columns that go, come or change, features
that are not read, entries cut off: continued exactly, or stopped with the cause and the way out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from viewkeeper.errors import GapError, SchemaError, SourceAwayError
from viewkeeper.sources.delta_lake import DeltaLakeSource, open_source
from viewkeeper.sources.delta_lake.table_version import seconds_of
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import COUNT, Lookup
from viewkeeper.view.definition import Relation

TABLES = {"events": ["id", "kind"]}
LOAD = r"(?s)viewkeeper refresh"


def source_of(tmp_path: Path, **options: str) -> DeltaLakeSource:
    given = {"path": "events", **options}
    home = str(tmp_path / "home")
    return open_source(SourceSettings("lake", "delta_lake", given, str(tmp_path), home), "test")


def some(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "kind": [f"k{n}" for n in ids]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_deltalake(tmp_path / "events", some(1, 2))
    return tmp_path / "events"


def append(path: Path, *ids: int) -> None:
    write_deltalake(path, some(*ids), mode="append")


def changes(source: DeltaLakeSource, after: int, until: int) -> list[tuple[int, int]]:
    return sorted(
        (row["id"], row[COUNT])
        for _, batch in source.read_changes(TABLES, after, until)
        for row in batch.to_pylist()
    )


def scanned(source: DeltaLakeSource, after: int) -> list[int]:
    with source.prepare_snapshots(after, TABLES) as opener:
        scan = opener().scan_relation(Relation("lake", "events"), ["id"], after)
        return sorted(int(n) for batch in scan.batches for n in batch["id"].to_numpy())


def test_vacuumed_versions_are_a_gap(tmp_path: Path, path: Path) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    DeltaTable(str(path)).delete("id = 1")
    DeltaTable(str(path)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(GapError, match=LOAD) as caught:
        source.look_for_transactions(start)
    assert "delta.deletedFileRetentionDuration" in str(caught.value)
    with pytest.raises(GapError, match=f"version {start} of the table cannot be read any more"):
        scanned(source, start)
    again = source.follow_tables(TABLES)
    assert source.look_for_transactions(again) == ()
    assert scanned(source, again) == [2]


def test_a_cleaned_log_is_a_gap(tmp_path: Path, path: Path) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    append(path, 3)
    append(path, 4)
    DeltaTable(str(path)).create_checkpoint()
    entries = [path / "_delta_log" / f"{version:020d}.json" for version in range(3)]
    for entry in entries[:2]:
        entry.unlink()
    with pytest.raises(GapError, match=r"(?s)its log entry was cleaned up.*viewkeeper refresh"):
        source_of(tmp_path).look_for_transactions(start)
    assert source.look_for_transactions(2) == ()
    append(path, 5)
    entries[2].unlink()
    (boundary,) = source.look_for_transactions(2)
    assert changes(source, 2, boundary.position) == [(5, 1)]
    assert scanned(source, boundary.position) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("running", [True, False], ids=["running", "restarted"])
def test_another_table_under_the_path_is_a_gap(tmp_path: Path, path: Path, running: bool) -> None:
    source = source_of(tmp_path)
    append(path, 3)
    start = source.follow_tables(TABLES)
    assert source.look_for_transactions(start) == ()
    shutil.rmtree(path)
    for number in range(5):
        append(path, number)
    with pytest.raises(GapError, match=LOAD):
        (source if running else source_of(tmp_path)).look_for_transactions(start)


@pytest.mark.parametrize("running", [True, False], ids=["running", "restarted"])
@pytest.mark.parametrize("written_on", [0, 1, 5])
def test_a_restored_backup_is_a_gap(
    tmp_path: Path, path: Path, running: bool, written_on: int
) -> None:
    shutil.copytree(path, tmp_path / "backup")
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    append(path, 3)
    append(path, 4)
    newest = source.look_for_transactions(start)[-1].position
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "backup", path)
    for number in range(written_on):
        append(path, 10 + number)
    with pytest.raises(GapError, match="restored from a backup"):
        (source if running else source_of(tmp_path)).look_for_transactions(newest)


def test_lost_notes_are_a_gap(tmp_path: Path, path: Path) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    shutil.rmtree(tmp_path / "home")
    with pytest.raises(GapError, match="which table was followed"):
        source_of(tmp_path).look_for_transactions(start)


def test_restore_is_followed(tmp_path: Path, path: Path) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    append(path, 3)
    DeltaTable(str(path)).restore(start)
    assert [b.position for b in source.look_for_transactions(start)] == [start + 1, start + 2]
    assert changes(source, start + 1, start + 2) == [(3, -1)]


def test_added_columns_do_not_matter(tmp_path: Path, path: Path) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    wider = some(3).append_column("more", pa.array([1.5]))
    write_deltalake(path, wider, mode="append", schema_mode="merge")
    (boundary,) = source.look_for_transactions(start)
    assert changes(source, start, boundary.position) == [(3, 1)]
    assert scanned(source, boundary.position) == [1, 2, 3]
    after = source.follow_tables({"events": ["more"]})
    DeltaTable(str(path)).update(updates={"more": "2.5"}, predicate="id = 1")
    (updated,) = source.look_for_transactions(after)
    found = list(source.read_changes({"events": ["id", "more"]}, after, updated.position))
    rows = {(r["id"], r["more"], r[COUNT]) for _, b in found for r in b.to_pylist()}
    assert rows == {(1, 2.5, 1), (1, None, -1)}


def test_integers_of_all_widths_are_one_type(tmp_path: Path) -> None:
    narrow = pa.table({"id": pa.array([1], pa.int32()), "kind": ["a"]})
    write_deltalake(tmp_path / "events", narrow)
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    write_deltalake(tmp_path / "events", some(2**40), mode="overwrite", schema_mode="overwrite")
    (boundary,) = source.look_for_transactions(start)
    assert changes(source, start, boundary.position) == [(1, -1), (2**40, 1)]


def edit_log(path: Path, version: int, action: str, **values: object) -> None:
    entry = path / "_delta_log" / f"{version:020d}.json"
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        if action in line:
            line[action].update(values)
    entry.write_text("".join(json.dumps(line) + "\n" for line in lines))


def features(*names: str) -> dict[str, object]:
    both = {"readerFeatures": list(names), "writerFeatures": list(names)}
    return {"minReaderVersion": 3, "minWriterVersion": 7, **both}


@pytest.mark.parametrize("feature", ["deletionVectors", "variantType"])
def test_features_that_are_not_read_are_named(tmp_path: Path, path: Path, feature: str) -> None:
    edit_log(path, 0, "protocol", **features(feature))
    with pytest.raises(SchemaError, match=f"(?s)feature {feature}.*DROP FEATURE {feature}"):
        source_of(tmp_path).follow_tables(TABLES)
    assert source_of(tmp_path).diagnose_source(TABLES)[0].state == "bad"


def test_columns_mapped_by_id_are_refused(tmp_path: Path, path: Path) -> None:
    edit_log(path, 0, "metaData", configuration={"delta.columnMapping.mode": "id"})
    with pytest.raises((SchemaError, SourceAwayError)):
        source_of(tmp_path).follow_tables(TABLES)


def test_a_feature_that_comes_later_stops_there(tmp_path: Path, path: Path) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    assert source.look_for_transactions(start) == ()
    append(path, 3)
    line = {"protocol": features("deletionVectors")}
    (path / "_delta_log" / f"{2:020d}.json").write_text(json.dumps(line) + "\n")
    (boundary,) = source.look_for_transactions(start)
    assert boundary.position == start + 1, "what came before is reported"
    with pytest.raises(SchemaError, match="deletionVectors"):
        source.look_for_transactions(boundary.position)


@pytest.mark.parametrize("text", ["", '{"add": {"pa', "\0\0\0\0"], ids=["empty", "half", "zeros"])
def test_an_entry_that_is_cut_off_is_waited_for(tmp_path: Path, path: Path, text: str) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    entry = path / "_delta_log" / f"{start + 1:020d}.json"
    assert source.look_for_transactions(start) == ()
    entry.write_text(text)
    with pytest.raises(SourceAwayError, match=f"version {start + 1} cannot be read"):
        source.look_for_transactions(start)
    fresh = source_of(tmp_path)
    with pytest.raises(SourceAwayError, match="cannot be"):
        fresh.look_for_transactions(start)
    with pytest.raises(SourceAwayError, match="cannot be"):
        fresh.follow_tables(TABLES)
    entry.unlink()
    append(path, 3)
    (boundary,) = source.look_for_transactions(start)
    assert changes(source, start, boundary.position) == [(3, 1)]


def test_a_remove_that_does_not_say_its_partition(tmp_path: Path) -> None:
    path = tmp_path / "events"
    write_deltalake(path, some(1, 2), partition_by=["kind"])
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    DeltaTable(str(path)).delete("id = 1")
    edit_log(path, 1, "remove", partitionValues=None)
    (boundary,) = source.look_for_transactions(start)
    found = [b.to_pylist() for _, b in source.read_changes(TABLES, start, boundary.position)]
    assert [(row["id"], row["kind"], row[COUNT]) for rows in found for row in rows] == [
        (1, "k1", -1)
    ]


def test_rows_are_counted_without_any_column(tmp_path: Path, path: Path) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    append(path, 3)
    DeltaTable(str(path)).update(updates={"kind": "'x'"}, predicate="id = 1")
    DeltaTable(str(path)).delete("id = 2")
    end = source.look_for_transactions(start)[-1].position
    found = list(source.read_changes({"events": []}, start, end))
    assert sum(count for _, batch in found for count in batch[COUNT].to_numpy()) == 0
    with source.prepare_snapshots(end, TABLES) as opener:
        scan = opener().scan_relation(Relation("lake", "events"), [], end)
        assert sum(batch.num_rows for batch in scan.batches) == 2
        lookup = Lookup(
            0, Relation("lake", "events"), (), ("id",), (False,), some(1).select(["id"])
        )
        assert opener().answer_lookup(lookup, end).rows.num_rows == 1


def test_names_are_checked(tmp_path: Path, path: Path) -> None:
    source = source_of(tmp_path)
    assert source.table == "events"
    assert source_of(tmp_path, table="clicks").table == "clicks"
    with pytest.raises(SchemaError, match='did you mean "events"'):
        source.describe_table("event")
    with pytest.raises(SchemaError, match='no column "kinds"'):
        source.follow_tables({"events": ["kinds"]})
    with pytest.raises(SourceAwayError, match="there is no Delta Lake table"):
        source_of(tmp_path, path="nowhere").describe_table("nowhere")


def test_status_says_when_versions_may_go(tmp_path: Path, path: Path) -> None:
    source = source_of(tmp_path)
    assert not source.read_health([]).followed
    start = source.follow_tables(TABLES)
    append(path, 3, 4)
    health = source.read_health([start])
    assert (health.position, health.unit, health.warnings) == (start + 1, "versions", ())
    assert health.behind[start].changes == 2
    long_ago = int((time.time() - 6 * 24 * 3600) * 1000)
    edit_log(path, 1, "commitInfo", timestamp=long_ago)
    (warning,) = source.read_health([start]).warnings
    assert f"version {start}, and VACUUM may delete its files in 24" in warning.replace(
        "23.9", "24"
    )
    assert source.read_health([start + 1]).warnings == ()


def test_doctor_reads_the_table_s_settings(tmp_path: Path, path: Path) -> None:
    findings = {finding.check: finding for finding in source_of(tmp_path).diagnose_source(TABLES)}
    assert findings["table"].state == findings["columns"].state == "good"
    assert findings["change data feed"].state == "warning"
    assert "enableChangeDataFeed" in (findings["change data feed"].mend or "")
    assert "168 hours" in findings["retention"].text
    for file in path.glob("*.parquet"):
        file.unlink()
    assert "bad" in {finding.state for finding in source_of(tmp_path).diagnose_source(TABLES)}


def test_detaching_leaves_the_table_as_it_was(tmp_path: Path, path: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in path.rglob("*")}
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    source.look_for_transactions(start)
    scanned(source, start)
    assert source.detach_source().was_following
    assert {p: p.stat().st_mtime_ns for p in path.rglob("*")} == before
    assert not (tmp_path / "home").exists()
    assert not source.detach_source().was_following


@pytest.mark.parametrize(
    ("interval", "seconds"),
    [("interval 1 week", 604_800.0), ("interval 36 hours", 129_600.0), ("nonsense", 604_800.0)],
)
def test_intervals(interval: str, seconds: float) -> None:
    assert seconds_of(interval) == seconds


READS = """
import sys
from tests.sources.test_delta_lake_failures import changes, scanned, source_of
from pathlib import Path
source = source_of(Path(sys.argv[1]))
end = source.look_for_transactions(0)[-1].position
assert scanned(source, end) == [2, 3] and changes(source, 0, end) == [(1, -1), (3, 1)]
source.read_health([0])
"""


def test_processes_that_read_a_table_end_well(tmp_path: Path, path: Path) -> None:
    source_of(tmp_path).follow_tables(TABLES)
    append(path, 3)
    DeltaTable(str(path)).delete("id = 1")
    for _ in range(2):
        command = [sys.executable, "-c", READS, str(tmp_path)]
        subprocess.run(command, check=True, cwd=Path(__file__).parents[2], timeout=60)
