-- Staging: one row per customer of the CRM.
CREATE MATERIALIZED VIEW stg_customers AS
SELECT id AS customer_id, name AS customer_name, coalesce(city, 'unknown') AS city
FROM crm.customer
