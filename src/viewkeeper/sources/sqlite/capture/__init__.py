"""Capturing the changes of a SQLite database by triggers.

The road: `follow` makes and drops captures as readers need them, and writes down what became of
captured tables as shapes (`recorded_shapes`). `trigger_sql` is the text of the
triggers, `capture_tables` the tables of ours that they and the readers use.
"""
