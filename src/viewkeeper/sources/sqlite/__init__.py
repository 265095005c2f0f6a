from viewkeeper.sources.sqlite.source import SqliteSource, open_source

__all__ = ["SqliteSource", "open_source"]
