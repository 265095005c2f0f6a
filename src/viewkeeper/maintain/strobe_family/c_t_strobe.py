"""C-TStrobe: C-Strobe on whole transactions, each with one query for all that it inserts.

Citation: Zhuge, Garcia-Molina, Wiener: The Strobe Algorithms for Multi-Source Warehouse Consistency
(1996), end of section 6, which names it and leaves it to the reader.

Assumes: what T-Strobe assumes.

Guarantees: complete consistency for single updates and for transactions of one source; weak
consistency for global transactions, whose parts are handled like transactions of their sources, as
in T-Strobe. With `gather`, parts wait until the transaction is whole; since what waits counts as
later and is compensated, global transactions are then complete too. With a `period` of k, up to k
transactions that wait are shown together: strong instead of complete. It needs no quiet moments.

Invariants: those of C-Strobe, with a transaction (what is left of it when rows that it inserts and
deletes again are removed) instead of an update: its deletions by key come first, then the rows of
its one query, in one commit.

Symbols: those of C-Strobe; UL(T) without pairs is `net_of`.
"""

from __future__ import annotations

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import ResumePoint
from viewkeeper.maintain.strobe_family.c_strobe import CStrobe, CStrobeRules
from viewkeeper.maintain.strobe_family.key_delete import Keys
from viewkeeper.view.sweep_plan import SweepPlan


def make_c_t_strobe(
    algebra: Algebra[D],
    plan: SweepPlan,
    resume: ResumePoint,
    *,
    keys: Keys,
    grouped: bool = True,
    period: int = 1,
    gather: bool = False,
) -> CStrobe[D]:
    """C-TStrobe."""
    rules = CStrobeRules(grouped, period, whole_units=True, gather=gather)
    return CStrobe(algebra, plan, resume, keys, rules)
