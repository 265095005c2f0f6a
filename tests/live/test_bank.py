"""The bank: money is moved, never made, so the total of all balances is 0 at every moment.

Transfers are in one database, accounts in another. A transfer is two rows that are written
together, each with the number of the other. The views are the sums of what came and of what went by
account, their difference, the total of that, and every row of a transfer with its counterpart. A
reader polls all the time while transfers stream in: the total is always 0, no counterpart is ever
missing, and the views of one database are at one ts. Those of both are no further, and a view is no
further than the one that it reads: on a busy machine a database may answer too late for a batch,
which others do not wait for. Where expensive views may advance apart, which is the default, the
rows with their counterparts may be behind the sums, which they do not read, and are as right.
Afterwards every ts that ever was is looked at.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.faults.processes import PATIENCE_SECONDS, maintainer
from tests.live.judge import feed
from viewkeeper.engine.project import Project

VIEWS = {
    "credits": "SELECT t.account, sum(t.amount) AS amount FROM bank.transfers t "
    "WHERE t.amount > 0 GROUP BY t.account",
    "debits": "SELECT t.account, -sum(t.amount) AS amount FROM bank.transfers t "
    "WHERE t.amount < 0 GROUP BY t.account",
    "balance": "SELECT a.id AS account, a.owner, coalesce(c.amount, 0) - coalesce(d.amount, 0) "
    "AS amount FROM crm.accounts a LEFT JOIN credits c ON c.account = a.id "
    "LEFT JOIN debits d ON d.account = a.id",
    "total": "SELECT sum(b.amount) AS amount FROM balance b",
    "legs": "SELECT t.id, t.account, u.id AS counterpart FROM bank.transfers t "
    "LEFT JOIN bank.transfers u ON u.id = t.other",
}
SUMS_OF_BANK = ("credits", "debits")
ACCOUNTS = 20
ROUNDS = 5
"""After each of so many shares of the transfers the views are waited for."""


class Bank:
    """Two databases, and what the balances must be in the end."""

    def __init__(self, folder: Path, seed: int, lanes: str) -> None:
        self.balances = Counter(dict.fromkeys(range(ACCOUNTS), 0))
        self._rng = random.Random(seed)
        self._paths = {name: folder / f"{name}.db" for name in ("bank", "crm")}
        self._next = 1
        self._execute(
            "bank",
            "CREATE TABLE transfers (id INTEGER PRIMARY KEY, account INTEGER, amount INTEGER, "
            "other INTEGER)",
            "CREATE INDEX by_account ON transfers (account)",
            "CREATE INDEX by_other ON transfers (other)",
        )
        owners = ", ".join(f"({account}, 'o{account}')" for account in range(ACCOUNTS))
        self._execute(
            "crm",
            "CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT)",
            f"INSERT INTO accounts VALUES {owners}",
        )
        self._write_project(folder, lanes)

    def _write_project(self, folder: Path, lanes: str) -> None:
        kinds = (f"  {name}: {{kind: sqlite, path: {name}.db}}\n" for name in self._paths)
        sources = "".join(kinds)
        settings = (
            "warehouse: ./warehouse\nfreshness: 100ms\nbatch: {inline_rows: 10000000}\n"
            f"lanes: {lanes}\n"
        )
        (folder / "viewkeeper.yml").write_text(f"{settings}sources:\n{sources}")
        (folder / "views").mkdir()
        for name, text in VIEWS.items():
            sql = f"CREATE MATERIALIZED VIEW {name} AS\n{text};\n"
            (folder / "views" / f"{name}.sql").write_text(sql)

    def _execute(self, name: str, *statements: str) -> None:
        with closing(sqlite3.connect(self._paths[name], timeout=60)) as database:
            database.execute("PRAGMA journal_mode = wal")
            for statement in statements:
                database.execute(statement)
            database.commit()

    def move_money(self, transfers: int) -> None:
        """So many transfers, one transaction each; now and then one is taken back, and an account
        gets another owner."""
        with closing(sqlite3.connect(self._paths["bank"], timeout=60)) as database:
            for _ in range(transfers):
                self._transfer(database)
                if self._rng.random() < 0.05:
                    self._take_back(database)
                if self._rng.random() < 0.02:
                    account = self._rng.randrange(ACCOUNTS)
                    self._execute("crm", f"UPDATE accounts SET owner = 'p' WHERE id = {account}")

    def _transfer(self, database: sqlite3.Connection) -> None:
        giver, taker = self._rng.sample(range(ACCOUNTS), 2)
        amount, number = self._rng.randint(1, 100), self._next
        self._next += 2
        rows = [(number, giver, -amount, number + 1), (number + 1, taker, amount, number)]
        database.executemany("INSERT INTO transfers VALUES (?, ?, ?, ?)", rows)
        database.commit()
        self.balances.update({giver: -amount, taker: amount})

    def _take_back(self, database: sqlite3.Connection) -> None:
        number = self._rng.randrange(1, self._next, 2)
        pair = (number, number + 1)
        rows = database.execute("SELECT account, amount FROM transfers WHERE id IN (?, ?)", pair)
        for account, amount in rows.fetchall():
            self.balances.update({account: -amount})
        database.execute("DELETE FROM transfers WHERE id IN (?, ?)", pair)
        database.commit()


class Auditor(threading.Thread):
    """Reads all the time, and notes what must never be seen."""

    def __init__(self, project: Project, together: Collection[str]) -> None:
        super().__init__(name="auditor")
        self._project = project
        self._together = together
        self._ended = threading.Event()
        self.wrong: list[str] = []
        self.reads = 0

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                self._look_once()
                self.reads += 1
                time.sleep(0.01)
        except Exception as error:  # noqa: BLE001 - it is a finding like any other
            self.wrong.append(f"{type(error).__name__}: {error}")

    def _look_once(self) -> None:
        heads = self._project.newest_head().views
        ts = {name: heads[name].ts for name in VIEWS}
        together = {ts[name] for name in self._together}
        if len(together) > 1 or not ts["total"] <= ts["balance"] <= max(together):
            self.wrong.append(f"at different ts: {[(n, heads[n].ts) for n in VIEWS]}")
        amounts = self._project.view("total").arrow()["amount"].to_pylist()
        if amounts != [0]:
            self.wrong.append(f"the total is {amounts}")
        missing = self._project.view("legs").arrow()["counterpart"].null_count
        if missing:
            self.wrong.append(f"{missing} transfers without their counterpart")

    def stop(self) -> None:
        self._ended.set()
        self.join()


def run_bank(folder: Path, spark: SparkSession, transfers: int, lanes: str) -> int:
    """Move money while views are maintained and read; how many states there were."""
    bank = Bank(folder, transfers, lanes)
    bank.move_money(10)
    with viewkeeper.open(folder, spark) as project:
        project.refresh()
        auditor = Auditor(project, (*SUMS_OF_BANK, *(["legs"] if lanes == "never" else [])))
        with maintainer(folder) as process:
            process.wait_for("ready")
            auditor.start()
            try:
                for _ in range(ROUNDS):
                    bank.move_money(transfers // ROUNDS)
                    wait_for_balances(project, bank.balances)
            finally:
                auditor.stop()
            assert process.stop() == 0, process.output
        assert not auditor.wrong, auditor.wrong[:5]
        assert auditor.reads > 1
        return check_every_state(project)


def wait_for_balances(project: Project, balances: Counter[int]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        table = project.view("balance").arrow()
        shown = dict(zip(table["account"].to_pylist(), table["amount"].to_pylist(), strict=True))
        if shown == dict(balances):
            return
        time.sleep(0.1)
    raise AssertionError(f"{shown} instead of {dict(balances)}")


def check_every_state(project: Project) -> int:
    """The total and the counterparts as of every ts; how many there were."""
    assert feed(project, "total").keys() == {project.view("total").head.created_ts}, (
        "the total has never changed, so nothing was ever done to it"
    )
    for name, column in (("total", 0), ("balance", 2)):
        amount = Counter[str]()
        for ts, rows in sorted(feed(project, name).items()):
            amount[name] += sum(count * row[column] for row, count in rows.items())
            assert amount[name] == 0, f"{name} as of ts {ts}: {amount[name]}"
    states, alone = feed(project, "legs"), Counter[tuple[object, ...]]()
    for ts, rows in sorted(states.items()):
        alone.update({row: count for row, count in rows.items() if row[2] is None})
        assert not +alone, f"as of ts {ts} without a counterpart: {+alone}"
    for ts in random.Random(1).sample(sorted(states), min(len(states), 5)):
        assert project.view("total").arrow(as_of=ts)["amount"].to_pylist() == [0]
    return len(states)


def test_money_is_neither_made_nor_lost(tmp_path: Path, spark: SparkSession) -> None:
    assert run_bank(tmp_path, spark, transfers=300, lanes="never") > ROUNDS


@pytest.mark.campaign
@pytest.mark.parametrize("lanes", ["never", "auto"])
def test_a_hundred_thousand_transfers(tmp_path: Path, spark: SparkSession, lanes: str) -> None:
    # How many states there are is a matter of speed: what lies between two looks is one of them.
    assert run_bank(tmp_path, spark, transfers=100_000, lanes=lanes) > ROUNDS
