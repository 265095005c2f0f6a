"""SQLite as a source: `source` is the protocol; the rest serves it.

Triggers (`triggers`, `capture`) write the log that `log` reads; `read` and `lookup` answer in the
same transaction; `types` says what can be kept.
"""

from viewkeeper.sources.sqlite.source import SqliteSource, open_source

__all__ = ["SqliteSource", "open_source"]
