"""From the text of a query to the graph of a view, through Spark's own plan.

The promise is "equal to Spark", so Spark says what the SQL means. The road: `query_compiler` checks
the text (`text_check`, `output_names`), lets Spark analyse it in a session of its own
(`compile_session`), and applies a fixed list of Spark's rules. `plan` reads what that gives into
plain data, `drafts` builds the nodes of the graph from it, and `expressions` turns what they
compute into the kernel's words, or into text for Spark.
"""
