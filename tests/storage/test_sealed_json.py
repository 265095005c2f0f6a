"""A sealed file is read as it was written, or refused by an error that says what it should be."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from viewkeeper.errors import CorruptError, WarehouseError
from viewkeeper.storage.sealed_json import (
    seal_body,
    translate_decode_errors,
    unseal_file,
    unseal_or_plain,
    write_sealed,
)
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.metadata.plan_files import read_plan
from viewkeeper.warehouse.metadata.record import read_record

ODD = {
    "no object": "[1]",
    "a text": '"x"',
    "no number": '{"n":NaN}',
    "endless": '{"n":Infinity}',
    "a huge number": '{"n":' + "9" * 5000 + "}",
    "deep": "[" * 100_000 + "]" * 100_000,
    "a name twice": '{"n":1,"n":2}',
    "a truth value": '{"n":true,"entries":[],"views":{},"changes":[],"committed_at":0,"plan":null}',
    "a text for a number": '{"n":"1","entries":[],"views":{},"changes":[]}',
    "nothing": "{}",
    "null": "null",
}


READERS: dict[str, Callable[[Path], object]] = {
    "head": lambda path: read_head(path.parent),
    "plan": read_plan,
    "record": read_record,
}


def sealed(kind: str, body: bytes) -> bytes:
    """A body of any bytes, with its right checksum."""
    return b'{"kind":"%b","format":1,"check":%d,"body":%b}\n' % (
        kind.encode(),
        zlib.crc32(body),
        body,
    )


def test_what_was_written_is_read(tmp_path: Path) -> None:
    body = {"b": [1, 2.5, None, "é", True], "a": {}}
    write_sealed(tmp_path / "deep" / "x.json", "thing", body)
    assert unseal_file(tmp_path / "deep" / "x.json", "thing", "") == body


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    data = seal_body("thing", {"rows": 12, "name": "a"})
    for at in range(len(data)):
        for bit in range(8):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            with pytest.raises(WarehouseError) as caught:
                unseal_file(path, "thing", "restore it")
            assert "x.json" in caught.value.message
            assert "restore it" in str(caught.value.hint)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(CorruptError):
            unseal_file(path, "thing", "restore it")
    path.write_bytes(data + data)
    with pytest.raises(CorruptError):
        unseal_file(path, "thing", "restore it")


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", READERS)
def test_odd_content_with_a_right_checksum_is_refused(tmp_path: Path, kind: str, odd: str) -> None:
    name = "head.json" if kind == "head" else "00000000000000000001.json"
    (tmp_path / name).write_bytes(sealed(kind, ODD[odd].encode()))
    with pytest.raises(CorruptError, match=f"not a {kind}") as caught:
        READERS[kind](tmp_path / name)
    assert caught.value.hint


@pytest.mark.parametrize("body", [b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b"\xff\xfe{\0}\0"])
def test_text_that_is_not_utf8_is_refused(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "x.json").write_bytes(sealed("thing", body))
    with pytest.raises(CorruptError):
        unseal_file(tmp_path / "x.json", "thing", "")


def test_a_plan_under_another_number_is_refused(tmp_path: Path) -> None:
    body = json.dumps({"n": 2, "entries": [], "views": {}}).encode()
    (tmp_path / "00000000000000000001.json").write_bytes(sealed("plan", body))
    with pytest.raises(CorruptError, match="plan"):
        read_plan(tmp_path / "00000000000000000001.json")


def test_a_file_of_before_is_read_without_its_envelope(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{\n "orders": {"id": "17"}\n}')
    assert unseal_or_plain(path, "thing", "") == {"orders": {"id": "17"}}
    write_sealed(path, "thing", {"orders": {"id": "18"}})
    assert unseal_or_plain(path, "thing", "") == {"orders": {"id": "18"}}


def test_another_format_says_who_can_read_it(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(seal_body("thing", {}).replace(b'"format":1', b'"format":7'))
    with pytest.raises(WarehouseError, match="format 7"):
        unseal_file(tmp_path / "x.json", "thing", "")


def test_what_a_reader_stumbles_over_names_the_file(tmp_path: Path) -> None:
    with (
        pytest.raises(CorruptError, match=r"x\.json"),
        translate_decode_errors(tmp_path / "x.json", "thing", "mend"),
    ):
        int("x")
