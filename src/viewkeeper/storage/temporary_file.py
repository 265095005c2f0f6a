"""A file for what does not fit into memory, for as long as it is read.

Whoever makes it opens it, and takes its name away as soon as it is written: the system keeps the
file for those who have it open, and nothing is left of it when they end, however they end.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from viewkeeper.storage import disk


def make_temporary_file(folder: str | None, suffix: str) -> Path:
    """An empty file with a name of its own, in a folder, which is made if it is not there, or where
    the system has its own ones."""
    place = Path(folder or tempfile.gettempdir())
    with disk.translate_os_errors("spill into", place):
        place.mkdir(parents=True, exist_ok=True)
        descriptor, path = tempfile.mkstemp(suffix=suffix, dir=place)
        os.close(descriptor)
    return Path(path)
