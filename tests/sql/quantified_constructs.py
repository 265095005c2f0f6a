"""Constructs that compare rows with all values of a subquery, or with any."""

from __future__ import annotations

from tests.sql.construct_forms import RESULT, Construct, RefusedConstruct

QUANTIFIED = "Quantified comparisons"
COUNTS = "how many rows and NULLs there are"

QUANTIFIED_CONSTRUCTS = (
    Construct(
        QUANTIFIED,
        "larger than all: > ALL",
        "SELECT o.id FROM shop.orders o WHERE o.kind > ALL (SELECT v.level FROM shop.visits v)",
        besides=(COUNTS, "the largest value", "the rows and columns that are compared with them"),
    ),
    Construct(
        QUANTIFIED,
        "correlated: >= ALL",
        "SELECT o.id FROM shop.orders o WHERE o.kind >= ALL (SELECT t.level FROM crm.tickets t "
        "WHERE t.customer = o.customer)",
    ),
    Construct(
        QUANTIFIED,
        "smaller than any: < ANY",
        "SELECT o.id FROM shop.orders o WHERE o.price < ANY (SELECT t.cost FROM crm.tickets t)",
        besides=("the largest value", "the rows and columns that are compared with it"),
    ),
    Construct(
        QUANTIFIED,
        "correlated: < SOME",
        "SELECT o.id FROM shop.orders o WHERE o.price < SOME (SELECT t.cost FROM crm.tickets t "
        "WHERE t.customer = o.customer)",
    ),
    Construct(
        QUANTIFIED,
        "one of them: = ANY",
        "SELECT o.id FROM shop.orders o WHERE o.customer = ANY "
        "(SELECT t.customer FROM crm.tickets t WHERE t.level > 1)",
    ),
    Construct(
        QUANTIFIED,
        "rows: = ANY",
        "SELECT o.id FROM shop.orders o WHERE (o.customer, o.kind) = ANY "
        "(SELECT t.customer, t.kind FROM crm.tickets t)",
    ),
    Construct(
        QUANTIFIED,
        "none of them: <> ALL",
        "SELECT o.id FROM shop.orders o WHERE o.customer <> ALL "
        "(SELECT v.customer FROM shop.visits v WHERE v.level > 1)",
        besides=("whether the subquery has a row, and a NULL",),
    ),
    Construct(
        QUANTIFIED,
        "= ALL, and <> ANY",
        "SELECT o.id FROM shop.orders o WHERE o.kind = ALL (SELECT v.level FROM shop.visits v) "
        "OR o.customer <> ANY (SELECT t.customer FROM crm.tickets t)",
        besides=(
            f"for one, {COUNTS}",
            "the smallest value",
            "the largest value",
            f"for the other, {COUNTS}",
            "the smallest value",
            "the largest value",
            "the rows and columns that are compared with them",
        ),
    ),
    Construct(
        QUANTIFIED,
        "comparisons as values",
        "SELECT o.id, o.kind > ALL (SELECT t.level FROM crm.tickets t) AS above, "
        "o.customer = ANY (SELECT v.customer FROM shop.visits v) AS came FROM shop.orders o",
        besides=(
            f"for one, {COUNTS}",
            "the largest value",
            f"for the other, {COUNTS}",
            "the rows that stand beside them",
        ),
    ),
    Construct(
        QUANTIFIED,
        "comparisons as values, correlated",
        "SELECT o.id, o.kind <= ANY (SELECT t.level FROM crm.tickets t "
        "WHERE t.customer = o.customer) AS some, o.kind <> ALL (SELECT v.level "
        "FROM shop.visits v WHERE v.customer = o.customer) AS none FROM shop.orders o",
    ),
    Construct(
        QUANTIFIED,
        "under NOT, beside OR",
        "SELECT t.id FROM crm.tickets t WHERE NOT t.level >= ANY (SELECT o.kind "
        "FROM shop.orders o WHERE o.customer = t.customer) OR NOT t.kind = ANY "
        "(SELECT v.level FROM shop.visits v)",
        besides=(COUNTS, "the rows that stand beside them"),
    ),
    Construct(
        QUANTIFIED,
        "ALL in HAVING",
        "SELECT o.kind, sum(o.price) AS price FROM shop.orders o GROUP BY o.kind "
        "HAVING sum(o.price) > ALL (SELECT t.cost FROM crm.tickets t WHERE t.level > 1)",
        besides=(COUNTS, "the largest value", "the groups"),
    ),
    Construct(
        QUANTIFIED,
        "ALL in CASE and in a group",
        "SELECT CASE WHEN t.cost > ALL (SELECT o.price FROM shop.orders o) THEN 'dear' "
        "ELSE 'cheap' END AS label, count(*) AS n FROM crm.tickets t GROUP BY 1",
        RESULT,
        besides=(COUNTS, "the largest value", "the rows and columns that are compared with them"),
    ),
    Construct(
        QUANTIFIED,
        "ANY in ON",
        "SELECT o.id, t.id AS ticket FROM shop.orders o LEFT JOIN crm.tickets t "
        "ON t.customer = o.customer AND o.kind <= ANY (SELECT v.level FROM shop.visits v "
        "WHERE v.customer = o.customer)",
    ),
    Construct(
        QUANTIFIED,
        "ALL, over groups",
        "SELECT c.customer, c.rank FROM crm.customers c WHERE c.rank >= ALL "
        "(SELECT count(*) FROM shop.orders o GROUP BY o.customer)",
        besides=(
            "the groups of the subquery",
            COUNTS,
            "the largest value",
            "the rows and columns that are compared with them",
        ),
    ),
    Construct(
        QUANTIFIED,
        "ANY, over a UNION",
        "SELECT o.id FROM shop.orders o WHERE o.kind < ANY (SELECT t.level FROM crm.tickets t "
        "UNION ALL SELECT v.level FROM shop.visits v)",
        besides=(
            "the largest value",
            "the rows and columns that are compared with it",
        ),
    ),
    Construct(
        QUANTIFIED,
        "ALL, over the first rows",
        "SELECT t.id FROM crm.tickets t WHERE t.cost > ALL "
        "(SELECT o.price FROM shop.orders o ORDER BY o.day LIMIT 2)",
        besides=(COUNTS, "the largest value", "the rows and columns that are compared with them"),
    ),
    Construct(
        QUANTIFIED,
        "ALL within ANY",
        "SELECT o.id FROM shop.orders o WHERE o.kind <= ANY (SELECT t.level FROM crm.tickets t "
        "WHERE t.customer = o.customer AND t.cost < ALL (SELECT v.level FROM shop.visits v))",
        besides=(COUNTS, "the smallest value", "the rows and columns that are compared with them"),
    ),
)

