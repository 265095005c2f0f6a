"""Statements in the manner of others: of TPC-DS, and of projects that are kept with dbt.

`corpus_tables` has small tables of both kinds and a random history of them, `warehouse_statements`
and `project_statements` the statements, written for them by us. `corpus_run` maintains all of them
in one project through the history; what became of each is kept in `results.json`, from which
`corpus_page` makes the table of `docs/sql-corpora.md`.
"""
