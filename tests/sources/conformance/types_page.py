"""The page about types, made from the matrix that the tests run: `docs/sources/types.md`.

`python -m tests.sources.conformance.types_page` writes it; a test checks that it is up to date.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tests.sources.conformance.types_case import Case
from tests.sources.conformance.types_table import MATRIX

PAGE = Path(__file__).parents[3] / "docs" / "sources" / "types.md"

_TITLES = {
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "mariadb": "MariaDB",
    "files-csv": "CSV files",
    "files-json": "JSON files",
    "files-parquet": "Parquet files",
    "delta_lake": "Delta Lake",
}
_SPARK: dict[pa.DataType, str] = {
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
}
_HEAD = """\
# Types

A value arrives in a view exactly as the source has it, or its column is refused when a view that
reads it is defined. A single value that its type allows and that cannot be kept (an infinite date)
stops the source with an error that names it. Nothing is rounded, cut or guessed.

All integers up to 64 bits are BIGINT, so that they can be joined across sources. -0.0 becomes 0.0.
Dates and timestamps have the years 1 to 9999; a timestamp with a zone is kept as an instant in UTC.

This page is made from the matrix that `tests/sources/conformance/test_types.py` runs against real
databases: each type below with its extremes, NULL, blanks, unicode and zones, read from the change
stream as it comes and goes, from answers, scans and tails, and found by lookups.
"""


def page() -> str:
    return "\n".join([_HEAD, *(_section(kind) for kind in MATRIX)])


def _section(kind: str) -> str:
    lines = [
        f"## {_TITLES[kind]}",
        "",
        "| declared | kept as | what to know |",
        "| --- | --- | --- |",
    ]
    return "\n".join([*lines, *map(_line, MATRIX[kind])]) + "\n"


def _line(case: Case) -> str:
    declared = case.called or f"`{case.declared}`"
    if case.arrow is None:
        return f"| {_cell(declared)} | refused | {_cell(case.reason)} |"
    return f"| {_cell(declared)} | {_word(case.arrow)} | {_cell('; '.join(_notes(case)))} |"


def _notes(case: Case) -> Iterator[str]:
    if case.note:
        yield case.note
    if case.misfits:
        written = ", ".join(f"`{_shown(misfit.written)}`" for misfit in case.misfits)
        yield f"an error that names the value: {written}"


def _shown(written: object) -> str:
    return str(written.cast(pa.string())) if isinstance(written, pa.Scalar) else str(written)


def _word(kind: pa.DataType) -> str:
    if isinstance(kind, pa.Decimal128Type):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _SPARK[kind]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
