-- Test: orders whose customer the CRM does not have.
CREATE MATERIALIZED VIEW test_orders_without_customer AS
SELECT o.order_id, o.customer_id
FROM stg_orders o
LEFT ANTI JOIN stg_customers c ON c.customer_id = o.customer_id
