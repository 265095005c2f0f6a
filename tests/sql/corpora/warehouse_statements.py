"""Statements in the manner of TPC-DS, by the numbers of its queries.

They ask the questions of those queries over our own small tables, in our own words. What a view
cannot have, an order and a limit of the whole result, is left to whoever reads it.
"""

from __future__ import annotations

from tests.sql.corpora.corpus_statement import CorpusStatement

WAREHOUSE_STATEMENTS = (
    CorpusStatement(
        "ds01",
        "a scalar that is correlated with the outer row, over WITH",
        """
WITH returned AS (
  SELECT r.buyer, r.store, sum(r.amount) AS total
  FROM shop.store_returns r JOIN crm.days d ON d.id = r.day_sk
  WHERE d.year = 2024
  GROUP BY r.buyer, r.store)
SELECT b.name, a.store, a.total
FROM returned a JOIN crm.stores s ON s.id = a.store JOIN crm.buyers b ON b.id = a.buyer
WHERE a.total > (SELECT avg(o.total) * 1.2 FROM returned o WHERE o.store = a.store)
  AND s.state = 'CA'""",
    ),
    CorpusStatement(
        "ds02",
        "UNION ALL, sums by CASE, a join of two years",
        """
WITH sold AS (
  SELECT w.day_sk, w.price FROM shop.web_sales w
  UNION ALL
  SELECT c.day_sk, c.price FROM shop.catalog_sales c),
weekly AS (
  SELECT d.week, d.year,
         sum(CASE WHEN d.month = 1 THEN s.price END) AS january,
         sum(CASE WHEN d.month = 2 THEN s.price END) AS february
  FROM sold s JOIN crm.days d ON d.id = s.day_sk
  GROUP BY d.week, d.year)
SELECT y.week, y.january, z.january AS later, y.february
FROM weekly y JOIN weekly z ON z.week = y.week
WHERE y.year = 2024 AND z.year = 2025""",
    ),
    CorpusStatement(
        "ds03",
        "a star join with a sum",
        """
SELECT d.year, i.brand, sum(s.price) AS revenue
FROM crm.days d JOIN shop.store_sales s ON s.day_sk = d.id JOIN crm.items i ON i.id = s.item
WHERE d.month = 1 AND i.class = 1
GROUP BY d.year, i.brand""",
    ),
    CorpusStatement(
        "ds05",
        "ROLLUP over a union of channels, sales beside returns",
        """
WITH channels AS (
  SELECT 'store' AS channel, s.store AS place, s.price AS sales, CAST(0 AS DECIMAL(7,2)) AS back,
         s.profit
  FROM shop.store_sales s
  UNION ALL
  SELECT 'store', r.store, CAST(0 AS DECIMAL(7,2)), r.amount, -r.loss FROM shop.store_returns r
  UNION ALL
  SELECT 'web', w.site, w.price, CAST(0 AS DECIMAL(7,2)), w.profit FROM shop.web_sales w
  UNION ALL
  SELECT 'web', w.site, CAST(0 AS DECIMAL(7,2)), r.amount, -r.loss
  FROM shop.web_returns r
  LEFT JOIN shop.web_sales w ON w.order_no = r.order_no AND w.item = r.item)
SELECT channel, place, sum(sales) AS sales, sum(back) AS back, sum(profit) AS profit
FROM channels
GROUP BY ROLLUP (channel, place)""",
    ),
    CorpusStatement(
        "ds06",
        "a correlated average in WHERE, HAVING",
        """
SELECT a.state, count(*) AS sales
FROM crm.addresses a
JOIN crm.buyers b ON b.address = a.id
JOIN shop.store_sales s ON s.buyer = b.id
JOIN crm.items i ON i.id = s.item
WHERE i.price > 1.2 * (SELECT avg(j.price) FROM crm.items j WHERE j.category = i.category)
GROUP BY a.state
HAVING count(*) >= 1""",
    ),
    CorpusStatement(
        "ds07",
        "averages over a star",
        """
SELECT i.id, avg(s.quantity) AS quantity, avg(s.price) AS price, count(*) AS n
FROM shop.store_sales s
JOIN crm.items i ON i.id = s.item
JOIN crm.buyers b ON b.id = s.buyer
JOIN crm.days d ON d.id = s.day_sk
WHERE b.gender = 'F' AND d.year = 2024
GROUP BY i.id""",
    ),
    CorpusStatement(
        "ds09",
        "CASE over scalars of the whole table",
        """
SELECT st.id,
       CASE WHEN (SELECT count(*) FROM shop.store_sales s WHERE s.quantity BETWEEN 1 AND 2) > 4
            THEN (SELECT avg(s.price) FROM shop.store_sales s WHERE s.quantity BETWEEN 1 AND 2)
            ELSE (SELECT avg(s.profit) FROM shop.store_sales s WHERE s.quantity BETWEEN 1 AND 2)
       END AS few
FROM crm.stores st
WHERE st.id = 1""",
    ),
    CorpusStatement(
        "ds10",
        "EXISTS, and one EXISTS or another",
        """
SELECT b.gender, b.birth_year, count(*) AS n
FROM crm.buyers b JOIN crm.addresses a ON a.id = b.address
WHERE EXISTS (SELECT 1 FROM shop.store_sales s JOIN crm.days d ON d.id = s.day_sk
              WHERE s.buyer = b.id AND d.year = 2024)
  AND (EXISTS (SELECT 1 FROM shop.web_sales w WHERE w.buyer = b.id)
       OR EXISTS (SELECT 1 FROM shop.catalog_sales c WHERE c.buyer = b.id))
GROUP BY b.gender, b.birth_year""",
    ),
    CorpusStatement(
        "ds11",
        "one WITH read four times: growth by channel",
        """
WITH yearly AS (
  SELECT s.buyer, d.year, sum(s.price) AS total, 's' AS channel
  FROM shop.store_sales s JOIN crm.days d ON d.id = s.day_sk
  GROUP BY s.buyer, d.year
  UNION ALL
  SELECT w.buyer, d.year, sum(w.price), 'w'
  FROM shop.web_sales w JOIN crm.days d ON d.id = w.day_sk
  GROUP BY w.buyer, d.year)
SELECT s1.buyer, s1.total AS stores, w1.total AS web
FROM yearly s1
JOIN yearly s2 ON s2.buyer = s1.buyer
JOIN yearly w1 ON w1.buyer = s1.buyer
JOIN yearly w2 ON w2.buyer = s1.buyer
WHERE s1.channel = 's' AND s2.channel = 's' AND w1.channel = 'w' AND w2.channel = 'w'
  AND s1.year = 2024 AND s2.year = 2025 AND w1.year = 2024 AND w2.year = 2025
  AND w2.total * s1.total > s2.total * w1.total""",
    ),
    CorpusStatement(
        "ds12",
        "the share in the sum of a class: a window over an aggregate",
        """
SELECT i.id, i.class, sum(w.price) AS revenue,
       sum(w.price) * 100 / sum(sum(w.price)) OVER (PARTITION BY i.class) AS share
FROM shop.web_sales w JOIN crm.items i ON i.id = w.item
GROUP BY i.id, i.class""",
    ),
    CorpusStatement(
        "ds13",
        "alternatives over several tables in WHERE",
        """
SELECT avg(s.quantity) AS quantity, avg(s.price) AS price, sum(s.profit) AS profit
FROM shop.store_sales s
JOIN crm.buyers b ON b.id = s.buyer
JOIN crm.addresses a ON a.id = b.address
WHERE (b.gender = 'F' AND s.price BETWEEN 1 AND 10)
   OR (b.gender = 'M' AND a.state IN ('CA', 'TX') AND s.profit > 0)""",
    ),
    CorpusStatement(
        "ds14",
        "items of all channels by INTERSECT, a scalar average, ROLLUP",
        """
WITH everywhere AS (
  SELECT i.brand, i.class FROM shop.store_sales s JOIN crm.items i ON i.id = s.item
  INTERSECT
  SELECT i.brand, i.class FROM shop.web_sales w JOIN crm.items i ON i.id = w.item
  INTERSECT
  SELECT i.brand, i.class FROM shop.catalog_sales c JOIN crm.items i ON i.id = c.item),
sold AS (
  SELECT 'store' AS channel, s.item, s.quantity * s.price AS amount FROM shop.store_sales s
  UNION ALL
  SELECT 'web', w.item, w.quantity * w.price FROM shop.web_sales w)
SELECT x.channel, i.brand, sum(x.amount) AS sales, count(*) AS n
FROM sold x
JOIN crm.items i ON i.id = x.item
JOIN everywhere e ON e.brand = i.brand AND e.class = i.class
GROUP BY ROLLUP (x.channel, i.brand)
HAVING sum(x.amount) > (SELECT avg(y.amount) FROM sold y)""",
    ),
    CorpusStatement(
        "ds18",
        "ROLLUP of four columns with averages",
        """
SELECT i.id AS item, a.state, a.county, avg(CAST(c.quantity AS DECIMAL(12,2))) AS quantity,
       avg(c.price) AS price
FROM shop.catalog_sales c
JOIN crm.buyers b ON b.id = c.buyer
JOIN crm.addresses a ON a.id = b.address
JOIN crm.items i ON i.id = c.item
GROUP BY ROLLUP (i.id, a.state, a.county)""",
    ),
    CorpusStatement(
        "ds23",
        "frequent items, and buyers above half of the best: IN, HAVING with a scalar",
        """
WITH frequent AS (
  SELECT s.item, d.day FROM shop.store_sales s JOIN crm.days d ON d.id = s.day_sk
  GROUP BY s.item, d.day HAVING count(*) > 1),
spent AS (
  SELECT s.buyer, sum(s.quantity * s.price) AS total FROM shop.store_sales s GROUP BY s.buyer),
best AS (
  SELECT p.buyer FROM spent p WHERE p.total > 0.5 * (SELECT max(q.total) FROM spent q))
SELECT sum(x.amount) AS amount
FROM (SELECT c.quantity * c.price AS amount FROM shop.catalog_sales c
      WHERE c.item IN (SELECT f.item FROM frequent f) AND c.buyer IN (SELECT b.buyer FROM best b)
      UNION ALL
      SELECT w.quantity * w.price FROM shop.web_sales w
      WHERE w.item IN (SELECT f.item FROM frequent f)
        AND w.buyer IN (SELECT b.buyer FROM best b)) x""",
    ),
    CorpusStatement(
        "ds27",
        "ROLLUP with grouping()",
        """
SELECT i.category, st.state, grouping(st.state) AS all_states, avg(s.quantity) AS quantity,
       avg(s.price) AS price
FROM shop.store_sales s
JOIN crm.items i ON i.id = s.item
JOIN crm.stores st ON st.id = s.store
GROUP BY ROLLUP (i.category, st.state)""",
    ),
    CorpusStatement(
        "ds28",
        "a cross join of aggregates, each with a DISTINCT",
        """
SELECT a.mean AS cheap_mean, a.n AS cheap, a.kinds AS cheap_kinds, b.mean AS dear_mean, b.n AS dear
FROM (SELECT avg(s.price) AS mean, count(s.price) AS n, count(DISTINCT s.price) AS kinds
      FROM shop.store_sales s WHERE s.price < 10) a
CROSS JOIN
     (SELECT avg(s.price) AS mean, count(s.price) AS n FROM shop.store_sales s
      WHERE s.price >= 10) b""",
    ),
    CorpusStatement(
        "ds31",
        "growth from month to month, of two channels, joined by county",
        """
WITH s AS (
  SELECT a.county, d.month, d.year, sum(x.price) AS sales
  FROM shop.store_sales x JOIN crm.days d ON d.id = x.day_sk
  JOIN crm.buyers b ON b.id = x.buyer JOIN crm.addresses a ON a.id = b.address
  GROUP BY a.county, d.month, d.year),
w AS (
  SELECT a.county, d.month, d.year, sum(x.price) AS sales
  FROM shop.web_sales x JOIN crm.days d ON d.id = x.day_sk
  JOIN crm.buyers b ON b.id = x.buyer JOIN crm.addresses a ON a.id = b.address
  GROUP BY a.county, d.month, d.year)
SELECT s1.county, s1.year, w2.sales / w1.sales AS web, s2.sales / s1.sales AS store
FROM s s1
JOIN s s2 ON s2.county = s1.county AND s2.year = s1.year
JOIN w w1 ON w1.county = s1.county AND w1.year = s1.year
JOIN w w2 ON w2.county = s1.county AND w2.year = s1.year
WHERE s1.month = 1 AND s2.month = 2 AND w1.month = 1 AND w2.month = 2
  AND w1.sales > 0 AND s1.sales > 0""",
    ),
    CorpusStatement(
        "ds33",
        "three channels with IN (SELECT), summed once more",
        """
WITH ss AS (
  SELECT i.brand, sum(s.price) AS total FROM shop.store_sales s JOIN crm.items i ON i.id = s.item
  WHERE i.brand IN (SELECT j.brand FROM crm.items j WHERE j.category = 'Books')
  GROUP BY i.brand),
ws AS (
  SELECT i.brand, sum(w.price) AS total FROM shop.web_sales w JOIN crm.items i ON i.id = w.item
  WHERE i.brand IN (SELECT j.brand FROM crm.items j WHERE j.category = 'Books')
  GROUP BY i.brand),
cs AS (
  SELECT i.brand, sum(c.price) AS total FROM shop.catalog_sales c JOIN crm.items i ON i.id = c.item
  WHERE i.brand IN (SELECT j.brand FROM crm.items j WHERE j.category = 'Books')
  GROUP BY i.brand)
SELECT brand, sum(total) AS total
FROM (SELECT * FROM ss UNION ALL SELECT * FROM ws UNION ALL SELECT * FROM cs)
GROUP BY brand""",
    ),
    CorpusStatement(
        "ds35",
        "EXISTS under OR beside EXISTS, several statistics of a group",
        """
SELECT a.state, b.gender, count(*) AS n, min(b.birth_year) AS first, max(b.birth_year) AS last,
       avg(b.birth_year) AS mean
FROM crm.buyers b LEFT JOIN crm.addresses a ON a.id = b.address
WHERE EXISTS (SELECT 1 FROM shop.store_sales s, crm.days d
              WHERE s.buyer = b.id AND s.day_sk = d.id AND d.month = 1)
  AND (EXISTS (SELECT 1 FROM shop.web_sales w WHERE w.buyer = b.id AND w.price > 1)
       OR EXISTS (SELECT 1 FROM shop.catalog_sales c WHERE c.buyer = b.id))
GROUP BY a.state, b.gender""",
    ),
    CorpusStatement(
        "ds36",
        "a rank inside each level of a ROLLUP",
        """
SELECT i.category, i.class, sum(s.profit) AS profit,
       grouping(i.category) + grouping(i.class) AS level,
       rank() OVER (PARTITION BY grouping(i.category) + grouping(i.class),
                    CASE WHEN grouping(i.class) = 0 THEN i.category END
                    ORDER BY sum(s.profit)) AS place
FROM shop.store_sales s JOIN crm.items i ON i.id = s.item
GROUP BY ROLLUP (i.category, i.class)""",
    ),
    CorpusStatement(
        "ds38",
        "INTERSECT of three DISTINCT, counted",
        """
SELECT count(*) AS n
FROM (SELECT DISTINCT b.name, d.day FROM shop.store_sales s
      JOIN crm.days d ON d.id = s.day_sk JOIN crm.buyers b ON b.id = s.buyer
      INTERSECT
      SELECT DISTINCT b.name, d.day FROM shop.web_sales w
      JOIN crm.days d ON d.id = w.day_sk JOIN crm.buyers b ON b.id = w.buyer
      INTERSECT
      SELECT DISTINCT b.name, d.day FROM shop.catalog_sales c
      JOIN crm.days d ON d.id = c.day_sk JOIN crm.buyers b ON b.id = c.buyer)""",
    ),
    CorpusStatement(
        "ds41",
        "a count that is correlated, compared with zero",
        """
SELECT DISTINCT i.category
FROM crm.items i
WHERE (SELECT count(*) FROM crm.items j
       WHERE j.brand = i.brand AND (j.category = 'Music' OR j.class = 2)) > 0""",
    ),
    CorpusStatement(
        "ds44",
        "the best beside the worst: ranks without PARTITION BY",
        """
SELECT best.item, best.place, worst.item AS other
FROM (SELECT item, rank() OVER (ORDER BY mean) AS place
      FROM (SELECT s.item, avg(s.profit) AS mean FROM shop.store_sales s GROUP BY s.item)) best
JOIN (SELECT item, rank() OVER (ORDER BY mean DESC) AS place
      FROM (SELECT s.item, avg(s.profit) AS mean FROM shop.store_sales s GROUP BY s.item)) worst
  ON worst.place = best.place
WHERE best.place < 4""",
    ),
    CorpusStatement(
        "ds51",
        "running sums of two channels, a FULL JOIN, running maxima of both",
        """
WITH web AS (
  SELECT w.item, d.day, sum(sum(w.price)) OVER (PARTITION BY w.item ORDER BY d.day
         ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total
  FROM shop.web_sales w JOIN crm.days d ON d.id = w.day_sk
  WHERE w.item IS NOT NULL AND d.day IS NOT NULL GROUP BY w.item, d.day),
store AS (
  SELECT s.item, d.day, sum(sum(s.price)) OVER (PARTITION BY s.item ORDER BY d.day
         ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total
  FROM shop.store_sales s JOIN crm.days d ON d.id = s.day_sk
  WHERE s.item IS NOT NULL AND d.day IS NOT NULL GROUP BY s.item, d.day),
together AS (
  SELECT coalesce(web.item, store.item) AS item, coalesce(web.day, store.day) AS day,
         web.total AS web, store.total AS store
  FROM web FULL JOIN store ON store.item = web.item AND store.day = web.day)
SELECT item, day, web, store,
       max(web) OVER (PARTITION BY item ORDER BY day
                      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS web_so_far,
       max(store) OVER (PARTITION BY item ORDER BY day
                        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS store_so_far
FROM together""",
    ),
    CorpusStatement(
        "ds53",
        "a sum beside the average of its group",
        """
SELECT brand, month, sales, mean
FROM (SELECT i.brand, d.month, sum(s.price) AS sales,
             avg(sum(s.price)) OVER (PARTITION BY i.brand) AS mean
      FROM shop.store_sales s
      JOIN crm.items i ON i.id = s.item JOIN crm.days d ON d.id = s.day_sk
      GROUP BY i.brand, d.month)
WHERE CASE WHEN mean > 0 THEN abs(sales - mean) / mean END > 0.1""",
    ),
    CorpusStatement(
        "ds67",
        "ROLLUP of many columns, the first ranks of each category",
        """
SELECT category, class, brand, year, state, sales, place
FROM (SELECT category, class, brand, year, state, sales,
             rank() OVER (PARTITION BY category ORDER BY sales DESC) AS place
      FROM (SELECT i.category, i.class, i.brand, d.year, st.state,
                   sum(coalesce(s.price * s.quantity, 0)) AS sales
            FROM shop.store_sales s
            JOIN crm.days d ON d.id = s.day_sk
            JOIN crm.stores st ON st.id = s.store
            JOIN crm.items i ON i.id = s.item
            GROUP BY ROLLUP (i.category, i.class, i.brand, d.year, st.state)))
WHERE place <= 3""",
    ),
    CorpusStatement(
        "ds69",
        "EXISTS and two NOT EXISTS",
        """
SELECT b.gender, count(*) AS n
FROM crm.buyers b
WHERE EXISTS (SELECT 1 FROM shop.store_sales s WHERE s.buyer = b.id)
  AND NOT EXISTS (SELECT 1 FROM shop.web_sales w JOIN crm.days d ON d.id = w.day_sk
                  WHERE w.buyer = b.id AND d.month = 1)
  AND NOT EXISTS (SELECT 1 FROM shop.catalog_sales c WHERE c.buyer = b.id)
GROUP BY b.gender""",
    ),
    CorpusStatement(
        "ds70",
        "a ROLLUP over the states that rank first",
        """
SELECT sum(s.profit) AS profit, st.state, st.county
FROM shop.store_sales s JOIN crm.stores st ON st.id = s.store
WHERE st.state IN (
  SELECT state FROM (
    SELECT t.state, rank() OVER (PARTITION BY t.state ORDER BY sum(x.profit) DESC) AS place
    FROM shop.store_sales x JOIN crm.stores t ON t.id = x.store
    GROUP BY t.state) WHERE place <= 5)
GROUP BY ROLLUP (st.state, st.county)""",
    ),
    CorpusStatement(
        "ds87",
        "EXCEPT of three DISTINCT, counted",
        """
SELECT count(*) AS n
FROM (SELECT DISTINCT s.buyer, s.day_sk FROM shop.store_sales s
      EXCEPT
      SELECT DISTINCT c.buyer, c.day_sk FROM shop.catalog_sales c
      EXCEPT
      SELECT DISTINCT w.buyer, w.day_sk FROM shop.web_sales w)""",
    ),
    CorpusStatement(
        "ds93",
        "what was sold, less what came back",
        """
SELECT buyer, sum(actual) AS sales
FROM (SELECT s.buyer, CASE WHEN r.id IS NOT NULL THEN (s.quantity - 1) * s.price
                           ELSE s.quantity * s.price END AS actual
      FROM shop.store_sales s
      LEFT JOIN shop.store_returns r ON r.item = s.item AND r.ticket = s.ticket)
GROUP BY buyer""",
    ),
    CorpusStatement(
        "ds95",
        "orders from several warehouses: a self join, two IN, DISTINCT",
        """
WITH several AS (
  SELECT a.order_no FROM shop.web_sales a JOIN shop.web_sales b ON b.order_no = a.order_no
  WHERE a.warehouse <> b.warehouse)
SELECT count(DISTINCT w.order_no) AS orders, sum(w.price) AS price, sum(w.profit) AS profit
FROM shop.web_sales w
JOIN crm.days d ON d.id = w.day_sk
JOIN crm.buyers b ON b.id = w.buyer
WHERE d.year = 2024
  AND w.order_no IN (SELECT s.order_no FROM several s)
  AND w.order_no IN (SELECT r.order_no FROM shop.web_returns r
                     JOIN several s ON s.order_no = r.order_no)""",
    ),
    CorpusStatement(
        "ds97",
        "a FULL JOIN of two aggregates, counted by side",
        """
WITH s AS (SELECT x.buyer, x.item FROM shop.store_sales x GROUP BY x.buyer, x.item),
c AS (SELECT x.buyer, x.item FROM shop.catalog_sales x GROUP BY x.buyer, x.item)
SELECT sum(CASE WHEN s.buyer IS NOT NULL AND c.buyer IS NULL THEN 1 ELSE 0 END) AS only_store,
       sum(CASE WHEN s.buyer IS NULL AND c.buyer IS NOT NULL THEN 1 ELSE 0 END) AS only_catalog,
       sum(CASE WHEN s.buyer IS NOT NULL AND c.buyer IS NOT NULL THEN 1 ELSE 0 END) AS both
FROM s FULL JOIN c ON c.buyer = s.buyer AND c.item = s.item""",
    ),
)
