"""Delta Lake tables: plan, record, redo, read as of, compact, publish.

What needs Spark is in `rows.spark_frames`, `compact` and `publish`: reading a head, a state or the
ledger starts no JVM and imports no PySpark.
"""
