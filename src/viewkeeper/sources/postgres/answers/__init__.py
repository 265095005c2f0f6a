"""Answers of PostgreSQL, whichever way it is captured.

`questions` locks the asked tables, exports a snapshot and checks that the question can still be
answered. A task opens the `snapshot`, puts each lookup as a condition (`lookup`) and gets its rows
as Arrow (`rows`).
"""
