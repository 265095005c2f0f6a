CREATE MATERIALIZED VIEW sold AS
SELECT o.id, o.amount, c.city
FROM shop.orders o JOIN people.customer c ON c.id = o.customer;
