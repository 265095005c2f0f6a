-- Test: lines that order nothing.
CREATE MATERIALIZED VIEW test_quantities_not_positive AS
SELECT order_id, product_id, quantity
FROM stg_items
WHERE quantity <= 0 OR quantity IS NULL
