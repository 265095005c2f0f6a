"""TPC-H over three kinds of databases: 22 views from the 22 queries, with refreshes, each judged.

`tables` says which table is in which database, `generator` makes the rows, `queries` are the 22
texts, `databases` hold the tables and what was ever in them, `refreshes` change them, and `run`
measures and judges one query after the other: `make tpch`.
"""
