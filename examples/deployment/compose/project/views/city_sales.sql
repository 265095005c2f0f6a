-- What every city has ordered.
CREATE MATERIALIZED VIEW city_sales AS
SELECT c.city, count(*) AS orders, sum(o.amount) AS amount
FROM shop.orders o JOIN shop.customer c ON c.id = o.customer_id
GROUP BY c.city
