"""Histories as files and as values.

`history_file` reads JSON and complains with the place in it, `recorded_history` is what the checker
takes, `history_values` reads single values.
"""
