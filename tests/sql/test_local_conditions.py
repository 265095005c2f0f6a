"""What a local condition hides is asked of nobody: conditions come before lookups, in reports too.

Each view joins; the changes are hidden by a condition over one relation, in WHERE, in the ON of an
outer join, below an aggregate and inside EXISTS. The batch then has no lookup at all. The last
change is not hidden, so that the count is one that can be another.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.sql.construct_events import (
    FIRST,
    ORDERS,
    TICKETS,
    add_row,
    order_row,
    set_row,
    take_row,
    ticket_row,
)
from tests.sql.relation_history import RelationHistory
from tests.sql.report_project import ReportProject

VIEWS = {
    "joined": "SELECT o.id, t.id AS ticket FROM shop.orders o JOIN crm.tickets t "
    "ON t.customer = o.customer WHERE o.kind < 5 AND t.level < 5",
    "outer_joined": "SELECT o.id, t.id AS ticket FROM shop.orders o LEFT JOIN crm.tickets t "
    "ON t.customer = o.customer AND t.level < 5 WHERE o.kind < 5",
    "summed": "SELECT c.name, sum(o.price) AS price, max(t.level) AS level FROM shop.orders o "
    "JOIN crm.customers c ON c.customer = o.customer LEFT JOIN (SELECT * FROM crm.tickets "
    "WHERE level < 5) t ON t.customer = c.customer WHERE o.kind < 5 GROUP BY c.name",
    "existing": "SELECT o.id FROM shop.orders o WHERE o.kind < 5 AND EXISTS "
    "(SELECT 1 FROM crm.tickets t WHERE t.customer = o.customer AND t.level < 5)",
}


def test_what_a_local_condition_hides_costs_no_lookup(spark: SparkSession, memory: Path) -> None:
    history = RelationHistory(memory)
    project = ReportProject(memory, VIEWS, spark)
    for transaction in FIRST:
        history.apply_transaction(transaction)
    project.load_views()
    assert not project.refused
    hidden = [
        (add_row(ORDERS, order_row(30, 1, 9, "4.00")),),
        (add_row(TICKETS, ticket_row(30, 1, 1, 9)),),
        (set_row(ORDERS, 30, order_row(30, 2, 8, "5.00")),),
        (take_row(TICKETS, 30),),
    ]
    project.maintain_batch(history, hidden, [True] * len(hidden))
    assert sum(sum(batch.lookups.values()) for batch in project.observer.batches) == 0
    shown = [(set_row(ORDERS, 30, order_row(30, 1, 1, "5.00")),)]
    project.maintain_batch(history, shown, [True])
    assert sum(sum(batch.lookups.values()) for batch in project.observer.batches) > 0
