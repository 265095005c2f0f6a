"""Small files of a source's own, written so that a crash leaves the old content or the new.

The content is on disk before the file gets its name, and the name is on disk before anybody relies
on it.
"""

from __future__ import annotations

import os
from pathlib import Path


def replace(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Give a file new content; a reader sees the old or the new, whole.

    What is not durable may be the old content again after a power cut.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
