"""What is remembered of a Delta Lake table between runs, as one small sealed file.

One that is not there counts as lost: whoever needs it says so. One that is damaged is an error of
the source.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial

from viewkeeper.sources.delta_lake.version_shapes import SeenShape, history_of
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.sources.tables.shape import TableShape
from viewkeeper.sources.tables.shape_history import ShapeHistory
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


def read_state(files: StateFiles) -> DeltaState | None:
    return files.read_file(FILE, "state", partial(read_typed, DeltaState))


def write_state(files: StateFiles, state: DeltaState) -> None:
    files.write_file(FILE, "state", asdict(state))


def note_state(files: StateFiles, state: DeltaState) -> None:
    """Remember versions that were reported; the log has them too, from the state before on."""
    files.note_file(FILE, "state", asdict(state), durable=True)
