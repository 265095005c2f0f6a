"""What an algorithm promises: a consistency level for each way in which sources make transactions.

The scenarios are those of the Strobe paper (Zhuge, Garcia-Molina, Wiener 1996, section 3.1); the
levels its section 4.2. What the levels mean, as predicates that can be decided on a run, is in
`viewkeeper.check.levels`.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class TransactionKind(Enum):
    """How many updates a transaction has, and at how many sources."""

    SINGLE = "single"
    LOCAL = "local"
    GLOBAL = "global"


class Level(IntEnum):
    """Each level subsumes those below it."""

    NONE = 0
    CONVERGENCE = 1
    WEAK = 2
    STRONG = 3
    COMPLETE = 4

    @property
    def lower_name(self) -> str:
        return self.name.lower()
