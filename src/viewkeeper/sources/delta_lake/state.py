"""What is remembered of a Delta Lake table between runs, as one small sealed file.

One that is not there counts as lost: whoever needs it says so. One that is damaged is an error of
the source.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from viewkeeper.sources.delta_lake.version_shapes import SeenShape, history_of
from viewkeeper.sources.state_files import read_state_file
from viewkeeper.sources.tables.shape import TableShape
from viewkeeper.sources.tables.shape_history import ShapeHistory
from viewkeeper.storage.sealed_json import write_sealed
from viewkeeper.storage.typed_json import read_typed

FILE = "state.json"


@dataclass(frozen=True, slots=True)
class DeltaState:
    """The shapes that the followed table had since it is followed, and the newest version that was
    reported.

    `digest` is of that version's log entry; None if it was gone already.
    """

    shapes: tuple[SeenShape, ...]
    seen: int
    digest: str | None

    @property
    def history(self) -> ShapeHistory[TableShape]:
        return history_of(self.shapes)


def read_state(home: Path) -> DeltaState | None:
    return read_state_file(home / FILE, "state", partial(read_typed, DeltaState))


def write_state(home: Path, state: DeltaState) -> None:
    write_sealed(home / FILE, "state", asdict(state))
