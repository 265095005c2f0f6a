"""A Delta Lake table as a source: `source` is the protocol; the rest serves it.

`log` reads what each version changed, `table` what is in a version, and `read` answers from it.
"""

from viewkeeper.sources.delta_lake.source import DeltaLakeSource, open_source

__all__ = ["DeltaLakeSource", "open_source"]
