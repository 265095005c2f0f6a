"""Histories as files and as values.

`history_file` reads JSON, value by value, and complains with the place in it (`JsonPlace`);
`recorded_history` is what the checker takes.
"""
