"""Answers of a MariaDB server: lookups and scans in consistent snapshots.

The road: `snapshot` opens a snapshot whose cut is a place in the binlog and checks that a question
can be answered; `lookup` writes the query for many keys; `rows` reads the answer as Arrow batches.
The tail of an answer comes from the binlog (`binlog.tail`).
"""
