"""The writers of the demo's PostgreSQL and MariaDB databases; `demo_pace` says what a writer is.

Several write to one database at the same time. Rows are locked before they are read, so what the
journal says of the old row is what the statement found. The number in the ledger is taken last,
from a row that stays locked until the commit: numbers follow the order of the commits. Where the
database refuses (a deadlock, a key that somebody else was faster to use) everything is rolled back.

The password comes from the environment. Values that JSON has no type for are noted as text.
"""

from __future__ import annotations

import datetime
import decimal
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from viewkeeper.demo.writers import paced_writer
from viewkeeper.demo.writers.paced_writer import Change, WriterRole, WriterStart, run_writer
from viewkeeper.demo.writers.sqlite_writer import FIRST, LAST

PASSWORD = "VIEWKEEPER_DEMO_PASSWORD"

FAMILIES = f"{LAST} Gödel Łukasiewicz Ōoka Poincaré Nguye\u0302\u0303n 高木 Ćirić 🦉"
CITIES = "Århus Bérgen Čačak Đà_Nẵng Évora Gdańsk Köln Łódź Ñemby Oslo São_Paulo Yaound\u00e9 京都"


def unicode_person(random: Random) -> str:
    return f"{random.choice(FIRST.split())} {random.choice(FAMILIES.split())}"


def unicode_city(random: Random) -> str | None:
    """Some are not known."""
    return random.choice([*CITIES.split(), None])


def random_day(random: Random) -> datetime.date:
    return datetime.date(1999, 12, 31) + datetime.timedelta(days=random.randrange(9_000))


def random_moment(random: Random) -> datetime.datetime:
    """To the microsecond, or to the second."""
    seconds = random.randrange(60 * 86_400)
    microseconds = random.choice([0, random.randrange(1_000_000)])
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return begin + datetime.timedelta(seconds=seconds, microseconds=microseconds)


def plain_value(value: Any) -> Any:
    """A value as numbers and text; times are in UTC, with six digits.

    >>> plain_value(datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC))
    '2026-01-02 03:04:05.000000'
    """
    match value:
        case datetime.datetime(tzinfo=None):
            return value.isoformat(" ", "microseconds")
        case datetime.datetime():
            return plain_value(value.astimezone(datetime.UTC).replace(tzinfo=None))
        case datetime.date() | decimal.Decimal():
            return str(value)
        case _:
            return value


Found: TypeAlias = tuple[object, list[Any]]
"""What a row is found by again, and the row."""


@dataclass(frozen=True, slots=True)
class ServerDialect:
    """What a row is found by: how it is read, and how it is compared."""

    handle: str
    is_row: str


