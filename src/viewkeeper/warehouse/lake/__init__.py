"""Delta Lake tables, written by us alone and readable by all.

Data files have digests in their names; the log's entries are written in order, and what a table
holds is checked against them.
"""
