"""A folder of files as a source: `source` is the protocol; the rest serves it.

`listing` says what is there and at rest, `accept` makes a state of it with `parse`, `kept` and
`net`, and `snapshot` answers from the kept copies.
"""

from viewkeeper.sources.files.source import FilesSource, open_source

__all__ = ["FilesSource", "open_source"]
