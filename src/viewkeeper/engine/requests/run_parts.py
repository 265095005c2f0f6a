"""The parts of a run, as one value for those who answer the requests of its users.

A maintainer makes each part once and hands out this value, so that who answers a request works on
the very objects that the loop works on. It is used in the thread that maintains, like the parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.engine.capture.lookout import Lookout
from viewkeeper.engine.evolution.view_adapter import ViewAdapter
from viewkeeper.engine.load.loader import Loader
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoices
from viewkeeper.engine.views.view_troubles import Troubles
from viewkeeper.engine.views.workspace import Workspace


@dataclass(frozen=True, slots=True)
class RunParts:
    """The parts of one maintainer."""

    workspace: Workspace
    loader: Loader
    lookout: Lookout
    choices: AlgorithmChoices
    adapting: ViewAdapter
    troubles: Troubles
