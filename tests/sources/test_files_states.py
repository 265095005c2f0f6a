"""A folder of files as a source: every accepted state, every difference, every answer exact.

Random folders of CSV, JSON and Parquet files, written, rewritten, renamed, split, removed and put
back; rows reordered and repeated. The judge is Python: bags of tuples of what was written.
"""

from __future__ import annotations

import csv
import json
import math
import pickle
import random
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from viewkeeper.sources.files import FilesSource, open_source
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import COUNT, POSITION, Answer, Lookup
from viewkeeper.view.definition import Relation

PRICE = Relation("shop", "price")
COLUMNS = ("sku", "price", "note")
TABLES = {"price": COLUMNS}
DECLARED = {"columns": {"sku": "bigint", "price": "double", "note": "string"}}
NOTES = [None, "", "a", 'b "c", d', "é\n𝄞", " x "]
PRICES = [None, 0.0, -0.0, 1.5, math.nan, math.inf]
FORMATS = ["csv", "json", "parquet"]

Row = tuple[Any, ...]
Bag = Counter[Row]


def source_of(folder: Path, format: str, **options: object) -> FilesSource:
    tables = {} if format == "parquet" else {"price": DECLARED}
    given = {"path": "exports", "format": format, "tables": tables, "settle_seconds": 0, **options}
    return open_source(
        SourceSettings("shop", "files", given, str(folder), str(folder / "home")), "test"
    )


def row_of(values: Sequence[object]) -> Row:
    """A tuple in which NaN equals NaN, and zero has no sign."""
    return tuple(str(v + 0.0) if isinstance(v, float) else v for v in values)


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write a file whole under another name, then rename it: what the convention asks for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"_{path.name}")
    {".csv": write_csv, ".json": write_json, ".parquet": write_parquet}[path.suffix](
        temporary, rows
    )
    temporary.rename(path)


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write("sku,price,note\n")
        for sku, price, note in rows:
            text = "" if note is None else '"' + str(note).replace('"', '""') + '"'
            file.write(f"{sku},{'' if price is None else price},{text}\n")


