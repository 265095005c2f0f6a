from viewkeeper.sources.postgres.source import PostgresSource, open_source

__all__ = ["PostgresSource", "open_source"]
