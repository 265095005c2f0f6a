"""All algorithms by name: how they are made, what they need, what they promise.

The names are those of the command line and of the project file. The promises are the papers' and
DESIGN's, per scenario; `make simulate` finds the levels that runs really have and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from viewkeeper.maintain.batch_machine import BatchSweep
from viewkeeper.maintain.nested_sweep import NestedSweep
from viewkeeper.maintain.promises import Level, Scenario
from viewkeeper.maintain.protocol import Algorithm
from viewkeeper.maintain.pvm import Pvm
from viewkeeper.maintain.pvm_cc import PvmCc
from viewkeeper.maintain.sweep import Sweep

Make = Callable[..., Algorithm]
"""Called with the algebra, the sweep plan, the resume and the kind's options."""


@dataclass(frozen=True, slots=True)
class Kind:
    """An algorithm as users know it."""

    name: str
    make: Make
    promise: Mapping[Scenario, Level]
    arrival: bool = False
    """Infers what an answer saw from arrival order; gets FIFO channels, real or emulated."""
    keyed: bool = False
    """Needs a key of every relation in the stored view (`viewkeeper.view.keyed`)."""
    one_source: bool = False
    """All relations must be at one source."""
    quiescence: bool = False
    """The view may stand still for as long as updates keep coming."""
    as_of: bool = False
    """The promise is over the states as of every ts; a reader of the newest state gets strong."""
    options: Mapping[str, Any] | None = None
    """Names and default values of its options."""


def _all(level: Level) -> dict[Scenario, Level]:
    return dict.fromkeys(Scenario, level)


_SWEEP = {"parallel": 1, "arms": False}
_PVM = {"parallel": 4, "strategy": "sweep"}
_BATCH = {"part_rows": 10_000}

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("sweep", Sweep, _all(Level.COMPLETE), options=_SWEEP),
        Kind("nested_sweep", NestedSweep, _all(Level.STRONG), options={"depth": 5}),
        Kind("pvm", Pvm, _all(Level.CONVERGENCE), options=_PVM),
        Kind("pvm_cc", PvmCc, _all(Level.COMPLETE), options=_PVM),
        Kind("batch_sweep", BatchSweep, _all(Level.COMPLETE), as_of=True, options=_BATCH),
    )
}