class ServerTransaction(paced_writer.ForeignNumbers):
    """Statements of one transaction, and what they did to which rows."""

    def __init__(
        self, cursor: Any, dialect: ServerDialect, random: Random, sizes: Mapping[str, int]
    ) -> None:
        super().__init__(random, sizes)
        self.changes: list[Change] = []
        self._cursor = cursor
        self._dialect = dialect

    def find_rows(self, table: str, where: str, *values: object) -> list[Found]:
        """Rows, locked; those that somebody else has locked are waited for."""
        handle = self._dialect.handle
        self._cursor.execute(f"SELECT {handle}, t.* FROM {table} t WHERE {where}", values)
        return [(found, list(row)) for found, *row in self._cursor.fetchall()]

    def pick_row(self, table: str, key: str = "id") -> Found | None:
        """Some row that nobody else has locked, if there is one."""
        self._cursor.execute(f"SELECT coalesce(max({key}), 0) FROM {table}")
        (newest,) = self._cursor.fetchone()
        where = f"{key} >= %s ORDER BY {key} LIMIT 1 FOR UPDATE SKIP LOCKED"
        found = self.find_rows(table, where, self.random.randint(1, max(1, newest)))
        return found[0] if found else None

    def insert_row(self, table: str, row: list[Any], verb: str = "INSERT") -> int:
        """Insert a row; a first column that is None is the key that the database chooses."""
        marks = ", ".join("DEFAULT" if n == 0 and v is None else "%s" for n, v in enumerate(row))
        values = row[1:] if row[0] is None else row
        self._cursor.execute(f"{verb} INTO {table} VALUES ({marks}) RETURNING *", values)
        (stored,) = self._cursor.fetchall()
        self._note_change(table, 1, stored)
        return int(stored[0])

    def delete_row(self, table: str, handle: object, row: list[Any]) -> None:
        self._cursor.execute(f"DELETE FROM {table} WHERE {self._dialect.is_row}", (handle,))
        assert self._cursor.rowcount == 1, f"{table}: a locked row has gone"
        self._note_change(table, -1, row)

    def update_row(self, table: str, handle: object, row: list[Any], **values: object) -> None:
        self._cursor.execute(f"SELECT * FROM {table} LIMIT 0")
        names = [column[0] for column in self._cursor.description]
        new = [values.get(name, old) for name, old in zip(names, row, strict=True)]
        fields = ", ".join(f"{name} = %s" for name in values)
        where = (*values.values(), handle)
        self._cursor.execute(f"UPDATE {table} SET {fields} WHERE {self._dialect.is_row}", where)
        self._note_change(table, -1, row)
        self._note_change(table, 1, new)

    def undo_activity(self, activity: Callable[[ServerTransaction], None]) -> None:
        """Do something and take it back, within the transaction."""
        before = len(self.changes)
        self._cursor.execute("SAVEPOINT maybe")
        activity(self)
        self._cursor.execute("ROLLBACK TO SAVEPOINT maybe")
        del self.changes[before:]

    def next_number(self) -> int:
        """The next number of the ledger; no other transaction gets it before the commit."""
        self._cursor.execute("UPDATE counter SET n = n + 1")
        self._cursor.execute("SELECT n FROM counter")
        (number,) = self._cursor.fetchone()
        self._cursor.execute("INSERT INTO ledger VALUES (%s)", (number,))
        return int(number)

    def _note_change(self, table: str, sign: int, row: list[Any]) -> None:
        self.changes.append((table, sign, [plain_value(value) for value in row]))


Activity: TypeAlias = paced_writer.Activity[ServerTransaction]


# -- the customers, in MariaDB -----------------------------------------------------------------


def add_customer(tx: ServerTransaction) -> None:
    tx.insert_row(
        "customer",
        [None, unicode_person(tx.random), unicode_city(tx.random), random_day(tx.random)],
    )


def move_customer(tx: ServerTransaction) -> None:
    if found := tx.pick_row("customer"):
        tx.update_row("customer", *found, city=unicode_city(tx.random))


def rename_household(tx: ServerTransaction) -> None:
    """Some customers, one after the other in the table, get one name."""
    name, first = unicode_person(tx.random), tx.some_customer()
    where = "id >= %s ORDER BY id LIMIT 4 FOR UPDATE SKIP LOCKED"
    for found in tx.find_rows("customer", where, first):
        tx.update_row("customer", *found, name=name)


def remove_customer(tx: ServerTransaction) -> None:
    if found := tx.pick_row("customer"):
        tx.delete_row("customer", *found)


def replace_customer(tx: ServerTransaction) -> None:
    """REPLACE, which deletes the row that has the key."""
    if found := tx.pick_row("customer"):
        number, old = found
        tx.changes.append(("customer", -1, [plain_value(value) for value in old]))
        new = [number, unicode_person(tx.random), unicode_city(tx.random), random_day(tx.random)]
        tx.insert_row("customer", new, "REPLACE")


def bring_customer_back(tx: ServerTransaction) -> None:
    """Under a number that was used before, or is: then the database refuses."""
    row = [
        tx.some_customer(),
        unicode_person(tx.random),
        unicode_city(tx.random),
        random_day(tx.random),
    ]
    tx.insert_row("customer", row)


def hesitate_about_customer(tx: ServerTransaction) -> None:
    tx.undo_activity(add_customer)
    move_customer(tx)


# -- the orders, in PostgreSQL -----------------------------------------------------------------


def place_order(tx: ServerTransaction) -> None:
    order = tx.insert_row("orders", [None, tx.some_customer(), random_moment(tx.random)])
    for _ in range(tx.random.randint(1, 5)):
        line = [order, tx.some_product(), tx.random.randint(1, 9)]
        # The same line twice is nothing special: a table is a bag of rows.
        for _ in range(2 if tx.random.random() < 0.1 else 1):
            tx.insert_row("item", line)


