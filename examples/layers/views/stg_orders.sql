-- Staging: one row per order of the shop.
CREATE MATERIALIZED VIEW stg_orders AS
SELECT id AS order_id, customer_id, placed AS placed_on
FROM shop.orders
