"""MariaDB as a source: `source` is the protocol; the rest serves it.

The binlog is read by `stream`, `log` and `gather` into rows (`log_values`, `rows`); answers come
from consistent snapshots (`read`, `answer`, `lookup`, `tail`); `state` knows up to where we have
read.
"""

from viewkeeper.sources.mariadb.source import MariadbSource, open_source

__all__ = ["MariadbSource", "open_source"]
