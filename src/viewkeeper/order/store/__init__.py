"""A registry's state in a database.

The SQL is common, the two databases differ in how they are opened and locked; one owner at a time
writes.
"""
