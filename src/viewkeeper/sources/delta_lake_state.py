"""What is remembered of a Delta Lake table between runs, as one small JSON file.

The file is replaced whole, synced before it gets its name, so a crash leaves the old or the new.
One that cannot be read counts as lost: whoever needs it says so.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class State:
    """Which table is followed, the columns that views read, and the newest version reported.

    `digest` is of that version's log entry; None if it was gone already.
    """

    id: str
    columns: tuple[str, ...]
    seen: int
    digest: str | None


def read_state(home: Path) -> State | None:
    try:
        stored = json.loads((home / "state.json").read_text("utf-8"))
        return State(stored["id"], tuple(stored["columns"]), stored["seen"], stored["digest"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def write_state(home: Path, state: State) -> None:
    replace(home / "state.json", json.dumps(asdict(state)).encode())


def replace(path: Path, content: bytes) -> None:
    """Give a file new content, durably; a reader sees the old or the new, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
