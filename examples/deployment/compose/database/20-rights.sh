#!/bin/sh
# What Viewkeeper needs in the database, and no more; docs/sources/postgres.md says why.
set -eu
psql -v ON_ERROR_STOP=1 -v password="$VIEWKEEPER_PASSWORD" -U postgres -d shop <<'SQL'
CREATE ROLE viewkeeper LOGIN REPLICATION PASSWORD :'password';
GRANT SELECT ON customer, orders TO viewkeeper;
ALTER TABLE customer REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE PUBLICATION viewkeeper FOR TABLE customer, orders;
SQL
