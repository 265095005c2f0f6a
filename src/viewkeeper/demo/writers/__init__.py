"""Processes that write to the demonstration's databases, at a given pace.

`paced_writer` has what all of them share, `sql_writer` what those of databases do; the others know
one kind of database each.
"""
