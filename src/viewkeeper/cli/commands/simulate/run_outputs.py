"""What `viewkeeper simulate` writes of a run besides words: a diagram, and a history for `check`.

Both are of one run. Who offers several must ask which one is meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewkeeper.simulate.simulated_world import SimulatedWorld


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a run is drawn and recorded."""

    diagram: Path | None
    history: Path | None

    @property
    def has_any(self) -> bool:
        return self.diagram is not None or self.history is not None

    def write_run(self, world: SimulatedWorld, title: str) -> None:
        """Draw and record a run that was made."""
        if self.diagram is not None:
            from viewkeeper.simulate.diagrams.sequence_diagram import draw_diagram

            self.diagram.write_text(draw_diagram(world, title), encoding="utf-8")
        if self.history is not None:
            from viewkeeper.check.history.history_file import write_history

            text = write_history(world.run_history(as_of=world.kind.as_of))
            self.history.write_text(text, encoding="utf-8")
