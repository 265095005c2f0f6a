"""What a tick of the clock costs a view, in sentences.

A window of days that only conditions read is moved by asking for the rows of those days. Everything
else that reads the time reads a whole relation at each tick, and where the time is shown or
computed with, all rows of the view may change: that is said before anybody is surprised by it.
"""

from __future__ import annotations

from viewkeeper.view.definition import CLOCK, Core, Graph, Place, ViewDefinition
from viewkeeper.view.expression import places_of
from viewkeeper.view.moving_window import moving_window_of


def explain_ticks(graph: Graph) -> list[str]:
    """A sentence for every place at which a report reads the clock."""
    cores = [node.view for node in graph.nodes if isinstance(node, Core)]
    return [
        _explain_place(core, place)
        for core in cores
        for place in core.places
        if place.relation.source == CLOCK
    ]


def _explain_place(core: ViewDefinition, clock: Place) -> str:
    every = f"every {clock.relation.table}, when the clock ticks"
    if len(core.places) == 1:
        return f"{every}, the row of the clock is replaced"
    if any(clock.index in (e.left.place, e.right.place) for e in core.equalities):
        return f"{every}, the rows that it is equal to are asked for by key"
    if any(clock.index in places_of(output.expression) for output in core.outputs):
        names = ", ".join(_name(place) for place in core.places if place is not clock)
        return f"{every}, {names} is read whole, and every row of it may change: the time is shown"
    window = moving_window_of(core, clock.index)
    if window is None:
        names = ", ".join(_name(place) for place in core.places if place is not clock)
        return f"{every}, {names} is read whole"
    target = core.places[window.target]
    if window.column is None:
        return (
            f"{every}, {_name(target)} is read whole; conditions that compare one column that is a "
            "DATE or a TIMESTAMP with the time would ask for what has passed"
        )
    return f"{every}, rows of {_name(target)} are asked for whose {window.column.name} has passed"


def _name(place: Place) -> str:
    return f"#{place.relation.node}" if place.relation.node is not None else str(place.relation)
