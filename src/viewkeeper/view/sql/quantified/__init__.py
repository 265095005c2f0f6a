"""Quantified comparisons, `x > ALL (SELECT ...)`, as Spark SQL can say them.

Spark's grammar has none with a subquery. `quantified_comparisons` finds them in a text and puts in
their place what `comparison_forms` says that they mean; `rewritten_text` knows where everything in
the new text was before, so that errors point into the user's own.
"""
