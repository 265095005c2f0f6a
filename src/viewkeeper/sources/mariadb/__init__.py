"""MariaDB as a source: `source` is the protocol, a face over the parts.

The binlog is read as a replica reads it (`binlog`), by the shapes that tables had when their rows
were written (`logged_shapes`, carried along by `ddl`). Answers come from consistent snapshots
(`answers`). `describe` and `follow` say what a handle means, `state` knows up to where we have
read, `server_connection` and `channel` are the way to the server.
"""

from viewkeeper.sources.mariadb.source import MariadbSource, open_source

__all__ = ["MariadbSource", "open_source"]
