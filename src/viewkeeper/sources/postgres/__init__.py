"""PostgreSQL as a source: `source` is the protocol, by decoding or by triggers; the rest serves it.

What is read of the stream is in `stream`, `messages`, `stage` and `capture`; what is asked in a
shared snapshot in `snapshot`, `shared`, `lookup` and `tail`; what a project remembers in `state`.
"""

from viewkeeper.sources.postgres.source import PostgresSource, open_source

__all__ = ["PostgresSource", "open_source"]
