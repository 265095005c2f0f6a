"""G-Strobe: T-Strobe that shows nothing while a global transaction has arrived in part.

Citation: Zhuge, Garcia-Molina, Wiener: The Strobe Algorithms for Multi-Source Warehouse Consistency
(1996), section 5.4.

Assumes: what T-Strobe assumes; the parts of a global transaction name it and their number, or one
source reports them all; transactions carry their source's sequence numbers.

Guarantees: strong consistency for single updates, for transactions of one source and for global
transactions. It needs quiet moments, and moments at which no global transaction is half received.

Invariants, the three conditions under which the view changes:
1. No query is unanswered.
2. What a received transaction depends on was received too: nothing that arrived waits for what
   precedes it at its source (the conservative form, by sequence numbers).
3. All parts of every transaction of which some part arrived were received and handled.

Symbols: TT is what was handled since the last commit, together with what the intake holds
(`UnitIntake.has_held`); AL, UQS and pending(Q) are `ActionList`.
"""

from __future__ import annotations

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import ResumePoint
from viewkeeper.maintain.strobe_family.key_delete import Keys
from viewkeeper.maintain.strobe_family.t_strobe import TStrobe
from viewkeeper.view.sweep_plan import SweepPlan


def make_g_strobe(
    algebra: Algebra[D], plan: SweepPlan, resume: ResumePoint, *, keys: Keys
) -> TStrobe[D]:
    """G-Strobe."""
    return TStrobe(algebra, plan, resume, keys, "awaited")
