"""Lookups and scans of PostgreSQL, answered in one exported snapshot.

Tables are locked against reshaping, a snapshot is exported for all tasks, and each answer knows
which transactions it shows.
"""
