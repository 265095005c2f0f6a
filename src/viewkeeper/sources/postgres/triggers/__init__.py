"""Capture by triggers, for servers that do not allow logical decoding.

`follow` registers the project and puts tables, functions and triggers into the database
(`installation`). The `log` knows its readers. `log_reader` looks: it stores a snapshot as a
position and reports the log since the one before; and it reads changes between looks, and answers
with the log in one snapshot. `capture` has what they share: the lock, the looks, and the check that
this is still the same database. `doctor` says how it is.
"""
