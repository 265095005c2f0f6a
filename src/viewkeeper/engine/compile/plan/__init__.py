"""Spark's plan as plain data: `plan_rules` rewrites it, `plan_reader` reads it into the trees of
`plan_tree`, and `pivot_values` takes the arrays of PIVOT apart on the way.
"""
