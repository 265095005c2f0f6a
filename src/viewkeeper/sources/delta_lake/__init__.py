from viewkeeper.sources.delta_lake.source import DeltaLakeSource, open_source

__all__ = ["DeltaLakeSource", "open_source"]
