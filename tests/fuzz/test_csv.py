"""Damaged CSV files: read exactly as declared, or refused with file and place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.mutation import fuzz
from viewkeeper.sources.files.file_parser import FileParser
from viewkeeper.sources.files.settings import Dialect, TableSettings, type_of_word

WORDS = ("bigint", "decimal(10,2)", "double", "boolean", "date", "timestamp", "string", "binary")
COLUMNS = {f"c{number}": kind for number, word in enumerate(WORDS) if (kind := type_of_word(word))}
GOOD = [
    b"c0,c1,c2,c3,c4,c5,c6,c7\n1,2.50,1e3,true,2024-02-29,2024-01-01 10:00:00+02:00,text,AP8=\n",
    b'c0,c6\r\n-7,"a ""quoted"" text,\r\nin two lines"\r\n\r\n8,\r\n',
    b"\xef\xbb\xbfc0,c1\n9223372036854775807,-99999999.99\n,\n",
    b"c6,c5,c4\n" + b"".join(b"x%d,2024-01-31T10:00:00.5Z,0001-01-01\n" % n for n in range(50)),
    "c6,extra\né,😀\n".encode(),
]
DIALECTS = {
    "usual": Dialect(),
    "odd": Dialect(delimiter=";", quote="'", escape="\\", null="NULL"),
    "latin": Dialect(encoding="latin-1"),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_damaged_csv(scratch: Path, name: str) -> None:
    dialect = DIALECTS[name]
    parser, path = (
        FileParser("shop", "csv", TableSettings("t", COLUMNS, (), dialect)),
        scratch / "t",
    )
    swapped = bytes.maketrans(b',"', (dialect.delimiter + dialect.quote).encode())

    def read(data: bytes) -> None:
        path.write_bytes(data)
        columns = parser.read_columns(path, "t.csv")
        for batch in parser.read_batches(path, "t.csv", columns):
            batch.validate(full=True)

    fuzz(read, [good.translate(swapped) for good in GOOD], inputs=700, words=[b"1e-41", b"NULL"])
