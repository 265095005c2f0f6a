-- Intermediate: the lines of all orders with their customers and products, over three databases.
CREATE MATERIALIZED VIEW int_order_lines AS
SELECT o.order_id, o.placed_on, o.customer_id, i.product_id, i.quantity,
       i.quantity * p.unit_cents AS cents
FROM stg_orders o
JOIN stg_items i ON i.order_id = o.order_id
JOIN stg_products p ON p.product_id = i.product_id
