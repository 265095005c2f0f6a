"""What is remembered of a Delta Lake table between runs, as one small JSON file.

One that cannot be read counts as lost: whoever needs it says so.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from viewkeeper.sources.delta_lake.shapes import History, SeenShape
from viewkeeper.storage.disk import replace


@dataclass(frozen=True, slots=True)
class State:
    """The shapes that the followed table had since it is followed, and the newest version that was
    reported.

    `digest` is of that version's log entry; None if it was gone already.
    """

    shapes: tuple[SeenShape, ...]
    seen: int
    digest: str | None

    @property
    def history(self) -> History:
        return History(self.shapes)


def read_state(home: Path) -> State | None:
    try:
        stored = json.loads((home / "state.json").read_text("utf-8"))
        shapes = tuple(
            SeenShape(**{**shape, "partitioned_by": tuple(shape["partitioned_by"])})
            for shape in stored["shapes"]
        )
        return State(shapes, stored["seen"], stored["digest"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def write_state(home: Path, state: State) -> None:
    replace(home / "state.json", json.dumps(asdict(state)).encode())
