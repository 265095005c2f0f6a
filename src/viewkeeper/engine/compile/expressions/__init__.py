"""Expressions of Spark's plan as expressions of a view: `expression_translation` finds the kernel's
words; `expression_text` writes what is left for Spark, and `text_comparison` has Spark read it
again. `spark_types` are the types that a view can keep.
"""
