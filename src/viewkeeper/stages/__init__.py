"""Stages above the cores of a graph: operators that need something about each key.

A fold keeps accumulators per group. `fold_calls` is the table of aggregate functions, `accumulator`
what is kept for them, `extreme` the part of min and max, and `fold` the road of a batch: signed
rows become partials (`pre_aggregate`, in tasks), partials become signed rows of the fold
(`advance_fold`). `exact_numbers` and `exact_floats` add without ever rounding.

A recompute evaluates an operator again for whole keys: `key_recompute` is the road of a batch,
`sorted_rows` rows in order and their frames, `window_calls` and `ordered_aggregates` the functions.

`key_index` finds the stored rows of a node by key, for batches that touch few of them.
"""
