-- Mart: products by what they brought, the best first.
CREATE MATERIALIZED VIEW mart_products AS
SELECT product_id, product_name, quantity, cents,
       rank() OVER (ORDER BY cents DESC) AS place
FROM (
  SELECT p.product_id, p.product_name, sum(l.quantity) AS quantity, sum(l.cents) AS cents
  FROM stg_products p
  JOIN int_order_lines l ON l.product_id = p.product_id
  GROUP BY p.product_id, p.product_name
) AS sold
