-- Staging: one row per product in an order.
CREATE MATERIALIZED VIEW stg_items AS
SELECT order_id, product_id, quantity
FROM shop.item
