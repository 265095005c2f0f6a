"""Constructs that compare rows with values of scalar subqueries."""

from __future__ import annotations

from tests.sql.construct_forms import RESULT, Construct

SCALARS = "Scalar subqueries"
SOLD = "SELECT o.customer, sum(o.price) AS price FROM shop.orders o GROUP BY o.customer"

SCALAR_CONSTRUCTS = (
    Construct(
        SCALARS,
        "correlated, with the count bug",
        "SELECT c.customer, (SELECT count(*) FROM shop.orders o "
        "WHERE o.customer = c.customer) AS n FROM crm.customers c",
        besides=("the groups of the subquery",),
    ),
    Construct(
        SCALARS,
        "correlated, in WHERE and CASE",
        "SELECT o.id, CASE WHEN o.kind > 1 THEN (SELECT min(t.cost) FROM crm.tickets t "
        "WHERE t.customer = o.customer) END AS cost FROM shop.orders o WHERE o.kind <= "
        "(SELECT max(t.level) FROM crm.tickets t WHERE t.customer = o.customer)",
        besides=("the groups of one subquery", "the groups of the other"),
    ),
    Construct(
        SCALARS,
        "correlated, with HAVING",
        "SELECT c.customer, (SELECT sum(o.price) FROM shop.orders o WHERE o.customer = c.customer "
        "HAVING count(*) > 1) AS price FROM crm.customers c",
        besides=("the groups of the subquery", "the values that are asked for"),
    ),
    Construct(
        SCALARS,
        "correlated, one row by its key",
        "SELECT o.id, (SELECT c.name FROM crm.customers c WHERE c.customer = o.customer) AS name "
        "FROM shop.orders o",
    ),
    Construct(
        SCALARS,
        "correlated, one row that no key says to be one",
        "SELECT t.id, (SELECT o.note FROM shop.orders o WHERE o.id = t.id AND o.kind < 99) AS note "
        "FROM crm.tickets t",
    ),
    Construct(
        SCALARS,
        "compared with every row",
        "SELECT o.id, o.price FROM shop.orders o WHERE o.price > (SELECT avg(p.price) "
        "FROM shop.orders p) AND o.kind < 5",
        besides=("the value", "the rows and columns that are compared with it"),
    ),
    Construct(
        SCALARS,
        "two values, over a join",
        "SELECT o.id, c.name FROM shop.orders o LEFT JOIN crm.customers c "
        "ON c.customer = o.customer WHERE o.kind >= (SELECT min(t.level) FROM crm.tickets t) "
        "AND c.rank <= (SELECT max(v.level) FROM shop.visits v)",
        besides=(
            "one value",
            "the rows and columns that are compared with it",
            "the other value",
            "those that are compared with that",
        ),
    ),
    Construct(
        SCALARS,
        "in HAVING",
        "SELECT o.kind, sum(o.price) AS price FROM shop.orders o GROUP BY o.kind "
        "HAVING sum(o.price) > (SELECT avg(t.cost) FROM crm.tickets t)",
        besides=("the value", "the groups"),
    ),
    Construct(
        SCALARS,
        "the rows with the largest value",
        "WITH sold AS (SELECT o.customer, sum(o.price) AS price FROM shop.orders o "
        "GROUP BY o.customer) SELECT c.name, s.price FROM crm.customers c JOIN sold s "
        "ON s.customer = c.customer WHERE s.price = (SELECT max(x.price) FROM sold x)",
        besides=("the groups of WITH", "their values alone", "the largest of them"),
    ),
    Construct(
        SCALARS,
        "a share of a total",
        "SELECT o.kind, sum(o.price) * 100 / (SELECT sum(p.price) + 1000 FROM shop.orders p) "
        "AS share FROM shop.orders o GROUP BY o.kind",
        besides=("the value", "the groups"),
    ),
    Construct(
        SCALARS,
        "in CASE and in a group",
        "SELECT CASE WHEN t.cost > (SELECT avg(u.cost) FROM crm.tickets u) THEN 'dear' "
        "ELSE 'cheap' END AS label, count(*) AS n, max(t.level) - (SELECT min(v.level) "
        "FROM shop.visits v) AS rest FROM crm.tickets t GROUP BY 1",
        besides=(
            "one value",
            "the rows and columns that are compared with it",
            "the other value",
            "the groups",
        ),
    ),
    Construct(
        SCALARS,
        "below an aggregate",
        "SELECT o.kind, count(*) AS n FROM shop.orders o WHERE o.price >= (SELECT avg(p.price) "
        "FROM shop.orders p) AND NOT EXISTS (SELECT 1 FROM crm.tickets t WHERE t.id = o.id) "
        "GROUP BY o.kind",
        RESULT,
        besides=("the value", "the rows and columns that are compared with it"),
    ),
    Construct(
        SCALARS,
        "nested, below IN",
        "SELECT o.id FROM shop.orders o WHERE o.customer IN (SELECT t.customer FROM crm.tickets t "
        "WHERE t.cost > (SELECT avg(u.cost) FROM crm.tickets u "
        "WHERE u.level < (SELECT max(v.level) FROM shop.visits v)))",
        besides=(
            "the inner value",
            "the rows and columns that are compared with it",
            "the outer value",
            "those that are compared with that",
        ),
    ),
    Construct(
        SCALARS,
        "one row, without an aggregate",
        "SELECT o.id, (SELECT c.name FROM crm.customers c WHERE c.customer = 2) AS name "
        "FROM shop.orders o WHERE o.kind > 1",
        besides=(
            "the different values, with their counts",
            "the value",
            "the rows and columns that stand beside it",
        ),
    ),
    Construct(
        SCALARS,
        "of a view",
        "SELECT s.customer, s.price FROM m_sold s "
        "WHERE s.price > (SELECT avg(x.price) FROM m_sold x)",
        parents=(("m_sold", SOLD),),
        besides=("the value",),
    ),
)
