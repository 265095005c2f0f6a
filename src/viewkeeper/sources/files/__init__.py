from viewkeeper.sources.files.source import FilesSource, open_source

__all__ = ["FilesSource", "open_source"]
