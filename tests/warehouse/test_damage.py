"""Whatever is damaged below the head is noticed by whoever reads it, and named.

A view's files are damaged in every way, one byte at a time where that is cheap; what is read then
is what was committed, or nothing. The other views of the warehouse go on.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.warehouse.model import SCHEMA, VIEW, World, bag, folder_of, opened, signed
from viewkeeper.errors import CorruptError
from viewkeeper.storage.sealed_json import seal_body
from viewkeeper.updates.view_actions import DeleteKeys
from viewkeeper.warehouse.lake.data_files import write_rows
from viewkeeper.warehouse.metadata.head import NAME, encode_head, read_flushed_head, read_head
from viewkeeper.warehouse.metadata.record import Advance, Create
from viewkeeper.warehouse.rows.stored_actions import evaluate_actions as actions_signed
from viewkeeper.warehouse.rows.stored_actions import write_negation
from viewkeeper.warehouse.rows.view_state import read_state
from viewkeeper.warehouse.store import Store

Damage = Callable[[bytes, random.Random], bytes | None]


def flip(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


DAMAGES: dict[str, Damage] = {
    "flip": flip,
    "cut": lambda data, chance: data[: chance.randrange(len(data))],
    "zeros": lambda data, chance: bytes(len(data)),
    "doubled": lambda data, chance: data * 2,
    "empty": lambda data, chance: b"",
    "removed": lambda data, chance: None,
}
damages = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened(tmp_path) as world:
        for k in range(3):
            world.append({(k, f"row {k}"): 1, (k + 50, None): 2})
        yield world


def write(path: Path, data: bytes | None) -> None:
    path.unlink(missing_ok=True)
    if data is not None:
        path.write_bytes(data)


@damages
def test_a_damaged_data_file_is_never_read_as_rows(
    world: World, damage: Damage, tmp_path: Path
) -> None:
    chance = random.Random(7)
    for path in sorted(folder_of(world.store).glob("*.parquet")):
        good = path.read_bytes()
        for _ in range(60 if damage is flip else 3):
            write(path, damage(good, chance))
            with pytest.raises(CorruptError, match=path.name) as caught:
                read_state(tmp_path, world.view)
            assert f"viewkeeper refresh {VIEW}" in str(caught.value.hint)
            with pytest.raises(CorruptError, match=path.name):
                write_negation(tmp_path, world.view, 99, 99)
        path.write_bytes(good)
    assert bag(read_state(tmp_path, world.view)) == world.expected(world.view.ts)


def test_every_flipped_bit_of_a_footer_is_noticed_by_a_search(world: World, tmp_path: Path) -> None:
    [path, *_] = sorted(folder_of(world.store).glob("*.parquet"))
    good = path.read_bytes()
    search = [DeleteKeys(("k",), pa.table({"k": [0, 1, 2]}))]
    footer = int.from_bytes(good[-8:-4], "little") + 8
    for at in range(len(good) - footer, len(good), 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 16]) + good[at + 1 :])
        with pytest.raises(CorruptError, match=path.name):
            actions_signed(tmp_path, world.view, search)


@damages
def test_a_damaged_log_entry_is_never_read_as_a_list(
    world: World, damage: Damage, tmp_path: Path
) -> None:
    chance = random.Random(11)
    expected = world.expected(world.view.ts)
    refused = 0
    for path in sorted((folder_of(world.store) / "_delta_log").glob("*.json")):
        good = path.read_bytes()
        for _ in range(25 if damage is flip else 3):
            write(path, damage(good, chance))
            try:
                # A flipped letter of a comment changes nothing: then the rows are right.
                assert bag(read_state(tmp_path, world.view)) == expected
            except CorruptError:
                refused += 1
        path.write_bytes(good)
    # The same entry twice in one file is still the same list.
    assert refused or damage is DAMAGES["doubled"]
    assert bag(read_state(tmp_path, world.view)) == expected


def two_views(root: Path) -> None:
    with Store.open(root, "test", time.time) as store:
        for name, k in (("good", 1), ("bad", 2)):
            table = store.new_table(name)
            rows = signed(SCHEMA, {(k, "x"): 1}, 1)
            file = write_rows(
                store.local_root.joinpath("views", table), SCHEMA, rows, store.head.record + 1, 0
            )
            create = Create(name, table, "SELECT ...", SCHEMA, 1, {"shop": 0}, (file,), True)
            store.commit([create])


@pytest.mark.parametrize("what", ["*.parquet", "_delta_log/*.json"])
@pytest.mark.parametrize("damage", [DAMAGES["empty"], DAMAGES["removed"], DAMAGES["cut"]])
def test_a_damaged_view_stops_and_the_others_go_on(
    tmp_path: Path, what: str, damage: Damage
) -> None:
    two_views(tmp_path)
    [*_, path] = sorted((tmp_path / "views").glob(f"bad-*/{what}"))
    good = path.read_bytes()
    write(path, damage(good, random.Random(3)))
    with Store.open(tmp_path, "test", time.time) as store:
        assert list(store.damaged_views) == ["bad"]
        assert store.head.require_view("bad").stopped == str(store.damaged_views["bad"])
        store.commit([Advance("good", 5, {"shop": 4})])
        with pytest.raises(CorruptError):
            store.commit([Advance("bad", 5, {"shop": 4})])
        record = store.head.record
    with Store.open(tmp_path, "test", time.time) as store:
        assert store.head.record == record, "it is told once"
    path.write_bytes(good)
    with Store.open(tmp_path, "test", time.time) as store:
        assert not store.damaged_views
        assert bag(read_state(tmp_path, store.head.require_view("bad"))) == {(2, "x"): 1}


def test_a_foreign_entry_while_the_warehouse_is_open_is_refused(
    world: World, tmp_path: Path
) -> None:
    version = world.view.location.version
    entry = folder_of(world.store) / "_delta_log" / f"{version + 1:020d}.json"
    entry.write_text('{"commitInfo":{"operation":"WRITE"}}\n')
    with pytest.raises(Exception, match=r"another writer|not at") as caught:
        world.append({(7, "x"): 1})
    assert "Viewkeeper" in str(caught.value)
    assert bag(read_state(tmp_path, world.view)) == world.expected(world.view.ts)


def test_a_warehouse_of_before_opens_and_gains_digests(world: World, tmp_path: Path) -> None:
    """Files without digests in their names, a log and a head that list them."""
    folder, head = (
        folder_of(world.store),
        tmp_path / NAME,
    )
    renamed = {p.name: f"{p.name[:-45]}.parquet" for p in folder.glob("*.parquet")}
    for path in [*(folder / "_delta_log").glob("*.json"), *(tmp_path / "records").glob("*.json")]:
        text = path.read_text()
        for now, before in renamed.items():
            text = text.replace(now, before)
        body = json.loads(text) if path.parent.name == "records" else None
        path.write_bytes(seal_body("record", body["body"]) if body else text.encode())
    for now, before in renamed.items():
        (folder / now).rename(folder / before)
    body = json.loads(head.read_bytes())["body"]
    for view in body["views"]:
        view["location"] = view["location"][:2]
    head.write_bytes(seal_body("head", body))
    assert bag(read_state(tmp_path, read_head(tmp_path).require_view(VIEW))) == world.expected(
        world.view.ts
    )
    world.store.close()
    with Store.open(tmp_path, "test", time.time) as store:
        assert not store.damaged_views
        again = World(store, history=world.history)
        again.append({(1000, "new"): 1})
        assert store.head.require_view(VIEW).location.listed
        again.check()
        assert encode_head(read_head(tmp_path)) == encode_head(store.head)


def test_data_files_have_page_checksums(world: World) -> None:
    [path, *_] = sorted(folder_of(world.store).glob("*.parquet"))
    good = path.read_bytes()
    column = pq.read_metadata(path).row_group(0).column(0)
    at = column.data_page_offset + column.total_compressed_size - 1
    path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(path, page_checksum_verification=True)


def test_a_head_is_decoded_again_as_soon_as_a_byte_of_it_is_another(world: World) -> None:
    path = world.store.local_root / NAME
    good, head = path.read_bytes(), read_flushed_head(world.store.root)
    assert read_flushed_head(world.store.root) is head, "the same bytes are not decoded twice"
    for at in range(0, len(good), 7):
        write(path, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(CorruptError, match=NAME):
            read_flushed_head(world.store.root)
    write(path, encode_head(replace(head, plan=head.plan + 1)))
    assert read_flushed_head(world.store.root).plan == head.plan + 1
    write(path, good)
    assert read_flushed_head(world.store.root) == head
