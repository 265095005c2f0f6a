"""From the text of a query to the graph of a view, through Spark's own plan.

The promise is "equal to Spark", so Spark says what the SQL means. The road: `query_compiler` checks
the text (`text_check`, `output_names`), lets Spark analyse it in a session of its own
(`compile_session`), applies a fixed list of Spark's rules (`plan_rules`) and reads the plan into
plain data (`plan_reader`, `plan_tree`). `operator_graph` then melts operators into cores
(`core_draft`, `join_draft`), folds (`fold_draft`, `fold_source`) and the other nodes
(`row_operations`, `graph_draft`), and `expression_translation` turns expressions into the kernel's
words, or into text for Spark (`expression_text`) that is analysed again and compared
(`text_comparison`).
"""
