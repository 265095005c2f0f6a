"""Damaged files of JSON lines: read exactly as declared, or refused with file and line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fuzz.mutation import fuzz
from tests.fuzz.test_csv import COLUMNS
from viewkeeper.sources.files.file_parser import FileParser
from viewkeeper.sources.files.settings import Dialect, TableSettings

GOOD = [
    b'{"c0": 1, "c1": 2.50, "c2": 1e3, "c3": true, "c4": "2024-02-29", "c6": "text", "x": [{}]}\n',
    b'{"c5": "2024-01-01 10:00:00+02:00", "c7": "AP8=", "c6": null}\n\n{"c6": "\\ud83d\\ude00"}\n',
    b'{"c0": -9223372036854775808, "c1": "12.5", "c2": "NaN"}\r\n{}\n',
    "".join(json.dumps({"c0": n, "c6": "é" * n}) + "\n" for n in range(30)).encode(),
]
WORDS = [b'{"c6": ', b"[" * 5000, b'{"a":' * 3000, b"\\ud800", b"NaN", b"1e-99999999", b'"c0": 1,']


def test_damaged_json(scratch: Path) -> None:
    parser, path = (
        FileParser("shop", "json", TableSettings("t", COLUMNS, (), Dialect())),
        scratch / "t",
    )

    def read(data: bytes) -> None:
        path.write_bytes(data)
        columns = parser.read_columns(path, "t.json")
        for batch in parser.read_batches(path, "t.json", columns):
            batch.validate(full=True)

    fuzz(read, GOOD, inputs=2000, words=WORDS)
