"""Servers of one's own, for the demonstration, the tests and the benchmarks.

`private_servers` starts PostgreSQL and MariaDB in a temporary folder, under an unprivileged user,
and ends them; `standalone_cluster` does so with a Spark cluster.
"""
