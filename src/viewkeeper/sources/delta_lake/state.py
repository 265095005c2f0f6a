"""What is remembered of a Delta Lake table between runs, as one small JSON file.

One that cannot be read counts as lost: whoever needs it says so.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from viewkeeper.sources.disk import replace


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
