"""Two views with the values that readers of SQL disagree about, and queries over them."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa

DAY, NOON = datetime.date, datetime.datetime
UTC = datetime.UTC


def _decimals(*texts: str | None) -> list[decimal.Decimal | None]:
    return [None if text is None else decimal.Decimal(text) for text in texts]


LINES = pa.table(
    {
        "id": pa.array(range(1, 11), pa.int64()),
        "name": ["Ada", "ada", "", None, "Grace", "Grace", "Ägir", "zoë", "Ada", None],
        "n": pa.array([3, -1, None, 0, 7, 7, 2, None, 3, 12], pa.int64()),
        "i": pa.array([1, 2, 3, None, 5, 2147483647, -7, 8, None, 10], pa.int32()),
        "ok": [True, False, None, True, False, True, None, True, False, True],
        "x": [0.0, 1.5, None, float("nan"), -2.25, float("inf"), 1.5, 0.0, float("-inf"), 3.0],
        "p": pa.array(
            _decimals(
                *("1.50", "-0.05", None, "0.00", "99999999.99", "10.10"),
                *("10.10", "3.00", None, "-7.25"),
            ),
            pa.decimal128(10, 2),
        ),
        "day": pa.array(
            [
                *(DAY(2024, 2, 29), DAY(1969, 12, 31), None, DAY(2024, 1, 31), DAY(2024, 1, 1)),
                *(DAY(1582, 10, 4), DAY(9999, 12, 31), DAY(2024, 1, 31), None, DAY(2023, 7, 1)),
            ],
            pa.date32(),
        ),
        "at": pa.array(
            [
                NOON(2024, 1, 31, 23, 59, 59, 999999),
                None,
                NOON(1970, 1, 1),
                *[NOON(2024, 5, 5)] * 7,
            ],
            pa.timestamp("us"),
        ),
        "seen": pa.array(
            [
                NOON(2024, 3, 1, 12, tzinfo=UTC),
                None,
                *[NOON(1999, 12, 31, 1, 2, 3, tzinfo=UTC)] * 8,
            ],
            pa.timestamp("us", "UTC"),
        ),
    }
)
CITIES = pa.table(
    {
        "name": ["Ada", "Grace", None, "Ada", "nobody"],
        "city": ["London", "New York", "nowhere", None, "Paris"],
        "n": pa.array([3, 7, None, 4, 1], pa.int64()),
        "w": pa.array([1, 2, 3, 4, 5], pa.int32()),
    }
)
VIEWS = {"lines": LINES, "cities": CITIES}

ON_ARROW = (
    # Lists, stars, names.
    "SELECT * FROM lines",
    "SELECT l.* FROM lines l",
    "SELECT ID, Name AS who FROM Lines",
    "SELECT `name` `a b`, n FROM lines AS l",
    "SELECT n, n FROM lines",
    "SELECT n + 1, i * 2, p - 1, n / 2, p * p, x * 2, 1 + 2, n % 3 FROM lines WHERE i < 1000",
    "SELECT (n + i) * 2 FROM lines WHERE i < 1000",
    "SELECT 'a text' FROM lines",
    "SELECT 007, n + 01 FROM lines",
    "SELECT max(n) - min(n), count(day) * 2 FROM lines",
    "SELECT 7 FROM lines",
    "SELECT lines.name, LINES.n FROM lines",
    "SELECT upper(name) AS u, length(name) AS l, substring(name, 2, 2) AS s FROM lines",
    "SELECT CASE WHEN n > 2 THEN 'many' WHEN n IS NULL THEN 'none' ELSE 'few' END AS c FROM lines",
    "SELECT coalesce(name, 'nobody') AS who, nullif(n, 7) AS m, if(ok, 1, 2) AS o FROM lines",
    "SELECT year(day) AS y, month(day) AS m, date_add(day, 1) AS t FROM lines WHERE id < 7",
    "SELECT cast(n AS STRING) AS t, cast(p AS DOUBLE) AS d, cast(day AS STRING) AS s FROM lines",
    "SELECT p + p AS a, p * 3 AS b, p / 3 AS c, -p AS d, abs(p) AS e, round(p, 1) AS f FROM lines",
    "SELECT n = 3 AS a, n <=> NULL AS b, x > 1 AS c, NOT ok AS d, ok AND n > 1 AS e FROM lines",
    "SELECT -x AS negative, x + 1 AS plus, x * x AS square FROM lines",
    "SELECT at, seen, date_trunc('MONTH', seen) AS m FROM lines",
    # Conditions.
    "SELECT id FROM lines WHERE name = 'Ada'",
    "SELECT id FROM lines WHERE n > 2 AND ok",
    "SELECT id FROM lines WHERE n > 2 OR ok",
    "SELECT id FROM lines WHERE NOT (n > 2 OR ok)",
    "SELECT id FROM lines WHERE name IN ('Ada', 'Grace', NULL)",
    "SELECT id FROM lines WHERE n NOT IN (3, 7)",
    "SELECT id FROM lines WHERE name LIKE '%da'",
    "SELECT id FROM lines WHERE n BETWEEN 2 AND 7",
    "SELECT id FROM lines WHERE n IS NULL",
    "SELECT id FROM lines WHERE name IS NOT NULL AND x IS NOT NULL",
    "SELECT id FROM lines WHERE x > 2",
    "SELECT id FROM lines WHERE x = x",
    "SELECT id FROM lines WHERE p >= 1.5",
    "SELECT id FROM lines WHERE p = 10.10",
    "SELECT id FROM lines WHERE day < DATE '2024-01-31'",
    "SELECT id FROM lines WHERE at > TIMESTAMP_NTZ '2024-02-01 00:00:00'",
    "SELECT id FROM lines WHERE true",
    "SELECT id FROM lines WHERE i > n",
    "SELECT id FROM lines WHERE i < 0.5",
    # Order and limits.
    "SELECT id, name FROM lines ORDER BY name, id",
    "SELECT id, name FROM lines ORDER BY name DESC, id",
    "SELECT id, name FROM lines ORDER BY name NULLS LAST, id DESC",
    "SELECT id, name FROM lines ORDER BY name DESC NULLS FIRST, 1",
    "SELECT id, x FROM lines ORDER BY x, id",
    "SELECT id, x FROM lines ORDER BY x DESC, id LIMIT 4",
    "SELECT id, ok FROM lines ORDER BY ok, id",
    "SELECT id, p FROM lines ORDER BY p DESC NULLS FIRST, id ASC",
    "SELECT id, day FROM lines ORDER BY 2 DESC, 1 DESC LIMIT 5",
    "SELECT id FROM lines ORDER BY n, id",
    "SELECT id AS key FROM lines ORDER BY key DESC LIMIT 3",
    "SELECT id, n * 2 AS n FROM lines WHERE n < 7 ORDER BY n, id",
    "SELECT id, upper(name) AS u FROM lines ORDER BY upper(name), id",
    "SELECT id FROM lines ORDER BY i % 3, id DESC",
    "SELECT id FROM lines ORDER BY id LIMIT 0",
    "SELECT id FROM lines ORDER BY id LIMIT 3 OFFSET 4",
    "SELECT id FROM lines ORDER BY id OFFSET 8",
    "SELECT id FROM lines ORDER BY id LIMIT 100",
    "SELECT l.id FROM lines l ORDER BY l.id DESC LIMIT 2",
    # Distinct.
    "SELECT DISTINCT name FROM lines",
    "SELECT DISTINCT name, n FROM lines ORDER BY name, n",
    "SELECT DISTINCT x FROM lines ORDER BY x",
    "SELECT DISTINCT n % 2 AS odd FROM lines ORDER BY odd DESC",
    "SELECT DISTINCT ok, p FROM lines ORDER BY 1, 2 DESC LIMIT 4",
    "SELECT DISTINCT count(*) AS c FROM lines GROUP BY name ORDER BY c",
    # Groups.
    "SELECT count(*) FROM lines",
    "SELECT COUNT(1), count(n), count(name) AS c FROM lines",
    "SELECT count(*) AS c, sum(n) AS s, min(n) AS lo, max(n) AS hi, avg(n) AS a FROM lines",
    "SELECT sum(n), avg(p), min(name), max(x) FROM lines",
    "SELECT count(*) AS c, sum(n) AS s, avg(n) AS a, max(name) AS m FROM lines WHERE id > 99",
    "SELECT name, count(*) FROM lines GROUP BY name",
    "SELECT name, sum(n), sum(i + 1) AS t FROM lines WHERE id <> 6 GROUP BY name",
    "SELECT name, sum(p) AS s, avg(p) AS a FROM lines GROUP BY name ORDER BY name",
    "SELECT ok, min(day) AS a, max(day) AS b, min(at) AS c, max(seen) AS d FROM lines GROUP BY ok",
    "SELECT x, count(*) AS c FROM lines GROUP BY x ORDER BY x",
    "SELECT min(x) AS lo, max(x) AS hi FROM lines GROUP BY ok",
    "SELECT n % 2 AS odd, count(*) AS c FROM lines GROUP BY n % 2",
    "SELECT n % 2 AS odd, count(*) AS c FROM lines GROUP BY odd ORDER BY odd",
    "SELECT n % 2 AS odd, count(*) AS c FROM lines GROUP BY 1 ORDER BY 1",
    "SELECT upper(name) AS u, count(*) AS c FROM lines GROUP BY upper(name) ORDER BY u",
    "SELECT year(day) AS y, count(*) AS c FROM lines WHERE id < 7 GROUP BY year(day) ORDER BY y",
    "SELECT count(*) AS c FROM lines GROUP BY name, ok",
    "SELECT name FROM lines GROUP BY name ORDER BY name DESC",
    "SELECT name, ok, max(n) - min(n) AS spread FROM lines GROUP BY name, ok ORDER BY name, ok",
    "SELECT name, sum(n) / count(n) AS mean FROM lines GROUP BY name ORDER BY name",
    "SELECT sum(n) + 1, sum(n) * count(*) FROM lines",
    "SELECT name, count(*) AS c FROM lines GROUP BY name HAVING count(*) > 1",
    "SELECT name FROM lines GROUP BY name HAVING max(n) >= 7 AND name IS NOT NULL",
    "SELECT name, sum(n) AS s FROM lines GROUP BY name HAVING name LIKE 'A%' ORDER BY s DESC",
    "SELECT name, sum(n) AS s FROM lines GROUP BY name ORDER BY sum(n) DESC NULLS LAST, name",
    "SELECT name, count(*) AS c FROM lines GROUP BY name ORDER BY count(*) DESC, name LIMIT 2",
    "SELECT name, CASE WHEN sum(n) > 5 THEN 'a' ELSE 'b' END AS size FROM lines GROUP BY name",
    "SELECT coalesce(name, '?') AS who, count(*) AS c FROM lines GROUP BY coalesce(name, '?')",
    "SELECT max(length(name)) AS longest FROM lines",
    "SELECT count(CASE WHEN n > 2 THEN 1 END) AS c FROM lines",
    "SELECT sum(CASE WHEN ok THEN 1 ELSE 0 END) AS c FROM lines",
    "SELECT count(*) FROM lines HAVING count(*) > 3",
    "SELECT 1 AS one, count(*) AS c FROM lines GROUP BY name ORDER BY c, one",
    # Joins.
    "SELECT l.id, c.city FROM lines l JOIN cities c ON l.name = c.name",
    "SELECT l.id, c.city FROM lines l, cities c WHERE l.name = c.name AND c.w > 1 ORDER BY 1, 2",
    "SELECT l.id, c.w FROM lines l JOIN cities c ON l.name <=> c.name ORDER BY l.id, c.w",
    "SELECT * FROM lines l JOIN cities c ON l.name = c.name AND l.n = c.n",
    "SELECT id, city FROM lines JOIN cities USING (name)",
    "SELECT * FROM cities JOIN lines USING (name, n)",
    "SELECT a.id, b.id AS other FROM lines a JOIN lines b ON a.n = b.n WHERE a.id < b.id",
    "SELECT l.id, c.w FROM lines l CROSS JOIN cities c WHERE l.n < c.n ORDER BY l.id, c.w",
    "SELECT c.city, count(*) AS k, sum(l.n) AS s FROM lines l JOIN cities c ON l.name = c.name "
    "GROUP BY c.city ORDER BY city",
    "SELECT l.id, d.city FROM lines l JOIN cities c ON l.name = c.name JOIN cities d ON d.n = c.n",
    "SELECT l.id FROM lines l JOIN cities c ON l.i = c.n ORDER BY l.id",
)
"""Queries that the kernel answers; with a complete ORDER BY the order counts."""

ON_SPARK = (
    "SELECT 1",
    "SELECT count(DISTINCT n) FROM lines",
    "SELECT sum(x) FROM lines",
    "SELECT avg(x) AS a FROM lines",
    "SELECT upper(name) FROM lines",
    "SELECT day + 1 FROM lines WHERE id < 7",
    "SELECT max(day + 1) FROM lines WHERE id < 7",
    "SELECT max(day) - min(day) FROM lines",
    "SELECT name FROM lines UNION SELECT name FROM cities",
    "SELECT name FROM lines WHERE n > (SELECT max(n) FROM cities)",
    "SELECT l.id FROM lines l LEFT JOIN cities c ON l.name = c.name",
    "SELECT id, row_number() OVER (ORDER BY id) AS r FROM lines",
    "WITH a AS (SELECT id FROM lines) SELECT id FROM a",
    "SELECT current_date AS d FROM lines",
    "SELECT sha2(name, 256) AS h FROM lines",
    "SELECT name, count(*) FROM lines GROUP BY ROLLUP (name)",
    "SELECT n FROM lines GROUP BY name",
    "SELECT unknown FROM lines",
    "SELECT name FROM lines, cities",
    "SELECT id FROM lines LIMIT 1 + 1",
    "SELECT max(n) AS n FROM lines GROUP BY name ORDER BY n + 1",
    "SELECT DISTINCT name FROM lines ORDER BY upper(name)",
    "SELECT name, sum(n) AS s FROM lines GROUP BY name HAVING s > 1",
    "SELECT sum(n) FILTER (WHERE ok) AS s FROM lines",
    "SELECT NULL AS nothing FROM lines",
    "SELECT id FROM lines WHERE NULL",
    "SELECT i + i FROM lines",
    "SELECT n / (n - n) AS q FROM lines",
    "SELECT id FROM lines ORDER BY 'a'",
    "SELECT name, count(*) AS c FROM lines GROUP BY ALL",
)
"""Queries that are left to Spark, some of them because they are wrong."""
