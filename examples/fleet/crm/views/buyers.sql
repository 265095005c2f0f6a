CREATE MATERIALIZED VIEW buyers AS
SELECT o.id AS order_id, c.name, c.city AS lives_in
FROM people.customer c JOIN shop.orders o ON o.customer = c.id;
