"""What a fleet does without an order: every member takes ids as they arrive.

This is Example 1 of Ding, Zhang, Rundensteiner (2000). Deltas carry the ids of the base updates
that caused them. A member takes the id that arrived first as soon as all its parents have sent
theirs, from each parent the state that it had after that id. Parents that took ids in different
orders then show different states of the bases, and nothing tells.
"""

from __future__ import annotations

from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.mediator import TakenIds


class ArrivalQueue:
    """The queue of one member; `behind` are the bases behind each source."""

    def __init__(self, positions: dict[str, int], behind: dict[str, frozenset[str]]) -> None:
        self.positions = positions
        self._behind = behind
        self._arrived: list[GlobalId] = []
        self._at: dict[tuple[str, GlobalId], int] = {}
        """Where a source stood after an id."""
        self.n = 0

    def note_delta(self, source: str, id: GlobalId, position: int) -> None:
        """A delta came from a source; it stood there after it."""
        self._at[source, id] = position
        if id not in self._arrived:
            self._arrived.append(id)

    def take_ids(self, limit: int) -> list[TakenIds]:
        """The ids that have come from everybody, in the order of their arrival."""
        taken: list[TakenIds] = []
        while self.n < len(self._arrived) and len(taken) < limit:
            id = self._arrived[self.n]
            to = {
                s: self._at.get((s, id)) for s, bases in self._behind.items() if id.source in bases
            }
            moves = {s: at for s, at in to.items() if at is not None}
            if len(moves) < len(to):
                break
            self.n += 1
            forward = {s: at for s, at in moves.items() if at > self.positions[s]}
            self.positions.update(forward)
            taken.append(TakenIds(self.n, (id,), forward, self.n))
        return taken
