"""Statements in the manner of projects that are kept with dbt: from raw tables to marts.

Staging models that others read are statements of their own, as they are in such projects.
"""

from __future__ import annotations

from tests.sql.corpora.corpus_statement import CorpusStatement

PROJECT_STATEMENTS = (
    CorpusStatement(
        "stg_orders",
        "staging: names, types, defaults",
        """
SELECT o.id AS order_id, o.customer AS customer_id, coalesce(o.status, 'unknown') AS status,
       o.day AS ordered_on, CAST(o.amount AS DOUBLE) AS amount,
       o.status IN ('shipped', 'returned') AS is_done
FROM shop.raw_orders o""",
    ),
    CorpusStatement(
        "stg_payments",
        "staging: cents to money",
        """
SELECT p.id AS payment_id, p.order_id, p.method, CAST(p.cents / 100 AS DECIMAL(10,2)) AS amount
FROM shop.raw_payments p
WHERE p.order_id IS NOT NULL""",
    ),
    CorpusStatement(
        "stg_customers",
        "staging: texts",
        """
SELECT c.id AS customer_id, trim(c.first_name) || ' ' || trim(c.last_name) AS name,
       lower(trim(c.email)) AS email, c.day AS since
FROM crm.raw_customers c""",
    ),
    CorpusStatement(
        "surrogate_key",
        "a key by md5 of several columns",
        """
SELECT md5(concat_ws('-', coalesce(CAST(o.customer AS STRING), '_null_'),
                     coalesce(CAST(o.day AS STRING), '_null_'))) AS order_key, o.id
FROM shop.raw_orders o""",
    ),
    CorpusStatement(
        "deduplicated_rank",
        "the newest version of each customer: row_number in a derived table",
        """
SELECT customer, status, version, id
FROM (SELECT o.customer, o.status, o.version, o.id,
             row_number() OVER (PARTITION BY o.customer ORDER BY o.version DESC, o.id) AS n
      FROM shop.raw_orders o)
WHERE n = 1""",
    ),
    CorpusStatement(
        "deduplicated_qualify",
        "the same by QUALIFY",
        """
SELECT o.customer, o.status, o.version
FROM shop.raw_orders o
QUALIFY row_number() OVER (PARTITION BY o.customer ORDER BY o.version DESC, o.id DESC) = 1""",
    ),
    CorpusStatement(
        "deduplicated_distinct",
        "the same by DISTINCT",
        "SELECT DISTINCT e.visitor, e.kind, e.day FROM shop.raw_events e",
    ),
    CorpusStatement(
        "deduplicated_max_by",
        "the same by max_by, with an order that is unique",
        """
SELECT o.customer, max_by(o.status, o.id) AS status, max(o.id) AS id
FROM shop.raw_orders o GROUP BY o.customer""",
    ),
    CorpusStatement(
        "united_relations",
        "two raw tables as one, each with its name",
        """
SELECT 'payments' AS origin, p.id, p.day, CAST(p.cents AS DECIMAL(12,2)) AS amount
FROM shop.raw_payments p
UNION ALL
SELECT 'orders', o.id, o.day, o.amount FROM shop.raw_orders o""",
    ),
    CorpusStatement(
        "payments_by_method",
        "a pivot by CASE",
        """
SELECT p.order_id,
       sum(CASE WHEN p.method = 'card' THEN p.cents ELSE 0 END) AS card,
       sum(CASE WHEN p.method = 'cash' THEN p.cents ELSE 0 END) AS cash,
       sum(p.cents) AS total
FROM shop.raw_payments p GROUP BY p.order_id""",
    ),
    CorpusStatement(
        "payments_pivot",
        "a pivot by PIVOT",
        """
SELECT * FROM (SELECT p.order_id, p.method, p.cents FROM shop.raw_payments p)
PIVOT (sum(cents) FOR method IN ('card' AS card, 'cash' AS cash, 'coupon' AS coupon))""",
    ),
    CorpusStatement(
        "order_facts_long",
        "columns to rows by UNPIVOT",
        """
SELECT id, fact, value
FROM (SELECT o.id, CAST(o.customer AS STRING) AS customer, o.status, CAST(o.day AS STRING) AS day
      FROM shop.raw_orders o)
UNPIVOT (value FOR fact IN (customer, status, day))""",
    ),
    CorpusStatement(
        "mart_customers",
        "a mart: aggregates of two models left-joined, on staging views",
        """
WITH orders AS (
  SELECT o.customer_id, min(o.ordered_on) AS first, max(o.ordered_on) AS last, count(*) AS n
  FROM stg_orders o GROUP BY o.customer_id),
paid AS (
  SELECT o.customer_id, sum(p.amount) AS total
  FROM stg_payments p LEFT JOIN stg_orders o ON o.order_id = p.order_id
  GROUP BY o.customer_id)
SELECT c.customer_id, c.name, o.first, o.last, coalesce(o.n, 0) AS orders, p.total
FROM stg_customers c
LEFT JOIN orders o ON o.customer_id = c.customer_id
LEFT JOIN paid p ON p.customer_id = c.customer_id""",
    ),
    CorpusStatement(
        "mart_orders",
        "a mart: an order with its payments by method",
        """
SELECT o.order_id, o.customer_id, o.status, m.card, m.cash, coalesce(m.total, 0) AS total
FROM stg_orders o LEFT JOIN payments_by_method m ON m.order_id = o.order_id""",
    ),
    CorpusStatement(
        "recent_orders",
        "what came within a week of the newest row: a scalar of the whole table",
        """
SELECT o.id, o.day FROM shop.raw_orders o
WHERE o.day >= (SELECT max(p.day) - INTERVAL 7 DAYS FROM shop.raw_orders p)""",
    ),
    CorpusStatement(
        "orders_per_day",
        "a date spine that the query writes out",
        """
SELECT s.day, count(o.id) AS orders, coalesce(sum(o.amount), 0) AS amount
FROM (SELECT explode(sequence(DATE '2024-01-01', DATE '2024-01-07')) AS day) s
LEFT JOIN shop.raw_orders o ON o.day = s.day
GROUP BY s.day""",
    ),
    CorpusStatement(
        "subscription_months",
        "a date spine per row",
        """
SELECT s.id, s.customer, m.month, s.monthly
FROM crm.subscriptions s
LATERAL VIEW explode(sequence(trunc(s.started, 'MM'),
  trunc(coalesce(s.ended, DATE '2024-04-30'), 'MM'), INTERVAL 1 MONTH)) m AS month
WHERE s.started <= coalesce(s.ended, DATE '2024-04-30')""",
    ),
    CorpusStatement(
        "monthly_revenue",
        "revenue by month on that spine, a view on a view",
        """
SELECT m.month, count(DISTINCT m.customer) AS customers, sum(m.monthly) AS revenue
FROM subscription_months m GROUP BY m.month""",
    ),
    CorpusStatement(
        "churned",
        "customers of a month who are gone in the next",
        """
SELECT DISTINCT m.customer, add_months(m.month, 1) AS month
FROM subscription_months m
WHERE NOT EXISTS (SELECT 1 FROM subscription_months n
                  WHERE n.customer = m.customer AND n.month = add_months(m.month, 1))""",
    ),
    CorpusStatement(
        "retention",
        "cohorts by the first month, and who came back how much later",
        """
WITH firsts AS (
  SELECT o.customer, trunc(min(o.day), 'MM') AS cohort FROM shop.raw_orders o GROUP BY o.customer)
SELECT f.cohort, CAST(months_between(trunc(o.day, 'MM'), f.cohort) AS INT) AS later,
       count(DISTINCT o.customer) AS customers
FROM shop.raw_orders o JOIN firsts f ON f.customer = o.customer
GROUP BY f.cohort, CAST(months_between(trunc(o.day, 'MM'), f.cohort) AS INT)""",
    ),
    CorpusStatement(
        "funnel",
        "steps of a funnel by FILTER over DISTINCT visitors",
        """
SELECT e.day,
       count(DISTINCT e.visitor) FILTER (WHERE e.kind = 'view') AS viewed,
       count(DISTINCT e.visitor) FILTER (WHERE e.kind = 'cart') AS carted,
       count(DISTINCT e.visitor) FILTER (WHERE e.kind = 'buy') AS bought
FROM shop.raw_events e GROUP BY e.day""",
    ),
    CorpusStatement(
        "funnel_ordered",
        "steps that must come one after the other",
        """
SELECT v.day, count(DISTINCT v.visitor) AS viewed, count(DISTINCT c.visitor) AS then_carted,
       count(DISTINCT b.visitor) AS then_bought
FROM shop.raw_events v
LEFT JOIN shop.raw_events c ON c.visitor = v.visitor AND c.kind = 'cart' AND c.at >= v.at
LEFT JOIN shop.raw_events b ON b.visitor = c.visitor AND b.kind = 'buy' AND b.at >= c.at
WHERE v.kind = 'view'
GROUP BY v.day""",
    ),
    CorpusStatement(
        "event_sessions",
        "sessions: a new one after half an hour, by lag and a running sum",
        """
SELECT id, visitor, at,
       sum(begins) OVER (PARTITION BY visitor ORDER BY at, id
                         ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS session
FROM (SELECT e.id, e.visitor, e.at,
             CASE WHEN e.at - lag(e.at) OVER (PARTITION BY e.visitor ORDER BY e.at, e.id) <= 1800
                  THEN 0 ELSE 1 END AS begins
      FROM shop.raw_events e)""",
    ),
    CorpusStatement(
        "mart_sessions",
        "an aggregate of the sessions, a view on a view",
        """
SELECT s.visitor, s.session, min(s.at) AS begins, max(s.at) - min(s.at) AS lasts, count(*) AS n
FROM event_sessions s GROUP BY s.visitor, s.session""",
    ),
    CorpusStatement(
        "rolling_window",
        "a rolling sum by a frame of days",
        """
SELECT day, amount, sum(amount) OVER (ORDER BY day
       RANGE BETWEEN INTERVAL 6 DAYS PRECEDING AND CURRENT ROW) AS week
FROM (SELECT o.day, sum(o.amount) AS amount FROM shop.raw_orders o
      WHERE o.day IS NOT NULL GROUP BY o.day)""",
    ),
    CorpusStatement(
        "rolling_join",
        "a rolling sum by a join of each day with the days before it",
        """
WITH daily AS (
  SELECT o.customer, o.day, sum(o.amount) AS amount FROM shop.raw_orders o
  GROUP BY o.customer, o.day)
SELECT a.customer, a.day, sum(b.amount) AS week
FROM daily a JOIN daily b
  ON b.customer = a.customer AND b.day BETWEEN date_sub(a.day, 6) AND a.day
GROUP BY a.customer, a.day""",
    ),
    CorpusStatement(
        "running_total",
        "a running total per customer",
        """
SELECT o.id, o.customer, o.amount,
       sum(o.amount) OVER (PARTITION BY o.customer ORDER BY o.day, o.id) AS total
FROM shop.raw_orders o""",
    ),
    CorpusStatement(
        "top_orders",
        "the two largest orders of each customer",
        """
SELECT customer, id, amount
FROM (SELECT o.customer, o.id, o.amount,
             dense_rank() OVER (PARTITION BY o.customer ORDER BY o.amount DESC) AS place
      FROM shop.raw_orders o)
WHERE place <= 2""",
    ),
    CorpusStatement(
        "orders_with_tier",
        "a join with the version of a dimension that was valid then",
        """
SELECT o.id, o.customer, o.day, t.tier
FROM shop.raw_orders o
LEFT JOIN crm.tiers t ON t.customer = o.customer
  AND o.day >= t.valid_from AND (o.day < t.valid_to OR t.valid_to IS NULL)""",
    ),
    CorpusStatement(
        "tier_snapshot",
        "validity from one version to the next: lead",
        """
SELECT t.customer, t.tier, t.valid_from,
       lead(t.valid_from) OVER (PARTITION BY t.customer ORDER BY t.valid_from, t.id) AS valid_to
FROM crm.tiers t""",
    ),
    CorpusStatement(
        "current_tiers",
        "the rows of a snapshot that are valid now",
        "SELECT t.customer, t.tier FROM crm.tiers t WHERE t.valid_to IS NULL",
    ),
    CorpusStatement(
        "event_pages",
        "fields of a JSON document, typed",
        """
SELECT e.id, get_json_object(e.payload, '$.page') AS page,
       CAST(get_json_object(e.payload, '$.ms') AS INT) AS ms
FROM shop.raw_events e WHERE e.payload LIKE '{%'""",
    ),
    CorpusStatement(
        "event_tags",
        "elements of a JSON array as rows, counted",
        """
SELECT tag, count(*) AS events, count(DISTINCT visitor) AS visitors
FROM (SELECT e.visitor, explode(from_json(get_json_object(e.payload, '$.tags'),
                                          'array<string>')) AS tag
      FROM shop.raw_events e)
GROUP BY tag""",
    ),
    CorpusStatement(
        "share_of_total",
        "the share of each customer in everything",
        """
SELECT customer, amount, amount / sum(amount) OVER () AS share
FROM (SELECT o.customer, sum(o.amount) AS amount FROM shop.raw_orders o GROUP BY o.customer)""",
    ),
    CorpusStatement(
        "test_unique",
        "a data test: keys that come twice",
        """
SELECT o.customer, o.day, count(*) AS n FROM shop.raw_orders o
WHERE o.customer IS NOT NULL GROUP BY o.customer, o.day HAVING count(*) > 1""",
    ),
    CorpusStatement(
        "test_relationships",
        "a data test: payments of orders that are not there",
        """
SELECT p.id FROM shop.raw_payments p LEFT JOIN shop.raw_orders o ON o.id = p.order_id
WHERE p.order_id IS NOT NULL AND o.id IS NULL""",
    ),
    CorpusStatement(
        "test_accepted_values",
        "a data test: values outside of a list",
        """
SELECT o.status, count(*) AS n FROM shop.raw_orders o
WHERE o.status NOT IN ('placed', 'shipped') GROUP BY o.status""",
    ),
    CorpusStatement(
        "email_domains",
        "patterns, and an aggregate over them",
        """
SELECT lower(regexp_extract(c.email, '@(.+)$', 1)) AS domain, count(*) AS n,
       max(split_part(c.email, '@', 1)) AS someone
FROM crm.raw_customers c WHERE c.email RLIKE '^[^@]+@[^@]+$'
GROUP BY lower(regexp_extract(c.email, '@(.+)$', 1))""",
    ),
    CorpusStatement(
        "customer_scores",
        "quartiles by ntile",
        """
SELECT customer, ntile(4) OVER (ORDER BY n DESC, customer) AS frequency
FROM (SELECT o.customer, count(*) AS n FROM shop.raw_orders o GROUP BY o.customer)""",
    ),
    CorpusStatement(
        "median_order",
        "the median and another percentile of each group",
        """
SELECT o.status, median(o.amount) AS middle, percentile(o.amount, 0.9) AS high
FROM shop.raw_orders o GROUP BY o.status""",
    ),
    CorpusStatement(
        "days_since_order",
        "days up to today: the clock",
        """
SELECT o.customer, datediff(current_date(), max(o.day)) AS days
FROM shop.raw_orders o GROUP BY o.customer""",
    ),
    CorpusStatement(
        "first_touch",
        "the first and the last page of a visitor",
        """
SELECT DISTINCT e.visitor,
       first_value(e.kind) OVER (PARTITION BY e.visitor ORDER BY e.at, e.id) AS first_kind,
       last_value(e.kind) OVER (PARTITION BY e.visitor ORDER BY e.at, e.id
         ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS last_kind
FROM shop.raw_events e""",
    ),
    CorpusStatement(
        "methods_of_order",
        "a list in an order that the query gives",
        """
SELECT p.order_id, listagg(p.method, ',') WITHIN GROUP (ORDER BY p.method) AS methods
FROM shop.raw_payments p GROUP BY p.order_id""",
    ),
    CorpusStatement(
        "month_over_year",
        "a month beside the same month of the year before",
        """
WITH monthly AS (
  SELECT trunc(d.day, 'MM') AS month, sum(s.price) AS sales
  FROM shop.store_sales s JOIN crm.days d ON d.id = s.day_sk GROUP BY trunc(d.day, 'MM'))
SELECT a.month, a.sales, b.sales AS year_before
FROM monthly a LEFT JOIN monthly b ON add_months(b.month, 12) = a.month""",
    ),
    CorpusStatement(
        "order_sizes",
        "buckets by CASE, GROUP BY ALL",
        """
SELECT CASE WHEN o.amount >= 10 THEN 'large' WHEN o.amount IS NULL THEN 'none' ELSE 'small' END
         AS size, count(*) AS n, sum(o.amount) AS amount
FROM shop.raw_orders o GROUP BY ALL""",
    ),
    CorpusStatement(
        "customer_flags",
        "flags by EXISTS in the select list",
        """
SELECT c.id, EXISTS (SELECT 1 FROM shop.raw_orders o WHERE o.customer = c.id) AS has_ordered,
       EXISTS (SELECT 1 FROM crm.subscriptions s WHERE s.customer = c.id AND s.ended IS NULL)
         AS subscribes,
       CASE WHEN c.id IN (SELECT t.customer FROM crm.tiers t WHERE t.tier = 'gold') THEN 'gold'
            ELSE 'other' END AS tier
FROM crm.raw_customers c""",
    ),
    CorpusStatement(
        "first_orders",
        "the first order, by a correlated minimum",
        """
SELECT o.id, o.customer, o.day FROM shop.raw_orders o
WHERE o.day = (SELECT min(p.day) FROM shop.raw_orders p WHERE p.customer = o.customer)""",
    ),
)
