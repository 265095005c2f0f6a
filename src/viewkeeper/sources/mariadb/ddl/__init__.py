"""The DDL in the binlog: what a statement does to the shapes of followed tables.

The road: `statement` cuts the text and finds the tables that it names and what it does to them,
`alter_table` applies the clauses of ALTER TABLE and says what becomes of values, with
`column_definition` for declarations. `shape_effect` puts it together: the shapes after the
statement and the schema changes to report.
"""
