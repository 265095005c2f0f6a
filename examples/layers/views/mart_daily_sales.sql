-- Mart: one row per day with orders.
CREATE MATERIALIZED VIEW mart_daily_sales AS
SELECT placed_on, count(*) AS orders, count(DISTINCT customer_id) AS customers, sum(cents) AS cents
FROM int_order_totals
GROUP BY placed_on
