from viewkeeper.sources.mariadb.source import MariadbSource, open_source

__all__ = ["MariadbSource", "open_source"]
