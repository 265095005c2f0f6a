-- Intermediate: one row per order.
CREATE MATERIALIZED VIEW int_order_totals AS
SELECT order_id, customer_id, placed_on, count(*) AS lines, sum(cents) AS cents
FROM int_order_lines
GROUP BY order_id, customer_id, placed_on
