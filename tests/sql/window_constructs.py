"""Constructs that are computed again by key: windows, ordered lists, percentiles, limits.

Each is (section, name, text), and what is stored, if something is. Orders leave rows equal
in rank on purpose, by `kind` and `level`, which are also NULL; `visits` has the same row several
times.
"""

from __future__ import annotations

WINDOWS, LISTS, LIMITS = "Windows", "Lists and percentiles", "First rows"

WINDOW_CONSTRUCTS: tuple[tuple[str, ...], ...] = (
    (
        WINDOWS,
        "row_number",
        "SELECT o.id, o.customer, row_number() OVER (PARTITION BY o.customer ORDER BY o.kind DESC) "
        "AS n FROM shop.orders o",
    ),
    (
        WINDOWS,
        "ranks",
        "SELECT o.id, rank() OVER w AS r, dense_rank() OVER w AS d, percent_rank() OVER w AS p, "
        "cume_dist() OVER w AS c, ntile(2) OVER w AS n FROM shop.orders o "
        "WINDOW w AS (PARTITION BY o.customer ORDER BY o.kind)",
    ),
    (
        WINDOWS,
        "lag and lead",
        "SELECT o.id, lag(o.price) OVER w AS before, lead(o.note, 2, 'none') OVER w AS after, "
        "lag(o.price, 1) IGNORE NULLS OVER w AS known FROM shop.orders o "
        "WINDOW w AS (PARTITION BY o.customer ORDER BY o.day, o.id)",
    ),
    (
        WINDOWS,
        "first, last and nth value",
        "SELECT o.id, first_value(o.note) OVER w AS f, last_value(o.note) OVER w AS l, "
        "nth_value(o.id, 2) OVER w AS n, first_value(o.price) IGNORE NULLS OVER w AS p "
        "FROM shop.orders o WINDOW w AS (PARTITION BY o.customer ORDER BY o.kind)",
    ),
    (
        WINDOWS,
        "sums of a whole partition",
        "SELECT o.id, sum(o.price) OVER (PARTITION BY o.customer) AS total, "
        "o.price / sum(o.price) OVER (PARTITION BY o.customer) AS share FROM shop.orders o",
    ),
    (
        WINDOWS,
        "running sum",
        "SELECT o.id, sum(o.price) OVER (PARTITION BY o.customer ORDER BY o.day) AS total, "
        "avg(o.weight) OVER (PARTITION BY o.customer ORDER BY o.day) AS w FROM shop.orders o",
    ),
    (
        WINDOWS,
        "ROWS frame",
        "SELECT o.id, sum(o.price) OVER w AS s, avg(o.price) OVER w AS a, "
        "min(o.kind) OVER w AS lo, "
        "max(o.note) OVER w AS hi, count(o.price) OVER w AS n FROM shop.orders o "
        "WINDOW w AS (PARTITION BY o.customer ORDER BY o.kind "
        "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    ),
    (
        WINDOWS,
        "RANGE frame of days",
        "SELECT o.id, sum(o.price) OVER (PARTITION BY o.customer ORDER BY o.day "
        "RANGE BETWEEN INTERVAL 3 DAYS PRECEDING AND CURRENT ROW) AS s FROM shop.orders o",
    ),
    (
        WINDOWS,
        "RANGE frame of months",
        "SELECT o.id, count(*) OVER (PARTITION BY o.customer ORDER BY o.day "
        "RANGE BETWEEN INTERVAL 1 MONTH PRECEDING AND INTERVAL 1 MONTH FOLLOWING) AS n "
        "FROM shop.orders o",
    ),
    (
        WINDOWS,
        "RANGE frame of numbers",
        "SELECT o.id, count(*) OVER (PARTITION BY o.customer ORDER BY o.kind DESC "
        "RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS n, count(*) FILTER (WHERE o.note = 'u') "
        "OVER (PARTITION BY o.customer ORDER BY o.weight RANGE BETWEEN 0.25 PRECEDING "
        "AND UNBOUNDED FOLLOWING) AS u FROM shop.orders o",
    ),
    (
        WINDOWS,
        "dedup by row_number",
        "SELECT id, customer, note FROM (SELECT o.*, row_number() OVER (PARTITION BY o.customer "
        "ORDER BY o.kind) AS n FROM shop.orders o) WHERE n = 1",
    ),
    (
        WINDOWS,
        "QUALIFY",
        "SELECT o.id, o.customer FROM shop.orders o "
        "QUALIFY row_number() OVER (PARTITION BY o.customer ORDER BY o.price DESC) <= 2",
    ),
    (
        WINDOWS,
        "window over rows that are there several times",
        "SELECT v.customer, v.level, row_number() OVER (PARTITION BY v.customer ORDER BY v.level) "
        "AS n, count(*) OVER (PARTITION BY v.level) AS k FROM shop.visits v",
    ),
    (
        WINDOWS,
        "several windows",
        "SELECT o.id, rank() OVER (PARTITION BY o.customer ORDER BY o.price) AS r, "
        "lag(o.id) OVER (PARTITION BY o.kind ORDER BY o.note) AS l, "
        "count(*) OVER (PARTITION BY o.note) AS c FROM shop.orders o",
    ),
    (
        WINDOWS,
        "window over a join",
        "SELECT c.name, t.id, row_number() OVER (PARTITION BY c.customer ORDER BY t.level DESC) "
        "AS n "
        "FROM crm.customers c LEFT JOIN crm.tickets t ON t.customer = c.customer",
    ),
    (
        WINDOWS,
        "window over an aggregate",
        "SELECT o.customer, o.kind, sum(o.price) AS total, rank() OVER (PARTITION BY o.kind "
        "ORDER BY sum(o.price) DESC) AS r FROM shop.orders o GROUP BY o.customer, o.kind",
        "the groups",
    ),
    (
        WINDOWS,
        "aggregate over a window",
        "SELECT customer, sum(gap) AS days, count(*) AS n FROM (SELECT o.customer, "
        "datediff(o.day, lag(o.day) OVER (PARTITION BY o.customer ORDER BY o.day, o.id)) AS gap "
        "FROM shop.orders o) GROUP BY customer",
        "its groups",
    ),
    (
        WINDOWS,
        "join with the newest row",
        "SELECT c.name, x.id, x.price FROM crm.customers c JOIN (SELECT o.*, row_number() OVER "
        "(PARTITION BY o.customer ORDER BY o.day DESC) AS n FROM shop.orders o) x "
        "ON x.customer = c.customer AND x.n = 1",
    ),
    (
        WINDOWS,
        "window joined by another column",
        "SELECT t.id, x.n FROM crm.tickets t JOIN (SELECT o.id, row_number() OVER "
        "(PARTITION BY o.customer ORDER BY o.kind) AS n FROM shop.orders o) x ON x.id = t.id",
    ),
    (
        WINDOWS,
        "window without PARTITION BY",
        "SELECT o.id, row_number() OVER (ORDER BY o.price) AS n, "
        "sum(o.price) OVER (ORDER BY o.day, o.id) AS total FROM shop.orders o",
    ),
    (
        WINDOWS,
        "IN over a window",
        "SELECT t.id FROM crm.tickets t WHERE t.customer IN (SELECT customer FROM (SELECT "
        "o.customer, rank() OVER (PARTITION BY o.kind ORDER BY o.price DESC) AS r "
        "FROM shop.orders o) WHERE r = 1)",
    ),
    (
        LISTS,
        "median and percentile",
        "SELECT o.customer, median(o.price) AS m, percentile(o.kind, 0.3) AS p, "
        "percentile_cont(0.25) WITHIN GROUP (ORDER BY o.weight DESC) AS c, "
        "percentile_disc(0.6) WITHIN GROUP (ORDER BY o.price) AS d, count(*) AS n "
        "FROM shop.orders o GROUP BY o.customer",
    ),
    (
        LISTS,
        "mode",
        "SELECT o.customer, mode() WITHIN GROUP (ORDER BY o.kind) AS k, "
        "mode() WITHIN GROUP (ORDER BY o.note DESC) AS n FROM shop.orders o GROUP BY o.customer",
    ),
    (
        LISTS,
        "listagg in an order",
        "SELECT o.kind, listagg(o.note, ',') WITHIN GROUP (ORDER BY o.day DESC, o.note) AS notes, "
        "listagg(DISTINCT o.note) WITHIN GROUP (ORDER BY o.note) AS few "
        "FROM shop.orders o GROUP BY o.kind",
    ),
    (
        LISTS,
        "sorted lists as text",
        "SELECT o.kind, array_join(sort_array(collect_list(o.note)), '-') AS notes, "
        "concat_ws('+', sort_array(collect_set(o.note), false)) AS few, "
        "count(DISTINCT o.note) AS n "
        "FROM shop.orders o GROUP BY o.kind",
    ),
    (
        LISTS,
        "median of all rows",
        "SELECT median(v.level) AS m, count(*) AS n FROM shop.visits v WHERE v.level > 1",
    ),
    (
        LIMITS,
        "ORDER BY with LIMIT",
        "SELECT o.id, o.price FROM shop.orders o ORDER BY o.price DESC LIMIT 3",
    ),
    (
        LIMITS,
        "LIMIT with OFFSET",
        "SELECT o.id, o.note FROM shop.orders o ORDER BY o.kind NULLS LAST LIMIT 2 OFFSET 1",
    ),
    (
        LIMITS,
        "LIMIT over an aggregate",
        "SELECT o.customer, count(*) AS n FROM shop.orders o GROUP BY o.customer "
        "ORDER BY n DESC, o.customer LIMIT 2",
        "the groups",
    ),
    (
        LIMITS,
        "LIMIT in a derived table",
        "SELECT x.id, c.name FROM (SELECT o.id, o.customer FROM shop.orders o "
        "ORDER BY o.price LIMIT 4) x JOIN crm.customers c ON c.customer = x.customer",
    ),
)
