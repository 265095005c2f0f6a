-- Mart: what every customer has bought, those without orders too.
CREATE MATERIALIZED VIEW mart_customers AS
SELECT c.customer_id, c.customer_name, c.city,
       count(t.order_id) AS orders, coalesce(sum(t.cents), 0) AS cents, max(t.placed_on) AS last_order_on
FROM stg_customers c
LEFT JOIN int_order_totals t ON t.customer_id = c.customer_id
GROUP BY c.customer_id, c.customer_name, c.city
