"""States in which a view's query has no value, and how a view gets over them.

A division by zero, a sum that does not fit its type, a text that is no number: under ANSI rules the
query has no value then, and there is no state to show. Such a ts is merged with the following ones
until there is a value again, and the view shows the state before it meanwhile. So an error that the
next transaction mends costs the states in between and nothing else; one that stays is told by
`status`, and tried again whenever something new comes.

What must hold:
1. Every ts before the first one without a value has its own state: it is found by halving.
2. The states that are merged are as few as possible: ends are tried one after the other.
3. Nothing here is durable but what is committed: a run that dies begins again where the view is.
"""

from __future__ import annotations

from collections.abc import Callable

from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import ExpressionError
from viewkeeper.warehouse.metadata.record import Resume, Stop

NO_VALUE = "no value:"
"""How the reason begins for which such a view does not advance."""

ENDS_MAX = 200
"""So many ends are tried one after the other; of more, every second, fourth ... of the rest."""

Attempt = Callable[[str, int, bool], ExpressionError | None]
"""Takes a view to a ts, its states apart or merged into one; gives the error if there is no value,
and raises any other."""


def is_without_value(stopped: str | None) -> bool:
    """Whether a view has stopped because its query has no value, and may be tried again."""
    return stopped is not None and stopped.startswith(NO_VALUE)


class MissingValues:
    """The views of one warehouse whose queries have no value at some ts."""

    def __init__(self, workspace: Workspace, attempt: Attempt) -> None:
        self._store = workspace.store
        self._attempt = attempt
        self.met: dict[str, ExpressionError] = {}
        """Views for which a batch has found no value."""
        self._tried: dict[str, int] = {}
        """The ts up to which a view was tried, and no value was found."""

    def is_tried(self, name: str, newest: int) -> bool:
        """Whether nothing has come since no value was found for a view."""
        return self._tried.get(name) == newest

    def advance_view(
        self, name: str, target: int, has_changes: Callable[[int], bool]
    ) -> ExpressionError | None:
        """Take a view towards a ts, over states without value; the error if there is none.

        `has_changes` says whether what the view reads changed at a ts.
        """
        while (error := self._attempt(name, target, False)) is not None:
            error = self._reach_last_value(name, target) or error
            at = self._store.head.views[name].ts
            ends = [ts for ts in range(at + 2, target + 1) if has_changes(ts) or ts == target]
            if not any(self._attempt(name, end, True) is None for end in _thin_out(ends)):
                return self._stop_view(name, target, error)
            if self._store.head.views[name].ts == target:
                break
        self._tried.pop(name, None)
        if self._store.head.views[name].stopped:
            self._store.commit([Resume(name)])
        return None

    def _reach_last_value(self, name: str, bad: int) -> ExpressionError | None:
        """Take a view to the last ts before one at which it has no value; the error there."""
        at, error = self._store.head.views[name].ts, None
        while bad - at > 1:
            middle = (at + bad) // 2
            found = self._attempt(name, middle, False)
            if found is None:
                at = middle
            else:
                bad, error = middle, found
        return error

    def _stop_view(self, name: str, target: int, error: ExpressionError) -> ExpressionError:
        """Nothing up to the target has a value: the view waits, and says so."""
        self._tried[name] = target
        at = self._store.head.views[name].ts
        reason = (
            f"{NO_VALUE} from ts {at + 1} on its query fails: {error}\n"
            "  hint: nothing is lost; it goes on by itself when the rows that it fails for change"
        )
        if self._store.head.views[name].stopped != reason:
            self._store.commit([Stop(name, reason)])
        return error


def _thin_out(ends: list[int]) -> list[int]:
    """All of the first ends, and fewer and fewer of the rest; the last one always.

    >>> _thin_out([3, 4, 5])
    [3, 4, 5]
    >>> len(_thin_out([*range(100_000)])) < 250
    True
    """
    kept, at, step = ends[:ENDS_MAX], ENDS_MAX, 2
    while at < len(ends):
        kept.append(ends[at])
        at, step = at + step, step * 2
    return kept if not ends or kept[-1] == ends[-1] else [*kept, ends[-1]]
