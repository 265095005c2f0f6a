"""The events of the matrix: everything that can happen to the tables below a construct.

They are transactions in one long history over one small state, in batches; each has the name of
what it shows. The first batch is there when the views are loaded. Rows are small, so that every
construct meets matches, misses, NULLs and duplicates.
"""

from __future__ import annotations

import datetime
from decimal import Decimal

from tests.sql.relation_history import Row, RowChange, Transaction

ORDERS, VISITS = "shop.orders", "shop.visits"
TICKETS, CUSTOMERS = "crm.tickets", "crm.customers"


def day_of(number: int) -> datetime.date:
    return datetime.date(2024, 1, number)


def order_row(
    key: int, customer: int | None, kind: int | None, price: str | None, note: str | None = "u"
) -> Row:
    weight = None if kind is None else kind * 0.25
    money = None if price is None else Decimal(price)
    return (key, customer, kind, weight, note, day_of(key % 9 + 1), money)


def ticket_row(key: int, customer: int | None, kind: int | None, level: int | None) -> Row:
    cost = None if level is None else Decimal(level).scaleb(-1)
    return (key, customer, kind, level, f"t{kind}", day_of(key % 7 + 1), cost)


def add_row(relation: str, row: Row, place: int | None = None) -> RowChange:
    return RowChange(relation, row[0] if place is None else place, row, is_new=True)


def set_row(relation: str, key: int, row: Row) -> RowChange:
    return RowChange(relation, key, row)


def take_row(relation: str, key: int) -> RowChange:
    return RowChange(relation, key, None)


FIRST: tuple[Transaction, ...] = (
    (
        add_row(ORDERS, order_row(1, 1, 1, "10.00")),
        add_row(ORDERS, order_row(2, 1, 2, "5.50", "v")),
        add_row(ORDERS, order_row(3, 2, 1, "7.25", None)),
        add_row(ORDERS, order_row(4, None, 1, None)),
        add_row(ORDERS, order_row(5, 7, None, "3.00", "u_1")),
        add_row(VISITS, (1, 3), 1),
        add_row(VISITS, (1, 3), 2),
        add_row(VISITS, (None, 2), 3),
    ),
    (
        add_row(TICKETS, ticket_row(1, 1, 1, 3)),
        add_row(TICKETS, ticket_row(2, 1, 2, 2)),
        add_row(TICKETS, ticket_row(3, None, 1, 1)),
        add_row(CUSTOMERS, (1, "ann", 1)),
        add_row(CUSTOMERS, (2, "bob", 2)),
        add_row(CUSTOMERS, (3, None, 3)),
    ),
)

Event = tuple[str, Transaction]

BATCHES: tuple[tuple[Event, ...], ...] = (
    (
        ("insert", (add_row(ORDERS, order_row(6, 2, 2, "1.00")),)),
        ("insert that matches", (add_row(TICKETS, ticket_row(4, 2, 1, 2)),)),
        ("duplicate", (add_row(VISITS, (1, 3), 4), add_row(VISITS, (2, 2), 5))),
        ("update", (set_row(ORDERS, 2, order_row(2, 1, 1, "6.50", "w")),)),
        ("update of the dimension", (set_row(CUSTOMERS, 2, (2, "bobby", 2)),)),
        ("delete", (take_row(TICKETS, 2),)),
        ("last match goes", (take_row(TICKETS, 4),)),
    ),
    (
        ("extremum removed", (take_row(ORDERS, 1),)),
        ("key update", (set_row(ORDERS, 3, order_row(9, 2, 1, "7.25", None)),)),
        ("key update of the dimension", (set_row(CUSTOMERS, 3, (7, "eve", 3)),)),
        ("NULL", (set_row(ORDERS, 6, order_row(6, None, None, None, None)),)),
        ("NULL and back", (set_row(TICKETS, 3, ticket_row(3, 2, 2, None)),)),
        (
            "several relations in one transaction",
            (
                add_row(ORDERS, order_row(10, 3, 3, "2.00", "x")),
                take_row(VISITS, 1),
                add_row(VISITS, (3, 1), 6),
            ),
        ),
        (
            "the other source, too",
            (
                add_row(TICKETS, ticket_row(5, 3, 3, 1)),
                add_row(CUSTOMERS, (3, "dan", None)),
                take_row(CUSTOMERS, 7),
            ),
        ),
    ),
    (
        ("group emptied", (take_row(ORDERS, 2), take_row(ORDERS, 4), take_row(ORDERS, 9))),
        ("group back", (add_row(ORDERS, order_row(2, 1, 1, "6.50", "w")),)),
        ("row there and back", (set_row(TICKETS, 5, ticket_row(5, 1, 3, 1)),)),
        ("row there and back again", (set_row(TICKETS, 5, ticket_row(5, 3, 3, 1)),)),
        (
            "all at once",
            (
                take_row(ORDERS, 10),
                add_row(ORDERS, order_row(10, 3, 3, "2.00", "x")),
                set_row(ORDERS, 5, order_row(5, 1, 2, "9.99", "u")),
            ),
        ),
    ),
)

CRASHES: tuple[tuple[Event, ...], ...] = (
    (
        ("crash after the plan", (add_row(ORDERS, order_row(20, 1, 1, "4.00")),)),
        ("crash after the plan, the other source", (add_row(TICKETS, ticket_row(20, 1, 1, 9)),)),
    ),
    (
        ("crash before the record", (set_row(ORDERS, 20, order_row(20, 2, 2, "4.00")),)),
        ("crash before the record, the other source", (take_row(TICKETS, 20),)),
    ),
    (("crash after the record", (take_row(ORDERS, 20),)),),
)

EMPTIED: tuple[tuple[Event, ...], ...] = (
    (
        ("table emptied", tuple(take_row(VISITS, row) for row in (2, 3, 4, 5, 6))),
        ("dimension emptied", tuple(take_row(CUSTOMERS, key) for key in (1, 2, 3))),
        ("both back", (add_row(CUSTOMERS, (1, "ann", 1)), add_row(CUSTOMERS, (2, "bob", 2)))),
        ("visits back", (add_row(VISITS, (1, 3), 7), add_row(VISITS, (1, 3), 8))),
    ),
)
