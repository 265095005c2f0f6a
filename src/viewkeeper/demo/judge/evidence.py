"""What the judge is given, and what it says: evidence, claim, findings.

Evidence is what was made without Viewkeeper: copies of the databases from the start, the databases
themselves at the end, the writers' journals, and the view's question in words of its own. A claim
is what Viewkeeper says. All of it is read with plain Python and SQLite.
"""

from __future__ import annotations

import datetime
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN = 5

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class JudgedDatabase:
    """One database: its copy from the start, itself at the end, and what its writers noted.

    A line of a journal is `{"n": 7, "changes": [["orders", -1, [...]], ...]}`: the transaction's
    number in the ledger, and its changes as table, sign and whole row.
    """

    copy: Path
    final: Path
    journals: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """The view in SQL that SQLite and Spark both understand.

    `tables` are (database, table) by alias, `outputs` expressions by column.
    """

    tables: Mapping[str, tuple[str, str]]
    outputs: Mapping[str, str]
    condition: str


@dataclass(frozen=True, slots=True)
class JudgedClaim:
    """What is to be judged: the view's feed and newest state, and the feeds of the ledgers.

    A feed has the columns, `_count` and `_ts`, and begins with the state at ts `since`, the oldest
    that is claimed; the newest is that at `until`. A ledger's only column is `n`. A transaction
    that a ledger was loaded with may have any ts up to `since`.
    """

    feed: DataFrame
    state: pa.Table
    ledgers: Mapping[str, pa.Table]
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class JudgeFinding:
    """The answer to one question: how much was compared, how much differs, and what for example."""

    holds: str
    fails: str
    compared: int
    differing: int
    examples: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.differing == 0

    def __str__(self) -> str:
        if self.ok:
            return self.holds
        times = "once" if self.differing == 1 else f"{self.differing:,} times"
        return f"{self.fails} {times}, for example: " + "; ".join(self.examples) + "."


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """All findings; `states` of the view were compared."""

    states: int
    transactions: int
    changes: int
    findings: tuple[JudgeFinding, ...]

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A transaction in a journal."""

    n: int
    changes: tuple[tuple[str, int, Row], ...]


Journals = Mapping[str, list[JournalEntry]]


def read_journals(databases: Mapping[str, JudgedDatabase]) -> dict[str, list[JournalEntry]]:
    """All transactions of each database in the order of their numbers."""
    found = {name: _read_entries(database.journals) for name, database in databases.items()}
    return {name: sorted(journal, key=lambda noted: noted.n) for name, journal in found.items()}


def _read_entries(files: Iterable[Path]) -> Iterator[JournalEntry]:
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            body = json.loads(line)
            changes = ((table, sign, tuple(row)) for table, sign, row in body["changes"])
            yield JournalEntry(body["n"], tuple(changes))


def ledger_lines(ledger: pa.Table) -> list[tuple[int, int, int]]:
    """A ledger's feed as (n, ts, count), by n."""
    columns = (ledger[name].to_pylist() for name in ("n", "_ts", "_count"))
    return sorted(zip(*columns, strict=True))


def as_stored(value: object) -> object:
    """A value as SQLite stores it: numbers, texts and NULL.

    Days and decimals are texts; so are moments, in UTC and with six digits.

    >>> as_stored(datetime.datetime(2026, 1, 2, 3, 4, 5))
    '2026-01-02 03:04:05.000000'
    """
    if isinstance(value, datetime.datetime):
        utc = value if value.tzinfo is None else value.astimezone(datetime.UTC)
        return utc.replace(tzinfo=None).isoformat(" ", "microseconds")
    return value if value is None or isinstance(value, int | float | str) else str(value)


def open_readonly(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def rows_of(path: Path, table: str) -> list[Row]:
    with closing(open_readonly(path)) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()
