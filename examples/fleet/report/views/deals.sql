CREATE MATERIALIZED VIEW deals AS
SELECT s.id, b.name, s.amount, s.city, b.lives_in
FROM sales.sold s JOIN crm.buyers b ON b.order_id = s.id;