REFUSED_QUANTIFIED = (
    RefusedConstruct(
        "a quantified comparison of rows, but for = ANY and <> ALL in a condition",
        "SELECT o.id FROM shop.orders o WHERE (o.customer, o.kind) > ANY "
        "(SELECT t.customer, t.kind FROM crm.tickets t)",
        "such a quantified comparison of rows",
        "compare the columns one by one in EXISTS, or use = ANY or <> ALL in a condition",
        "ANY (",
    ),
    RefusedConstruct(
        "a quantified comparison of a text with numbers",
        "SELECT o.id FROM shop.orders o WHERE o.note > ALL (SELECT t.level FROM crm.tickets t)",
        "types that have no order in common",
        "CAST the left side or the column of the subquery, so that both have one type",
        "ALL (",
    ),
    RefusedConstruct(
        "a correlated quantified comparison beside groups",
        "SELECT o.customer, max(o.kind) > ALL (SELECT t.level FROM crm.tickets t "
        "WHERE t.customer = o.customer) AS f FROM shop.orders o GROUP BY o.customer",
        "such a comparison beside groups",
        "group in a derived table, and compare outside of it",
        "ALL (",
    ),
    RefusedConstruct(
        "a quantified comparison whose correlation is no equality",
        "SELECT o.id FROM shop.orders o WHERE o.price > ALL (SELECT t.cost FROM crm.tickets t "
        "WHERE t.level > o.kind)",
        "without an equality",
        "join on an equality; an OR in the condition can be written as a UNION of two queries",
        "SELECT o.id",
    ),
    RefusedConstruct(
        "LIKE ANY of a subquery",
        "SELECT o.id FROM shop.orders o WHERE o.note LIKE ANY (SELECT c.name FROM crm.customers c)",
        "LIKE ANY (SELECT ...)",
        "write EXISTS or NOT EXISTS, with the comparison in the condition of the subquery",
        "ANY (",
    ),
)