def cancel_order(tx: ServerTransaction) -> None:
    if found := tx.pick_row("orders"):
        tx.delete_row("orders", *found)
        for item in tx.find_rows("item", "order_id = %s FOR UPDATE", found[1][0]):
            tx.delete_row("item", *item)


def hand_over_order(tx: ServerTransaction) -> None:
    if found := tx.pick_row("orders"):
        tx.update_row(
            "orders", *found, customer_id=tx.some_customer(), placed_at=random_moment(tx.random)
        )


def change_quantity(tx: ServerTransaction) -> None:
    if found := tx.pick_row("item", "order_id"):
        tx.update_row("item", *found, quantity=tx.random.randint(1, 9))


def swap_product(tx: ServerTransaction) -> None:
    if found := tx.pick_row("item", "order_id"):
        tx.update_row("item", *found, product_id=tx.some_product())


def hesitate_about_order(tx: ServerTransaction) -> None:
    tx.undo_activity(place_order)
    place_order(tx)


def import_orders(tx: ServerTransaction) -> None:
    for _ in range(tx.sizes["import"]):
        place_order(tx)


CRM: dict[Activity, int] = {
    move_customer: 5,
    rename_household: 4,
    add_customer: 3,
    replace_customer: 2,
    hesitate_about_customer: 2,
    bring_customer_back: 1,
    remove_customer: 1,
}
DESK: dict[Activity, int] = {
    place_order: 5,
    change_quantity: 4,
    cancel_order: 3,
    hand_over_order: 3,
    swap_product: 3,
    hesitate_about_order: 1,
}

ROLES: dict[str, WriterRole[ServerTransaction]] = {
    "crm": WriterRole("crm", 12, CRM),
    "hotline": WriterRole("crm", 8, CRM),
    "desk": WriterRole("shop", 25, DESK),
    "till": WriterRole("shop", 25, DESK),
    "import": WriterRole("shop", 5, DESK, import_orders, 4.0),
}


# -- sessions ----------------------------------------------------------------------------------


class ServerSession:
    """One connection to a server."""

    def __init__(self, start: WriterStart, connection: Any, dialect: ServerDialect) -> None:
        self._start = start
        self._connection = connection
        self._dialect = dialect

    def run_transaction(self, activity: Activity, keep: bool) -> tuple[int, list[Change]] | None:
        with self._connection.cursor() as cursor:
            tx = ServerTransaction(cursor, self._dialect, self._start.random, self._start.sizes)
            try:
                activity(tx)
                number = tx.next_number()
                if keep:
                    self._connection.commit()
                    return number, tx.changes
            except self._connection.Error as error:
                if not _is_refusal(error):
                    raise
            self._connection.rollback()
            return None

    def close(self) -> None:
        self._connection.close()


def _is_refusal(error: Exception) -> bool:
    """Whether the database would not, for what others do; anything else is a mistake here."""
    state, number = getattr(error, "sqlstate", None), error.args[0] if error.args else None
    return state in ("40P01", "23505") or number in (1062, 1205, 1213)


def open_postgres(target: str) -> Any:
    import psycopg

    return psycopg.connect(target, password=os.environ[PASSWORD])


def open_mariadb(target: str) -> Any:
    import pymysql

    place = urlsplit(target)
    return pymysql.connect(
        host=place.hostname,
        port=place.port or 0,
        user=place.username,
        password=os.environ[PASSWORD],
        database=place.path.strip("/"),
        charset="utf8mb4",
        # A lock is on rows that were found, not on where others could be.
        init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )


def open_session(start: WriterStart) -> ServerSession:
    if start.target.startswith("postgresql:"):
        # An item has no key, so a row is found by where it lies.
        return ServerSession(
            start, open_postgres(start.target), ServerDialect("ctid::text", "ctid = %s::tid")
        )
    return ServerSession(start, open_mariadb(start.target), ServerDialect("id", "id = %s"))


if __name__ == "__main__":
    run_writer(ROLES, open_session)
