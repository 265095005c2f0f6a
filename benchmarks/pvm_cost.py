"""What SWEEP and PVM cost, by the formulas of the PVM paper: messages, waiting, total time.

Citation: Zhang, Ding, Rundensteiner: Parallel multisource view maintenance, 2003, section 5, the
equations 2 to 16; each function names the one that it is.

Assumes: m sources with n / m updates each, taken in turn (source 1, 2, ..., m, 1, ...), all of them
before the first is handled; every update affects the view and every lookup takes the same time.
Times are in any unit, as long as it is one.

The printed text has two slips. Equation 4 does not give the matrix 3 that it stands for, from the
second update on: it and its k have i - 2 where i - 1, and a remainder by m + 1 where one by m would
be right. Matrix 3 is what happens, and equation 6 is its sum. In equation 6 itself the terms of the
second sum are printed as n; they must be i.

Symbols: n `updates`, m `sources`, p `parallel`, q `capacity`, c `run`, i `interval`, a `start`,
C_remote `remote`, C_local `local`, t `each`, T `*_time`, M `*_messages`, DU_i `update`, IS_j
`source`.
"""

from __future__ import annotations

from collections.abc import Callable


def source_of(update: int, sources: int, run: int = 1) -> int:
    """Table 2: where an update comes from; `run` consecutive ones come from the same source (7.4).

    >>> [source_of(update, 3) for update in range(1, 6)]
    [1, 2, 3, 1, 2]
    >>> [source_of(update, 3, run=2) for update in range(1, 6)]
    [1, 1, 2, 2, 3]
    """
    return (update - 1) // run % sources + 1


# -- messages --------------------------------------------------------------------------------------


def concurrent_updates(updates: int, sources: int, update: int, source: int) -> int:
    """Matrix 3: the updates of a source that come after this one, so that its answer has them.

    Every one of them costs a local query. An update does not ask its own source.

    >>> [[concurrent_updates(60, 4, i, j) for j in range(1, 5)] for i in (1, 2, 5)]
    [[0, 15, 15, 15], [14, 0, 15, 15], [0, 14, 14, 14]]
    """
    own = source_of(update, sources)
    if source == own:
        return 0
    earlier = (update - 1) // sources + (source < own)
    return updates // sources - earlier


def concurrent_updates_as_printed(updates: int, sources: int, update: int, source: int) -> int:
    """Equation 4, in the reading nearest to matrix 3 (`i mod m` is m, not 0, for the last source).

    >>> [[concurrent_updates_as_printed(60, 4, i, j) for j in range(1, 5)] for i in (1, 2, 5)]
    [[0, 15, 15, 15], [15, 0, 15, 15], [0, 14, 14, 15]]
    """
    if source == source_of(update, sources):
        return 0
    k = _k_as_printed(update, sources)
    seen = k if source <= (update - 2) % (sources + 1) else k - 1
    return max(0, updates // sources - seen)


def _k_as_printed(update: int, sources: int) -> int:
    """Equation 5."""
    return (update - 2) // sources + 1 if update > 1 else 0


def sum_over(entry: Callable[[int, int, int, int], int], updates: int, sources: int) -> int:
    """All entries of a matrix: of `concurrent_updates` or of what is printed for it."""
    return sum(
        entry(updates, sources, update, source)
        for update in range(1, updates + 1)
        for source in range(1, sources + 1)
    )


def local_messages(updates: int, sources: int) -> int:
    """Equation 6: local queries; pairs of updates without those that share a source.

    >>> local_messages(60, 4)
    1350
    """
    assert updates % sources == 0, "the model wants as many updates from every source"
    return (sources - 1) * updates**2 // (2 * sources)


def remote_messages(updates: int, sources: int) -> int:
    """Equation 7: every update asks every other source.

    >>> remote_messages(60, 4)
    180
    """
    return (sources - 1) * updates


# -- SWEEP -----------------------------------------------------------------------------------------


def sweep_time_with_local(updates: int, sources: int, remote: float, local: float) -> float:
    """Equation 8: remote and local queries, one after the other."""
    asked = remote_messages(updates, sources) * remote
    return asked + local_messages(updates, sources) * local


def sweep_time(updates: int, sources: int, remote: float) -> float:
    """Equations 9 and 11: local queries neglected, n updates of t each."""
    return updates * update_time(sources, remote)


def update_time(sources: int, remote: float) -> float:
    """Equation 10: t, the time of one update."""
    return (sources - 1) * remote


# -- PVM -------------------------------------------------------------------------------------------


def waiting_time(update: int, parallel: int, capacity: float, each: float, start: float) -> float:
    """Equations 12 and 13: how long an update waits until it is handled.

    `capacity` is how many lookups all sources together answer at a time, infinite for case 1. With
    one lookup at a time per source it is m (footnote 6).

    >>> [waiting_time(i, 3, 4, each=10, start=1) for i in range(1, 8)]
    [0, 1, 2, 10, 11, 12, 20]
    >>> [waiting_time(i, 3, 2, each=10, start=1) for i in range(1, 6)]
    [0, 1, 10, 11, 20]
    """
    at_once = int(min(parallel, capacity))
    rounds, within = divmod(update - 1, at_once)
    return rounds * each + within * start


def pvm_time(updates: int, parallel: int, capacity: float, each: float, start: float = 0) -> float:
    """Equation 14: the last update that is handled, and its time.

    >>> [pvm_time(60, p, 4, each=3) for p in (1, 2, 3, 4, 5)]
    [180, 90, 60, 45, 45]
    """
    numbers = range(1, updates + 1)
    return max(waiting_time(update, parallel, capacity, each, start) for update in numbers) + each


def pvm_time_in_full_rounds(updates: int, parallel: int, capacity: float, each: float) -> float:
    """Equation 15: equation 14 where all rounds but the last are full and it has one update.

    >>> pvm_time_in_full_rounds(61, 4, 4, each=3) == pvm_time(61, 4, 4, each=3, start=0.01)
    True
    """
    return ((updates - 1) / min(parallel, capacity) + 1) * each


def pvm_time_at_interval(
    updates: int, parallel: int, capacity: float, each: float, interval: float
) -> float:
    """Figure 26, left: equation 14 for updates of which one happens every `interval`.

    The paper draws it without an equation. Either the updates are slow, and the last one ends t
    after it happens; or they wait, and only those within a round still come at their intervals.
    SWEEP is `parallel` 1.

    >>> [pvm_time_at_interval(40, 1, 2, 800, interval) for interval in (0, 800, 1600)]
    [32000, 32000, 63200]
    """
    waiting = pvm_time(updates, parallel, capacity, each, start=interval)
    return max(waiting, (updates - 1) * interval + each)


# -- local against remote --------------------------------------------------------------------------


def local_share(updates: int, sources: int, cost_ratio: float) -> float:
    """Equation 16: local time over remote time; `cost_ratio` is C_local / C_remote.

    >>> local_share(200, 10, 0.01)
    0.1
    """
    return updates / (2 * sources) * cost_ratio


def concurrent_updates_max(sources: int, cost_ratio: float, share: float) -> float:
    """Equation 16 solved for n: up to so many updates, local time stays within `share`.

    >>> round(concurrent_updates_max(10, 0.01, 0.1))
    200
    """
    return share * 2 * sources / cost_ratio
