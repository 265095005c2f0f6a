"""Queries over views: one SELECT, answered without Spark where that is certain to be the same.

`checked_query` says whether a text may be run at all. `select_clauses` takes a SELECT apart,
`arrow_plan` turns it into expressions of the kernel or says why only Spark can, and `arrow_answer`
computes the rows. Whatever is not certain to be what Spark would answer goes to Spark.
"""
