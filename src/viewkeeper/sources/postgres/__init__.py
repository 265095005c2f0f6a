"""PostgreSQL as a source. `source` is the one face, over the parts of either way of capture.

`postgres_server` connects; `database_description` says what tables are, from `schema` and `types`.
The change stream of a server that allows logical decoding is read in `decoding`; in `triggers`, a
log that triggers write takes its place. Questions are answered in `answers`, in snapshots that all
tasks share. What a table was at a position is in `shape_steps`, from the shapes that `shape_query`
reads; `doctor` says how the source is.
"""

from viewkeeper.sources.postgres.source import PostgresSource, open_source

__all__ = ["PostgresSource", "open_source"]
