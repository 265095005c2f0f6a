"""A standalone Spark cluster of processes, and projects that are maintained on it.

`standalone_cluster` starts a master and workers; `cluster_world` is a project over a PostgreSQL and
a MariaDB server, which executors ask over TCP; `driver` is the process that maintains it.
"""
