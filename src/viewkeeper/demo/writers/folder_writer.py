"""The writer of the demo's folder of CSV files; `paced_writer` says what a writer is.

A transaction rewrites some files and adds a line to the ledger's file, and is handed over as a
whole, by the convention for several tables: every file is written under another name first and
renamed when it is whole; the ledger is the first that changes and the last whose `_SUCCESS` is
written. So from the first change to the last the ledger's folder is younger than its `_SUCCESS`,
and nobody takes the folder for complete. That is said by times of files, so the first change waits
until the clock of the file system has moved on since the last hand-over.

Prices are the one thing that one writer owns, so it knows what is in the files.
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TypeAlias

from viewkeeper.demo.writers import paced_writer
from viewkeeper.demo.writers.paced_writer import Change, WriterRole, WriterStart, run_writer

TABLE, LEDGER, DONE = "price", "ledger", "_SUCCESS"
COLUMNS = ("sku", "price", "valid_from", "offer")
FILES = 8

OFFERS = [
    "Sommerschlußverkauf",
    "2 for 1, today only",
    'the "small" one',
    "soldes d’été\n−10 %",
    "お得",
]

Row: TypeAlias = list[str | None]
Rows: TypeAlias = dict[str, Row]


def price_row(sku: str, random: Random) -> Row:
    cents = random.randrange(100, 20_000)
    day = f"2026-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"
    offer = random.choice(OFFERS) if random.random() < 0.3 else None
    return [sku, f"{cents // 100}.{cents % 100:02}", day, offer]


def file_of(sku: str) -> str:
    """Which file a price is in."""
    return f"part-{sum(sku.encode()) % FILES}.csv"


def read_csv(path: Path) -> Iterator[Row]:
    """The rows of a file; nothing between two commas is NULL."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        next(rows)
        for row in rows:
            yield [value or None for value in row]


def write_csv(path: Path, columns: Sequence[str], rows: Iterator[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


class FolderTransaction:
    """What becomes of the prices, and how that differs from what they were."""

    def __init__(self, files: Mapping[str, Rows], random: Random, sizes: Mapping[str, int]) -> None:
        self.random = random
        self.sizes = sizes
        self.changes: list[Change] = []
        self.files = {name: dict(rows) for name, rows in files.items()}
        self.rewritten: set[str] = set()

    def some_sku(self) -> str:
        return f"sku-{self.random.randint(1, self.sizes['products'])}"

    def put_price(self, row: Row) -> None:
        """A price instead of the one that was there, if any."""
        self.remove_price(sku := str(row[0]))
        self.files[file_of(sku)][sku] = row
        self.changes.append((TABLE, 1, list(row)))

    def remove_price(self, sku: str) -> None:
        self.rewritten.add(file := file_of(sku))
        if (old := self.files[file].pop(sku, None)) is not None:
            self.changes.append((TABLE, -1, list(old)))


Activity: TypeAlias = paced_writer.Activity[FolderTransaction]


def change_prices(tx: FolderTransaction) -> None:
    for _ in range(tx.random.randint(1, 3)):
        tx.put_price(price_row(tx.some_sku(), tx.random))


def drop_price(tx: FolderTransaction) -> None:
    tx.remove_price(tx.some_sku())


def write_again(tx: FolderTransaction) -> None:
    """The same rows in another order: files change, prices do not."""
    name = tx.random.choice(sorted(tx.files))
    rows = list(tx.files[name].items())
    tx.random.shuffle(rows)
    tx.files[name] = dict(rows)
    tx.rewritten.add(name)


def revise_prices(tx: FolderTransaction) -> None:
    for _ in range(30):
        tx.put_price(price_row(tx.some_sku(), tx.random))


PRICES: dict[Activity, int] = {change_prices: 6, drop_price: 2, write_again: 1}

ROLES: dict[str, WriterRole[FolderTransaction]] = {
    "prices": WriterRole("prices", 2, PRICES, revise_prices, 5.0)
}


class FolderSession:
    """The folder, and what is in it."""

    def __init__(self, start: WriterStart) -> None:
        self._start = start
        self._folder = Path(start.target)
        self._files: dict[str, Rows] = {f"part-{number}.csv": {} for number in range(FILES)}
        for path in (self._folder / TABLE).glob("*.csv"):
            self._files[path.name] = {str(row[0]): row for row in read_csv(path)}
        self._ledger = list(read_csv(self._folder / LEDGER / "ledger.csv"))

    def run_transaction(self, activity: Activity, keep: bool) -> tuple[int, list[Change]] | None:
        tx = FolderTransaction(self._files, self._start.random, self._start.sizes)
        activity(tx)
        number = len(self._ledger) + 1
        ledger: list[Row] = [*self._ledger, [str(number)]]
        ready = [self._prepare_file(LEDGER, "ledger.csv", ("n",), iter(ledger))]
        for name in sorted(tx.rewritten):
            ready.append(self._prepare_file(TABLE, name, COLUMNS, iter(tx.files[name].values())))
        if not keep:
            for prepared, _ in ready:
                prepared.unlink()
            return None
        self._hand_over(ready)
        self._files, self._ledger = tx.files, ledger
        return number, tx.changes

    def _prepare_file(
        self, table: str, name: str, columns: Sequence[str], rows: Iterator[Row]
    ) -> tuple[Path, Path]:
        """A file under a name that is not data, and what it will be called."""
        target = self._folder / table / name
        prepared = target.with_suffix(".csv.tmp")
        write_csv(prepared, columns, rows)
        return prepared, target

    def _hand_over(self, ready: Sequence[tuple[Path, Path]]) -> None:
        done = (self._folder / LEDGER / DONE).stat().st_mtime_ns
        while ready[0][0].stat().st_mtime_ns <= done:
            time.sleep(0.001)
            os.utime(ready[0][0])
        for prepared, target in ready:
            prepared.rename(target)
        for table in (TABLE, LEDGER):
            (self._folder / table / DONE).write_text("")

    def close(self) -> None:
        """Nothing is open between two transactions."""


if __name__ == "__main__":
    run_writer(ROLES, FolderSession)
