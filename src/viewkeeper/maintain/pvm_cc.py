"""PVM CC: PVM with a commit queue, so that the view moves in the order in which updates came.

Citation: Zhang, Ding, Rundensteiner: Parallel multisource view maintenance, The VLDB Journal 2003,
section 4.2, figure 17.

Assumes: what PVM assumes, but for negative counts: in order, no count is ever below zero.

Guarantees: complete consistency.

Invariants:
1. Updates are committed one by one in the order of their ts; nothing is ever ahead of the low-water
   mark.
2. A view change that is done before an earlier one waits in the commit queue and, as in figure 17,
   keeps its place in the processing set: at most `parallel` updates are at work or queued.

Symbols: CommitQueue is `_queue`; the others as in `viewkeeper.maintain.pvm`.
"""

from __future__ import annotations

from collections.abc import Mapping

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.protocol import Action, Change, Resume
from viewkeeper.maintain.pvm import Pvm, StrategyName
from viewkeeper.view.plan import SweepPlan


class PvmCc(Pvm):
    """PVM CC; the parameters are PVM's."""

    def __init__(
        self,
        algebra: Algebra[D],
        plan: SweepPlan,
        resume: Resume,
        parallel: int = 4,
        strategy: StrategyName = "sweep",
        fan_out: Mapping[tuple[int, int], float] | None = None,
    ) -> None:
        super().__init__(algebra, plan, resume, parallel, strategy, fan_out)
        self._queue: dict[int, list[Change]] = {}
        """View changes that are done, by ts, until everything before them is committed."""

    def _finished(self, ts: int, changes: list[Change]) -> list[Action]:
        self._queue[ts] = changes
        actions: list[Action] = []
        while self._at_work and self._at_work[0] in self._queue:
            first = self._at_work[0]
            actions += super()._finished(first, self._queue.pop(first))
        return actions
