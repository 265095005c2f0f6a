"""SQLite as a source: `source` is the protocol, a face over the parts.

Triggers write a change log into the database itself (`capture`), which `log` reads and reports.
`reader_registration` is what a project has in the database, and trims the log; `snapshot` answers
in the same transaction as it reads the log, with `lookup` for many keys. `handle_lookup` says what
a handle means, `types` what can be kept.
"""

from viewkeeper.sources.sqlite.source import SqliteSource, open_source

__all__ = ["SqliteSource", "open_source"]
