"""Nodes of a graph from operators of a plan.

`operator_graph` walks the operators; joins, filters and projections grow a `core_draft`, joined by
`join_draft` with what `lifted_conditions` moves out of an ON. `fold_draft` and `fold_source` make
folds, `scalar_draft` values of scalar subqueries, `single_row_join` joins that count rows,
`row_operations` everything else. `graph_draft` holds the nodes that are finished.
"""
