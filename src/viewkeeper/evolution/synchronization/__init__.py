"""View synchronization: the SQL of a view, rewritten for what its sources have become.

`synchronize` is its entrance; whoever only quotes a name as a source does (`parts_of_sql`) does not
need the rest.
"""
