"""The clock: time as a source, whose transactions are ticks.

`ticks` is the arithmetic of positions and values; `source` is the source that a project has without
being told, and that views which read the time follow.
"""

from viewkeeper.sources.clock.source import ClockSource, open_source

__all__ = ["ClockSource", "open_source"]
