"""Positions for people are written as the servers' own tools write them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import viewkeeper.sources.mariadb
from viewkeeper.sources.kinds import position_style_of, position_text_of
from viewkeeper.sources.mariadb.position import position_of, spell_place, spell_position
from viewkeeper.sources.postgres.decoding.stream import lsn_of, lsn_text
from viewkeeper.sources.settings import SourceSettings


@pytest.mark.parametrize(
    ("kind", "capture", "style"),
    [
        ("postgres", "decoding", "lsn"),
        ("postgres", "triggers", "number"),
        ("mariadb", None, "binlog"),
        ("sqlite", None, "number"),
        ("delta_lake", None, "number"),
    ],
)
def test_each_kind_has_its_way_to_write(kind: str, capture: str | None, style: str) -> None:
    options = {} if capture is None else {"capture": capture}
    assert position_style_of(SourceSettings("s", kind, options, ".")) == style


@pytest.mark.parametrize("position", [0, 1, 0x16B3748, 1 << 32, (1 << 62) + 17])
def test_positions_of_postgres_are_its_lsns(position: int) -> None:
    text = position_text_of("lsn", position)
    assert text == lsn_text(position)
    assert lsn_of(text) == position


@pytest.mark.parametrize(("file", "offset"), [(1, 4), (17, 328), (1_234_567, (1 << 32) + 5)])
def test_positions_of_mariadb_are_places_in_the_binlog(file: int, offset: int) -> None:
    position = position_of(file, offset)
    assert f"binlog.{position_text_of('binlog', position)}" == spell_position("binlog", position)
    assert position_text_of("binlog", position) == spell_place(position)


def test_no_error_of_mariadb_shows_a_position_as_a_bare_number() -> None:
    """A text that says "position" and then a value must have it spelled."""
    is_bare = re.compile(
        r"(?<!GTID )\bposition \{(?!spell_place\(|place\})|, (?:at|before) \{(?!spell)"
    )
    folder = Path(viewkeeper.sources.mariadb.__path__[0])
    found = [
        f"{file.name}:{number}: {line.strip()}"
        for file in sorted(folder.rglob("*.py"))
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if is_bare.search(line)
    ]
    assert found == []
