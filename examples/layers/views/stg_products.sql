-- Staging: one row per product of the stock.
CREATE MATERIALIZED VIEW stg_products AS
SELECT id AS product_id, title AS product_name, cents AS unit_cents
FROM stock.product
