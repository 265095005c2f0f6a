"""What is refused in a view: its reason, the way out, and where the refusal points.

The day on which one is not refused any more, the matrix says so.
"""

from __future__ import annotations

from tests.sql.construct_forms import RefusedConstruct
from tests.sql.quantified_constructs import REFUSED_QUANTIFIED

REFUSED = (
    RefusedConstruct(
        "ORDER BY of a view",
        "SELECT o.id FROM shop.orders o ORDER BY o.id",
        "ORDER BY",
        "a view has no order; ask for one when reading it",
        "ORDER BY o.id",
    ),
    RefusedConstruct(
        "LIMIT without an order",
        "SELECT o.id FROM shop.orders o LIMIT 3",
        "LIMIT",
        "say which rows come first by ORDER BY",
        "LIMIT 3",
    ),
    RefusedConstruct(
        "lists in no order",
        "SELECT o.kind, listagg(o.note, ',') AS notes FROM shop.orders o GROUP BY o.kind",
        "listagg",
        "add the listed value to the ORDER BY of WITHIN GROUP, so that its order is complete",
        "listagg(",
    ),
    RefusedConstruct(
        "a recursive WITH",
        "WITH RECURSIVE r AS (SELECT o.id FROM shop.orders o UNION ALL SELECT r.id FROM r) "
        "SELECT r.id FROM r",
        "recursive",
        "write the levels out, or keep them in a source",
        "RECURSIVE",
    ),
    RefusedConstruct(
        "the present moment",
        "SELECT o.id, now() AS at FROM shop.orders o",
        "the present moment",
        "say how exact it is: date_trunc('minute', now()), date_trunc('hour', now()), "
        "current_date()",
        "now()",
    ),
    RefusedConstruct(
        "functions of chance",
        "SELECT o.id, rand() AS r FROM shop.orders o",
        "rand",
        "compute it when reading the view",
        "rand()",
    ),
    RefusedConstruct(
        "aggregates that depend on an order",
        "SELECT o.kind, first(o.note) AS note FROM shop.orders o GROUP BY o.kind",
        "first",
        "it depends on an order that rows do not have; use min(), max() or max_by()",
        "first(",
    ),
    RefusedConstruct(
        "approximate aggregates",
        "SELECT approx_count_distinct(o.note) AS n FROM shop.orders o",
        "approx",
        "count(DISTINCT ...) is exact",
        "approx_count_distinct(",
    ),
    RefusedConstruct(
        "OR in the ON of an outer join",
        "SELECT o.id, t.id AS ticket FROM shop.orders o LEFT JOIN crm.tickets t "
        "ON t.customer = o.customer OR t.kind = o.kind",
        "an outer join without an equality",
        "join on an equality; an OR in the condition can be written as a UNION of two queries",
        "LEFT JOIN",
    ),
    RefusedConstruct(
        "correlation without an equality",
        "SELECT o.id FROM shop.orders o WHERE NOT EXISTS "
        "(SELECT 1 FROM crm.tickets t WHERE t.level > o.kind)",
        "NOT EXISTS or NOT IN without an equality",
        "join on an equality; an OR in the condition can be written as a UNION of two queries",
        "SELECT o.id",
    ),
    RefusedConstruct(
        "NOT IN as a column, or of several columns, that may be NULL",
        "SELECT o.id, o.customer NOT IN (SELECT t.customer FROM crm.tickets t) AS missing "
        "FROM shop.orders o",
        "NOT IN",
        "write NOT EXISTS (SELECT ... WHERE inner = outer), or declare both columns NOT NULL",
        "NOT IN",
    ),
    RefusedConstruct(
        "a list in a window",
        "SELECT o.id, collect_list(o.note) OVER (PARTITION BY o.kind ORDER BY o.day) AS "
        "notes FROM shop.orders o",
        "the window function collect_list()",
        "compute it when reading",
        "collect_list(",
    ),
    RefusedConstruct(
        "a window in a subquery of the select list",
        "SELECT c.customer, (SELECT max(q.n) FROM (SELECT row_number() OVER (PARTITION BY "
        "o.kind ORDER BY o.day) AS n FROM shop.orders o WHERE o.customer = c.customer) q) "
        "AS n FROM crm.customers c",
        "a window function in a subquery of this form",
        "put the query with the window into WITH, or into FROM as a derived table",
        "(SELECT max(q.n)",
    ),
    RefusedConstruct(
        "a scalar subquery in the ON of a FULL or RIGHT join",
        "SELECT o.id, t.id AS ticket FROM shop.orders o FULL JOIN crm.tickets t ON "
        "t.customer = o.customer AND t.level > (SELECT min(v.level) FROM shop.visits v)",
        "a scalar subquery in the ON of such a join",
        "write it as a LEFT JOIN, or compare in a derived table",
        "FULL JOIN",
    ),
    RefusedConstruct(
        "a function that only Spark evaluates, over both sides of an outer ON",
        "SELECT o.id, t.id AS ticket FROM shop.orders o LEFT JOIN crm.tickets t ON "
        "t.customer = o.customer AND levenshtein(t.note, o.note) < 2",
        "a condition over both sides of an outer join",
        "compute its parts in a derived table on each side",
        "levenshtein(t.note, o.note) < 2",
    ),
    RefusedConstruct(
        "range above 10,000",
        "SELECT o.id, r.id AS n FROM shop.orders o JOIN range(20000) r ON r.id = o.kind",
        "gives more than 10,000 rows",
        "keep them in a table of a source",
        "range(20000)",
    ),
    RefusedConstruct(
        "LIMIT in a LATERAL subquery",
        "SELECT c.customer, x.id FROM crm.customers c, LATERAL (SELECT o.id FROM "
        "shop.orders o WHERE o.customer = c.customer ORDER BY o.day LIMIT 1) x",
        "LIMIT in a correlated subquery",
        "number the rows of each key by row_number() in a derived table, and join the first ones",
        "FROM crm.customers c, LATERAL",
    ),
    *REFUSED_QUANTIFIED,
)
