"""The writers of the demo's PostgreSQL and MariaDB databases; `paced_writer` says what a writer is.

Several write to one database at the same time. Rows are locked before they are read, so what the
journal says of the old row is what the statement found. The number in the ledger is taken last,
from a row that stays locked until the commit: numbers follow the order of the commits. Where the
database refuses (a deadlock, a key that somebody else was faster to use) everything is rolled back.

The password comes from the environment.
"""

from __future__ import annotations

import datetime
import os
from random import Random
from typing import Any
from urllib.parse import urlsplit

from viewkeeper.demo.writers.paced_writer import (
    Change,
    ForeignNumbers,
    WriterRole,
    WriterStart,
    run_writer,
)
from viewkeeper.demo.writers.sql_writer import (
    Activity,
    SqlDialect,
    SqlTransaction,
    add_customer,
    cancel_order,
    change_quantity,
    import_orders,
    move_customer,
    place_order,
    remove_customer,
    swap_product,
)
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


def dialect_of(handle: str, is_row: str) -> SqlDialect:
    """The dialect of a server, whose rows are read and compared by this."""
    return SqlDialect(
        mark="%s",
        handle=handle,
        is_row=is_row,
        unset="DEFAULT",
        person=unicode_person,
        city=unicode_city,
        moment=random_moment,
        lock=" FOR UPDATE",
        skip=" FOR UPDATE SKIP LOCKED",
        birthday=random_day,
    )


def rename_household(tx: SqlTransaction) -> None:
    """Some customers, one after the other in the table, get one name."""
    name, first = unicode_person(tx.random), tx.numbers.some_customer()
    where = f"id >= ? ORDER BY id LIMIT 4{tx.dialect.skip}"
    for found in tx.find_rows("customer", where, first):
        tx.update_row("customer", *found, name=name)


def replace_customer(tx: SqlTransaction) -> None:
    """REPLACE, which deletes the row that has the key."""
    if found := tx.pick_row("customer"):
        new = tx.dialect.new_customer(found[0], tx.random)
        tx.replace_row("customer", new, "id = ?", found[0])


def bring_customer_back(tx: SqlTransaction) -> None:
    """Under a number that was used before, or is: then the database refuses."""
    tx.insert_row("customer", tx.dialect.new_customer(tx.numbers.some_customer(), tx.random))


def hesitate_about_customer(tx: SqlTransaction) -> None:
    tx.undo_activity(add_customer)
    move_customer(tx)


def hand_over_order(tx: SqlTransaction) -> None:
    if found := tx.pick_row("orders"):
        tx.update_row(
            "orders",
            *found,
            customer_id=tx.numbers.some_customer(),
            placed_at=random_moment(tx.random),
        )


def hesitate_about_order(tx: SqlTransaction) -> None:
    tx.undo_activity(place_order)
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

ROLES: dict[str, WriterRole[SqlTransaction]] = {
    "crm": WriterRole("crm", 12, CRM),
    "hotline": WriterRole("crm", 8, CRM),
    "desk": WriterRole("shop", 25, DESK),
    "till": WriterRole("shop", 25, DESK),
    "import": WriterRole("shop", 5, DESK, import_orders, 4.0),
}


class ServerSession:
    """One connection to a server."""

    def __init__(self, start: WriterStart, connection: Any, dialect: SqlDialect) -> None:
        self._numbers = ForeignNumbers(start.random, start.sizes)
        self._connection = connection
        self._dialect = dialect

    def run_transaction(self, activity: Activity, keep: bool) -> tuple[int, list[Change]] | None:
        with self._connection.cursor() as cursor:
            tx = SqlTransaction(cursor, self._dialect, self._numbers)
            try:
                activity(tx)
                number = _next_number(cursor)
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


def _next_number(cursor: Any) -> int:
    """The next number of the ledger; no other transaction gets it before the commit."""
    cursor.execute("UPDATE counter SET n = n + 1")
    cursor.execute("SELECT n FROM counter")
    (number,) = cursor.fetchone()
    cursor.execute("INSERT INTO ledger VALUES (%s)", (number,))
    return int(number)


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
            start, open_postgres(start.target), dialect_of("ctid::text", "ctid = %s::tid")
        )
    return ServerSession(start, open_mariadb(start.target), dialect_of("id", "id = %s"))


if __name__ == "__main__":
    run_writer(ROLES, open_session)