def write_json(path: Path, rows: Sequence[Row]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            found = dict(zip(COLUMNS, row, strict=True))
            file.write(json.dumps({k: v for k, v in found.items() if v is not None}) + "\n")


def write_parquet(path: Path, rows: Sequence[Row]) -> None:
    types = [pa.int32(), pa.float64(), pa.large_string()]
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    pq.write_table(pa.table(dict(zip(COLUMNS, arrays, strict=True))), path)


def bag_of(table: pa.Table, columns: Sequence[str] = COLUMNS) -> Bag:
    return Counter(row_of(r) for r in zip(*(table[c].to_pylist() for c in columns), strict=True))


def signed_bag(source: FilesSource, after: int, until: int) -> Bag:
    total: Bag = Counter()
    for table, batch in source.read_changes(TABLES, after, until):
        assert table == "price"
        assert batch.schema.names == [*COLUMNS, COUNT, POSITION]
        assert all(after < p <= until for p in batch[POSITION].to_numpy())
        for *values, count in zip(*(batch[c].to_pylist() for c in (*COLUMNS, COUNT)), strict=True):
            assert count in (1, -1)
            total[row_of(values)] += count
    return Counter({row: count for row, count in total.items() if count})


def scanned(source: FilesSource, after: int) -> Bag:
    with source.prepare_snapshots(after, TABLES) as opener:
        snapshot = pickle.loads(pickle.dumps(opener))()
        scan = snapshot.scan_relation(PRICE, COLUMNS, after)
        assert scan.cut.position == after
        found: Bag = sum((bag_of(pa.Table.from_batches([b])) for b in scan.batches), Counter())
        assert list(scan.tail) == []
        snapshot.close()
    return found


def random_rows(rng: random.Random, count: int) -> list[Row]:
    return [(rng.randrange(6), rng.choice(PRICES), rng.choice(NOTES)) for _ in range(count)]


class World:
    """The folder as a writer sees it."""

    def __init__(self, rng: random.Random, folder: Path, format: str) -> None:
        self.rng, self.folder, self.format = rng, folder, format
        self.files: dict[str, list[Row]] = {}

    def path(self, name: str) -> Path:
        return self.folder / "exports" / "price" / f"{name}.{self.format}"

    def put(self, name: str, rows: list[Row]) -> None:
        self.files[name] = rows
        write(self.path(name), rows)

    def step(self) -> None:
        rng, name = self.rng, self.rng.choice([*self.files, "new"])
        rows = list(self.files.get(name, ()))
        match rng.choice(
            ["edit", "edit", "reorder", "rename", "remove", "split", "touch", "twice"]
        ):
            case "edit":
                self.put(name, [*rng.sample(rows, len(rows) // 2), *random_rows(rng, 3)])
            case "reorder":
                self.put(name, rng.sample(rows, len(rows)))
            case "rename" if name in self.files:
                self.path(name).rename(self.path(f"r{name}"))
                self.files[f"r{name}"] = self.files.pop(name)
            case "remove" if name in self.files:
                self.path(name).unlink()
                del self.files[name]
            case "split":
                self.put(name, rows[::2])
                self.put(f"s{name}", [*self.files.get(f"s{name}", ()), *rows[1::2]])
            case "twice":
                self.put(f"t{name}", rows)
            case _:
                self.put(name, rows)

    def bag(self) -> Bag:
        return Counter(row_of(row) for rows in self.files.values() for row in rows)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("seed", range(3))
def test_every_difference_is_exact(tmp_path: Path, format: str, seed: int) -> None:
    rng = random.Random(f"{format}{seed}")
    world = World(rng, tmp_path, format)
    world.put("a", random_rows(rng, 10))
    world.put("b", random_rows(rng, 5))
    source = source_of(tmp_path, format)
    states = {source.follow_tables(TABLES): world.bag()}
    for _ in range(12):
        for _ in range(rng.randint(0, 2)):
            world.step()
        position = max(states)
        found = source.look_for_transactions(position)
        assert len(found) <= 1
        if not found:
            assert world.bag() == states[position]
        for boundary in found:
            states[boundary.position] = world.bag()
            assert boundary.changes == sum(
                abs(n) for n in signed_bag(source, position, boundary.position).values()
            )
    pairs = list(combinations(sorted(states), 2))
    for after, until in {*pairwise(sorted(states)), *rng.sample(pairs, min(8, len(pairs)))}:
        expected = Counter(states[until])
        expected.subtract(states[after])
        assert signed_bag(source, after, until) == {r: n for r, n in expected.items() if n}
    for position, bag in states.items():
        assert scanned(source, position) == bag


def ask(source: FilesSource, after: int, keys: pa.Table, null_safe: bool) -> Answer:
    on = tuple(keys.column_names)
    with source.prepare_snapshots(after, TABLES) as opener:
        safe = tuple(null_safe for _ in on)
        return opener().answer_lookup(Lookup(0, PRICE, COLUMNS, on, safe, keys), after)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("null_safe", [False, True])
def test_lookups_never_miss(tmp_path: Path, format: str, null_safe: bool) -> None:
    rng = random.Random(3)
    world = World(rng, tmp_path, format)
    for name in "abc":
        world.put(name, random_rows(rng, 30))
    source = source_of(tmp_path, format)
    position = source.follow_tables(TABLES)
    pools: dict[str, list[Any]] = {"sku": [*range(8)], "price": PRICES, "note": NOTES}
    types = {f.name: f.type for f in source.describe_table("price").fields}
    for on in (["sku"], ["note"], ["sku", "note"], ["price"], ["price", "sku"]):
        wanted = {tuple(rng.choice(pools[name]) for name in on) for _ in range(5)}
        arrays = [pa.array([key[i] for key in wanted], types[n]) for i, n in enumerate(on)]
        found = bag_of(
            ask(source, position, pa.table(dict(zip(on, arrays, strict=True))), null_safe).rows
        )
        asked, places = {row_of(key) for key in wanted}, [COLUMNS.index(name) for name in on]
        expected = Counter(
            {
                row: count
                for row, count in world.bag().items()
                if (key := tuple(row[p] for p in places)) in asked
                and (null_safe or None not in key)
            }
        )
        assert not expected - found, on
        assert not found - world.bag(), on


def test_a_single_file_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "exports" / "price.csv"
    write(path, [(1, 1.0, "a")])
    source = source_of(tmp_path, "csv")
    position = source.follow_tables(TABLES)
    write(path, [(1, 2.0, "a")])
    (boundary,) = source.look_for_transactions(position)
    assert signed_bag(source, position, boundary.position) == {
        (1, "1.0", "a"): -1,
        (1, "2.0", "a"): 1,
    }


def test_two_tables_change_in_one_transaction(tmp_path: Path) -> None:
    for name in ("price", "stock"):
        write(tmp_path / "exports" / name / "a.csv", [(1, 1.0, name)])
    source = source_of(tmp_path, "csv", tables={"price": DECLARED, "stock": DECLARED})
    start = source.follow_tables({"price": COLUMNS})
    later = source.follow_tables({"stock": ["sku"]})
    assert later > start
    for name in ("price", "stock"):
        write(tmp_path / "exports" / name / "a.csv", [(2, 1.0, name)])
    (added, boundary) = source.look_for_transactions(start)
    assert (added.position, added.changes) == (later, 0)
    assert boundary.changes == 4
    found = source.read_changes({"price": ["sku"], "stock": ["sku"]}, start, boundary.position)
    assert {table for table, _ in found} == {"price", "stock"}


def test_what_is_acknowledged_is_removed_unless_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "exports" / "price" / "a.csv"
    write(path, [(0, 1.0, "a")])
    source = source_of(tmp_path, "csv")
    positions = [source.follow_tables(TABLES)]
    for number in range(1, 5):
        write(path, [(number, 1.0, "a")])
        positions.append(source.look_for_transactions(positions[-1])[0].position)
    source.acknowledge_position(positions[1])
    assert scanned(source, positions[1]) == {(1, "1.0", "a"): 1}
    assert sum(signed_bag(source, positions[1], positions[4]).values()) == 0
    source.begin_hold("verify", 60)
    source.acknowledge_position(positions[4])
    assert scanned(source, positions[1]) == {(1, "1.0", "a"): 1}
    source.end_hold("verify")
    source.acknowledge_position(positions[4])
    kept = sorted(p.name for p in (tmp_path / "home").rglob("*.parquet"))
    assert len(kept) == 1
    assert scanned(source, positions[4]) == {(4, "1.0", "a"): 1}
    source.begin_hold("gone", -1)
    assert source.read_health([positions[4]]).retained == 1


def test_rows_are_counted_without_any_column(tmp_path: Path) -> None:
    path = tmp_path / "exports" / "price.csv"
    write(path, [(1, 1.0, "a"), (2, 1.0, "b")])
    source = source_of(tmp_path, "csv")
    start = source.follow_tables({"price": []})
    write(path, [(1, 2.0, "a"), (2, 1.0, "b"), (3, 1.0, "c")])
    (boundary,) = source.look_for_transactions(start)
    found = list(source.read_changes({"price": []}, start, boundary.position))
    assert sum(count for _, batch in found for count in batch[COUNT].to_numpy()) == 1
    with source.prepare_snapshots(start, {"price": []}) as opener:
        scan = opener().scan_relation(PRICE, [], boundary.position)
        assert sum(batch.num_rows for batch in scan.batches) == 3


def test_csv_without_header_and_with_another_dialect(tmp_path: Path) -> None:
    path = tmp_path / "exports" / "price.csv"
    path.parent.mkdir(parents=True)
    with open(path, "w", encoding="latin-1", newline="") as file:
        writer = csv.writer(file, delimiter=";", quotechar="'")
        writer.writerows([[1, "NULL", "é;x"], [2, "1.5", "it's"]])
    table = {**DECLARED, "header": False, "delimiter": ";", "quote": "'", "null": "NULL"}
    source = source_of(tmp_path, "csv", tables={"price": {**table, "encoding": "latin-1"}})
    assert scanned(source, source.follow_tables(TABLES)) == {
        (1, None, "é;x"): 1,
        (2, "1.5", "it's"): 1,
    }
