"""What can be written in a view: a table of constructs, each with an example and what it stores.

The matrix runs every example through every event of `construct_events`, and `docs/sql.md` is made
from this table, so what the page says is what was tried. What is refused is in
`refused_constructs`.
"""

from __future__ import annotations

from tests.sql.construct_forms import NOTHING, RESULT, Construct
from tests.sql.generator_constructs import GENERATOR_CONSTRUCTS
from tests.sql.quantified_constructs import QUANTIFIED_CONSTRUCTS
from tests.sql.scalar_constructs import SCALAR_CONSTRUCTS, SOLD
from tests.sql.window_constructs import WINDOW_CONSTRUCTS

JOINS, EXISTENCE, AGGREGATES = "Joins", "Existence", "Aggregates"
SETS, SHAPES, VALUES, VIEWS = "Sets", "Shapes of a query", "Values", "Views on views"

CONSTRUCTS: tuple[Construct, ...] = (
    Construct(
        JOINS,
        "inner join",
        "SELECT o.id, c.name FROM shop.orders o JOIN crm.customers c ON c.customer = o.customer",
    ),
    Construct(
        JOINS,
        "comma",
        "SELECT o.id, t.id AS ticket FROM shop.orders o, crm.tickets t "
        "WHERE o.customer = t.customer AND o.kind < t.level",
    ),
    Construct(
        JOINS,
        "left join",
        "SELECT o.id, c.name, c.rank FROM shop.orders o "
        "LEFT JOIN crm.customers c ON c.customer = o.customer",
    ),
    Construct(
        JOINS,
        "left join with more conditions",
        "SELECT o.id, t.id AS ticket FROM shop.orders o LEFT JOIN crm.tickets t "
        "ON t.customer = o.customer AND t.level > 1 AND t.day >= o.day",
    ),
    Construct(
        JOINS,
        "left join without a key",
        "SELECT o.id, v.level FROM shop.orders o LEFT JOIN shop.visits v "
        "ON v.customer = o.customer",
    ),
    Construct(
        JOINS,
        "chain of left joins",
        "SELECT o.id, t.level, c.name FROM shop.orders o "
        "LEFT JOIN crm.tickets t ON t.customer = o.customer "
        "LEFT JOIN crm.customers c ON c.customer = t.kind",
    ),
    Construct(
        JOINS,
        "chain of six left joins",
        "SELECT o.id, t.level, c.name, v.level AS visit, p.note, u.cost, d.name AS other "
        "FROM shop.orders o LEFT JOIN crm.tickets t ON t.customer = o.customer "
        "LEFT JOIN crm.customers c ON c.customer = t.kind "
        "LEFT JOIN shop.visits v ON v.customer = c.customer "
        "LEFT JOIN shop.orders p ON p.id = v.level LEFT JOIN crm.tickets u ON u.id = p.kind "
        "LEFT JOIN crm.customers d ON d.customer = u.customer",
    ),
    Construct(
        JOINS,
        "snowflake",
        "SELECT o.id, t.level, c.name, d.name AS other FROM shop.orders o "
        "LEFT JOIN crm.tickets t ON t.id = o.kind "
        "LEFT JOIN crm.customers c ON c.customer = t.customer "
        "LEFT JOIN crm.customers d ON d.customer = o.customer",
    ),
    Construct(
        JOINS,
        "left, then inner",
        "SELECT o.id, t.level, c.name FROM shop.orders o "
        "LEFT JOIN crm.tickets t ON t.customer = o.customer "
        "JOIN crm.customers c ON c.customer = o.kind",
    ),
    Construct(
        JOINS,
        "left, where nothing matches",
        "SELECT o.id FROM shop.orders o LEFT JOIN crm.tickets t ON t.customer = o.customer "
        "WHERE t.id IS NULL",
    ),
    Construct(
        JOINS,
        "self left join",
        "SELECT o.id, p.id AS other FROM shop.orders o LEFT JOIN shop.orders p "
        "ON p.customer = o.kind AND p.id <> o.id",
    ),
    Construct(
        JOINS,
        "right join",
        "SELECT o.id, c.customer, c.name FROM shop.orders o "
        "RIGHT JOIN crm.customers c ON c.customer = o.customer",
    ),
    Construct(
        JOINS,
        "full join",
        "SELECT o.id, t.id AS ticket FROM shop.orders o "
        "FULL JOIN crm.tickets t ON t.customer = o.customer",
    ),
    Construct(
        JOINS,
        "full join using",
        "SELECT customer, o.id, c.name FROM shop.orders o "
        "FULL JOIN crm.customers c USING (customer)",
    ),
    Construct(
        JOINS,
        "natural join",
        "SELECT customer, level, t.note FROM crm.tickets t NATURAL JOIN shop.visits v",
    ),
    Construct(
        JOINS,
        "null-safe join",
        "SELECT o.id, t.id AS ticket FROM shop.orders o JOIN crm.tickets t "
        "ON o.customer <=> t.customer",
    ),
    Construct(
        JOINS,
        "left semi join",
        "SELECT o.id, o.note FROM shop.orders o LEFT SEMI JOIN crm.tickets t "
        "ON t.customer = o.customer",
    ),
    Construct(
        JOINS,
        "left anti join",
        "SELECT o.id, o.note FROM shop.orders o LEFT ANTI JOIN crm.tickets t "
        "ON t.customer = o.customer AND t.level > 1",
    ),
    Construct(
        JOINS,
        "LATERAL subquery",
        "SELECT c.customer, x.n, x.price FROM crm.customers c, LATERAL (SELECT count(*) AS n, "
        "sum(o.price) AS price FROM shop.orders o WHERE o.customer = c.customer) x",
        besides=("the groups of the subquery", "the groups for each customer"),
    ),
    Construct(
        EXISTENCE,
        "EXISTS",
        "SELECT o.id FROM shop.orders o WHERE EXISTS "
        "(SELECT 1 FROM crm.tickets t WHERE t.customer = o.customer AND t.level >= o.kind)",
    ),
    Construct(
        EXISTENCE,
        "NOT EXISTS",
        "SELECT o.id FROM shop.orders o WHERE NOT EXISTS "
        "(SELECT 1 FROM shop.visits v WHERE v.customer = o.customer)",
    ),
    Construct(
        EXISTENCE,
        "IN",
        "SELECT o.id FROM shop.orders o WHERE o.customer IN "
        "(SELECT t.customer FROM crm.tickets t WHERE t.level > 1)",
    ),
    Construct(
        EXISTENCE,
        "NOT IN, over columns that are never NULL",
        "SELECT o.id FROM shop.orders o WHERE o.id NOT IN (SELECT t.id FROM crm.tickets t)",
    ),
    Construct(
        EXISTENCE,
        "under OR",
        "SELECT o.id FROM shop.orders o WHERE o.kind = 1 OR EXISTS "
        "(SELECT 1 FROM crm.tickets t WHERE t.customer = o.customer)",
    ),
    Construct(
        EXISTENCE,
        "in the select list",
        "SELECT o.id, EXISTS (SELECT 1 FROM crm.tickets t WHERE t.customer = o.customer) AS has "
        "FROM shop.orders o",
    ),
    Construct(
        EXISTENCE,
        "NOT IN, over columns that may be NULL",
        "SELECT o.id FROM shop.orders o "
        "WHERE o.customer NOT IN (SELECT v.customer FROM shop.visits v WHERE v.level > 1)",
        besides=("whether the subquery has a row, and a NULL",),
    ),
    Construct(
        EXISTENCE,
        "EXISTS without correlation",
        "SELECT o.id FROM shop.orders o "
        "WHERE EXISTS (SELECT 1 FROM crm.tickets t WHERE t.level > 3)",
        besides=("the number of its rows", "whether there is a row"),
    ),
    Construct(
        EXISTENCE,
        "a scalar subquery IN a subquery",
        "SELECT o.id FROM shop.orders o "
        "WHERE (SELECT max(t.level) FROM crm.tickets t) IN (SELECT v.level FROM shop.visits v)",
        besides=(
            "the value",
            "the rows that stand beside it",
            "the number of rows that are equal to it",
            "whether there is a row",
        ),
    ),
    *SCALAR_CONSTRUCTS,
    *QUANTIFIED_CONSTRUCTS,
    Construct(
        AGGREGATES,
        "count, sum and avg by group",
        "SELECT o.kind, count(*) AS n, count(o.note) AS notes, sum(o.price) AS price, "
        "sum(o.customer) AS customers, avg(o.price) AS mean, avg(o.weight) AS weight, "
        "sum(o.weight) AS total FROM shop.orders o GROUP BY o.kind",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "min and max",
        "SELECT o.kind, min(o.day) AS first, max(o.day) AS last, max(o.note) AS note, "
        "min(o.price) AS low, max(o.weight) AS heavy FROM shop.orders o GROUP BY o.kind",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "min and max over a join",
        "SELECT c.name, max(t.level) AS level, min(t.day) AS day FROM crm.tickets t "
        "JOIN crm.customers c ON c.customer = t.customer GROUP BY c.name",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "without GROUP BY",
        "SELECT count(*) AS n, sum(t.cost) AS cost, max(t.level) AS level FROM crm.tickets t "
        "WHERE t.level > 1",
        "one row",
    ),
    Construct(
        AGGREGATES,
        "over a left join",
        "SELECT c.customer, c.name, count(o.id) AS n, sum(o.price) AS price FROM crm.customers c "
        "LEFT JOIN shop.orders o ON o.customer = c.customer GROUP BY c.customer, c.name",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "group by what may be missing",
        "SELECT c.name, count(*) AS n FROM shop.orders o "
        "LEFT JOIN crm.customers c ON c.customer = o.customer GROUP BY c.name",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "HAVING",
        "SELECT o.kind, sum(o.price) AS price FROM shop.orders o GROUP BY o.kind "
        "HAVING count(*) > 1 AND max(o.day) IS NOT NULL",
        besides=("the groups",),
    ),
    Construct(
        AGGREGATES,
        "expressions over aggregates",
        "SELECT o.kind, coalesce(sum(o.price), 0) * 2 AS twice, count(*) - count(o.note) AS bare, "
        "CASE WHEN count(*) > 2 THEN 'many' ELSE 'few' END AS size "
        "FROM shop.orders o GROUP BY o.kind",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "FILTER",
        "SELECT o.kind, count(*) FILTER (WHERE o.weight > 0) AS heavy, "
        "sum(o.price) FILTER (WHERE o.note LIKE 'u%') AS price FROM shop.orders o GROUP BY o.kind",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "count_if, bool_and, bool_or",
        "SELECT o.kind, count_if(o.weight > 0) AS n, bool_and(o.weight > 0) AS every_one, "
        "bool_or(o.note = 'u') AS any_one FROM shop.orders o GROUP BY o.kind",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "DISTINCT inside a call",
        "SELECT o.kind, count(DISTINCT o.customer) AS customers, "
        "sum(DISTINCT o.customer) AS total, count(*) AS n FROM shop.orders o GROUP BY o.kind",
        RESULT,
        besides=("the different values of each group",),
    ),
    Construct(
        AGGREGATES,
        "variance and standard deviation",
        "SELECT o.kind, stddev(o.weight) AS spread, var_pop(o.customer) AS variance "
        "FROM shop.orders o GROUP BY o.kind",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "min_by, max_by",
        "SELECT o.kind, min_by(o.note, o.id) AS first, max_by(o.price, o.id) AS last "
        "FROM shop.orders o GROUP BY o.kind",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "correlation and covariance",
        "SELECT o.kind, corr(o.weight, o.customer) AS r, covar_pop(o.weight, o.customer) AS c, "
        "covar_samp(o.customer, o.weight) AS s FROM shop.orders o GROUP BY o.kind",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "by an expression, a position, ALL",
        "SELECT year(o.day) AS year, upper(o.note) AS note, count(*) AS n FROM shop.orders o "
        "GROUP BY ALL",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "ROLLUP",
        "SELECT o.kind, o.customer, count(*) AS n, sum(o.price) AS price FROM shop.orders o "
        "GROUP BY ROLLUP (o.kind, o.customer)",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "CUBE",
        "SELECT t.kind, t.level, count(*) AS n FROM crm.tickets t GROUP BY CUBE (t.kind, t.level)",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "GROUPING SETS",
        "SELECT t.kind, t.level, max(t.cost) AS cost FROM crm.tickets t "
        "GROUP BY GROUPING SETS ((t.kind), (t.level), ())",
        RESULT,
    ),
    Construct(
        AGGREGATES,
        "grouping(), grouping_id()",
        "SELECT t.kind, t.level, grouping(t.level) AS g, grouping_id(t.kind, t.level) AS id, "
        "count(*) AS n FROM crm.tickets t GROUP BY ROLLUP (t.kind, t.level)",
        besides=("the groups",),
    ),
    Construct(
        AGGREGATES,
        "PIVOT",
        "SELECT * FROM (SELECT t.kind, t.level, t.cost FROM crm.tickets t) "
        "PIVOT (sum(cost) AS cost, count(*) AS n FOR level IN (1 AS one, 2 AS two))",
        RESULT,
        besides=("the groups for every pivoted value",),
    ),
    Construct(SETS, "DISTINCT", "SELECT DISTINCT o.kind, o.note FROM shop.orders o", "its rows"),
    Construct(
        SETS,
        "UNION ALL",
        "SELECT o.id, o.price AS money FROM shop.orders o "
        "UNION ALL SELECT t.id, t.cost FROM crm.tickets t WHERE t.level > 1",
    ),
    Construct(
        SETS,
        "UNION",
        "SELECT o.customer FROM shop.orders o UNION SELECT t.customer FROM crm.tickets t",
        "its rows",
    ),
    Construct(
        SETS,
        "INTERSECT",
        "SELECT o.customer, o.kind FROM shop.orders o "
        "INTERSECT SELECT t.customer, t.kind FROM crm.tickets t",
        "its rows",
    ),
    Construct(
        SETS,
        "EXCEPT",
        "SELECT o.customer FROM shop.orders o EXCEPT SELECT v.customer FROM shop.visits v",
        "its rows",
    ),
    Construct(
        SETS,
        "INTERSECT ALL",
        "SELECT o.customer FROM shop.orders o INTERSECT ALL SELECT v.customer FROM shop.visits v",
        besides=("its rows, with the counts of both sides",),
    ),
    Construct(
        SETS,
        "EXCEPT ALL",
        "SELECT v.customer FROM shop.visits v EXCEPT ALL SELECT t.customer FROM crm.tickets t",
        besides=("its rows, with the counts of both sides",),
    ),
    Construct(
        SHAPES,
        "WITH",
        "WITH sold AS (SELECT o.customer, sum(o.price) AS price FROM shop.orders o "
        "GROUP BY o.customer) SELECT c.name, s.price FROM crm.customers c "
        "LEFT JOIN sold s ON s.customer = c.customer",
        besides=("the groups of WITH",),
    ),
    Construct(
        SHAPES,
        "WITH that is read twice",
        "WITH busy AS (SELECT v.customer, count(*) AS n FROM shop.visits v GROUP BY v.customer) "
        "SELECT x.customer, y.customer AS other FROM busy x JOIN busy y ON y.n = x.n",
        besides=("the groups of WITH",),
    ),
    Construct(
        SHAPES,
        "a query in FROM",
        "SELECT q.kind, q.n, c.name FROM (SELECT o.kind, count(*) AS n FROM shop.orders o "
        "GROUP BY o.kind) q JOIN crm.customers c ON c.customer = q.kind",
        besides=("the groups of the inner query",),
    ),
    Construct(
        SHAPES,
        "an aggregate of an aggregate",
        "SELECT q.n, count(*) AS customers FROM (SELECT c.customer, count(o.id) AS n "
        "FROM crm.customers c LEFT JOIN shop.orders o ON o.customer = c.customer "
        "GROUP BY c.customer) q GROUP BY q.n",
        RESULT,
        besides=("the groups of the inner query",),
    ),
    Construct(
        SHAPES,
        "a union below a join",
        "SELECT u.customer, c.name FROM (SELECT o.customer FROM shop.orders o "
        "UNION ALL SELECT t.customer FROM crm.tickets t) u "
        "LEFT JOIN crm.customers c ON c.customer = u.customer",
    ),
    Construct(
        SHAPES,
        "a left join below an aggregate below a join",
        "SELECT c.name, q.n FROM crm.customers c JOIN (SELECT o.customer, count(t.id) AS n "
        "FROM shop.orders o LEFT JOIN crm.tickets t ON t.customer = o.kind "
        "GROUP BY o.customer) q ON q.customer = c.customer",
        besides=("the groups of the inner query",),
    ),
    Construct(
        SHAPES,
        "VALUES",
        "SELECT k.label, o.id FROM (VALUES (1, 'one'), (2, 'two'), (9, 'nine')) AS k(kind, label) "
        "LEFT JOIN shop.orders o ON o.kind = k.kind",
    ),
    Construct(
        SHAPES,
        "range",
        "SELECT o.id, r.id AS n FROM shop.orders o JOIN range(1, 4) r ON r.id = o.kind",
    ),
    Construct(
        SHAPES,
        "date spine",
        "SELECT d.day, count(o.id) AS n, sum(o.price) AS price FROM (SELECT "
        "explode(sequence(DATE '2024-01-01', DATE '2024-01-10')) AS day) d "
        "LEFT JOIN shop.orders o ON o.day = d.day GROUP BY d.day",
        RESULT,
    ),
    Construct(
        SHAPES,
        "conditions on the present date",
        "SELECT o.id, o.day FROM shop.orders o WHERE o.day >= current_date() - 7",
    ),
    Construct(
        VALUES,
        "CASE, COALESCE, IF, IN, BETWEEN, LIKE",
        "SELECT o.id, CASE WHEN o.weight > 0 THEN 'heavy' WHEN o.weight = 0 THEN 'none' END AS w, "
        "coalesce(o.note, '-') AS note, if(o.kind IN (1, 3), 'odd', 'even') AS parity "
        "FROM shop.orders o WHERE o.id BETWEEN 1 AND 90 AND (o.note LIKE 'u%' OR o.note IS NULL)",
    ),
    Construct(
        VALUES,
        "texts",
        "SELECT t.id, upper(t.note) AS u, t.note || '-' || t.kind AS label, length(t.note) AS n, "
        "substring(trim(t.note), 1, 1) AS first FROM crm.tickets t",
    ),
    Construct(
        VALUES,
        "dates",
        "SELECT o.id, year(o.day) AS y, trunc(o.day, 'MM') AS month, date_add(o.day, 7) AS later, "
        "datediff(o.day, DATE '2024-01-01') AS days FROM shop.orders o",
    ),
    Construct(
        VALUES,
        "numbers",
        "SELECT o.id, round(o.price * 1.19, 2) AS gross, abs(o.weight) AS w, "
        "o.customer % 2 AS odd, o.price / 3 AS third, -o.price AS minus, "
        "cast(o.weight AS string) AS text FROM shop.orders o",
    ),
    *GENERATOR_CONSTRUCTS,
    Construct(
        VIEWS,
        "a join of a view",
        "SELECT l.id, l.name, t.level FROM m_lines l JOIN crm.tickets t ON t.customer = l.customer",
        parents=(
            (
                "m_lines",
                "SELECT o.id, o.customer, o.price, c.name FROM shop.orders o "
                "JOIN crm.customers c ON c.customer = o.customer",
            ),
        ),
    ),
    Construct(
        VIEWS,
        "an aggregate of a view",
        "SELECT l.name, count(*) AS n, max(l.price) AS price FROM m_lines l GROUP BY l.name",
        RESULT,
        parents=(
            (
                "m_lines",
                "SELECT o.id, o.customer, o.price, c.name FROM shop.orders o "
                "JOIN crm.customers c ON c.customer = o.customer",
            ),
        ),
    ),
    Construct(
        VIEWS,
        "a diamond",
        "SELECT c.customer, s.price, w.n FROM crm.customers c "
        "LEFT JOIN m_sold s ON s.customer = c.customer "
        "LEFT JOIN m_wanted w ON w.customer = c.customer",
        parents=(
            ("m_sold", SOLD),
            (
                "m_wanted",
                "SELECT o.customer, count(*) AS n FROM shop.orders o "
                "LEFT JOIN crm.tickets t ON t.customer = o.customer GROUP BY o.customer",
            ),
        ),
    ),
    *(
        Construct(section, name, text, RESULT if RESULT in stored else NOTHING, (), tuple(besides))
        for section, name, text, *stored in WINDOW_CONSTRUCTS
        for besides in [[each for each in stored if each != RESULT]]
    ),
)
