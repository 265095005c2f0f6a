"""A folder of files as a source: `source` is the protocol; the rest serves it.

`table_files` says what is there and at rest, `acceptor` makes a state of it with `file_parser`,
`accepted_states` and `bag_difference`, and `snapshot` answers from the kept copies.
"""

from viewkeeper.sources.files.source import FilesSource, open_source

__all__ = ["FilesSource", "open_source"]
