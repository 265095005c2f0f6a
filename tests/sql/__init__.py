"""What SQL means as a view: every construct, every event and random queries, judged by Spark.

A case has two SQLite sources with a history of their own (`relation_history`), a project with views
(`report_project`), and a judge that runs the user's text on Spark over the relations as of every ts
(`spark_judge`), knowing nothing of Viewkeeper but which ts each transaction got. `constructs` is
the table of what can be written; `docs/sql.md` is made from it. `random_queries` writes the rest.

Without Spark, and so at every ts, `random_plans` are judged by SQLite (`sqlite_judge`).
"""
