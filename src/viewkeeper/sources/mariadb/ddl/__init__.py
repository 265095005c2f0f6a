"""The DDL in the binlog: what a statement does to the shapes of followed tables.

The road: `tokens` cuts the text, `statement` finds the tables that it names and what it does to
them, `alter_table` applies the clauses of ALTER TABLE, with `column_definition` for declarations
and `value_effect` for what becomes of values. `shape_effect` puts it together: the shapes after the
statement and the schema changes to report.
"""
