"""The shapes that followed tables had, step by step, from the last acknowledged position on.

The differences between shapes that follow each other are the schema changes that are reported, and
they decide what can still be asked. A step is either in the stream itself (a message has the whole
shape) and comes again whenever the stream is read again, or it was *inferred* with the help of the
catalogue, which by then may say less. So the steps are remembered with the state, and an inferred
one is taken from there when its transaction comes again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import psycopg

from viewkeeper.sources.postgres.shape_differences import (
    ShapeCause,
    ShapeDifference,
    list_differences,
)
from viewkeeper.sources.postgres.shape_query import (
    PostgresShape,
    decode_shape,
    encode_shape,
    read_shapes,
)
from viewkeeper.sources.postgres.types import quote_name


@dataclass(frozen=True, slots=True)
class ShapeStep:
    """A shape, from a position on, and what is known of how it came about."""

    position: int
    shape: PostgresShape
    cause: ShapeCause = field(default_factory=ShapeCause)
    inferred: bool = False


class PostgresShapeHistory:
    """The steps of every followed table, by its oid; the first is the shape to begin with."""

    def __init__(self, with_generated: bool, captures_added: bool = True) -> None:
        self._with_generated = with_generated
        self._captures_added = captures_added
        """Whether the values of a column are captured from when it was added, followed or not."""
        self._steps: dict[int, list[ShapeStep]] = {}
        self._inferred: dict[tuple[int, int], list[ShapeStep]] = {}

    def __contains__(self, oid: int) -> bool:
        return oid in self._steps

    def __iter__(self) -> Iterator[int]:
        return iter(self._steps)

    def begin_table(self, shape: PostgresShape) -> None:
        """Follow a table from this shape on."""
        self._steps[shape.oid] = [ShapeStep(0, shape)]

    def latest_shape(self, oid: int) -> PostgresShape:
        """The shape at the end of what is known."""
        return self._steps[oid][-1].shape

    def added_columns(self, oid: int) -> set[int]:
        """The columns that the table has by now and did not have to begin with."""
        return self.latest_shape(oid).by_number.keys() - self._steps[oid][0].shape.by_number.keys()

    def add_step(self, step: ShapeStep) -> bool:
        """Add what comes next; whether it is anything new."""
        steps = self._steps[step.shape.oid]
        if steps[-1].shape == step.shape:
            return False
        steps.append(step)
        return True

    def take_inferred(self, position: int, oid: int) -> ShapeStep | None:
        """The step that was inferred when the transaction at a position was read before."""
        steps = self._inferred.get((position, oid))
        return steps.pop(0) if steps else None

    def step_positions(self) -> set[int]:
        """Where there are steps."""
        return {step.position for steps in self._steps.values() for step in steps[1:]}

    def differences_at(self, position: int) -> list[tuple[int, ShapeDifference]]:
        """What happened in the transaction at a position: table and difference, in order."""
        return [
            (oid, difference)
            for oid, steps in self._steps.items()
            for before, step in pairwise(steps)
            if step.position == position
            for difference in self.differences_between(before.shape, step)
        ]

    def differences_between(
        self, before: PostgresShape, step: ShapeStep
    ) -> Iterator[ShapeDifference]:
        for each in list_differences(before, step.shape, step.cause, self._with_generated):
            untold = each.kind == "add_column" and not self._captures_added
            yield replace(each, kind="add_filled_column") if untold else each

    def find_ending(self, oid: int, numbers: Collection[int], after: int) -> ShapeDifference | None:
        """Something after a position that ends what can be asked of these columns before it."""
        steps = self._steps[oid]
        for before, step in pairwise(steps):
            if step.position > after:
                for difference in self.differences_between(before.shape, step):
                    if difference.is_ending(numbers):
                        return difference
        gone = self.latest_shape(oid).gone
        return ShapeDifference("drop_table") if gone else None

    def is_explained(self, shape: PostgresShape) -> bool:
        """Whether a shape is the one at the end of what is known."""
        return self.latest_shape(shape.oid) == shape

    def fold_until(self, position: int) -> None:
        """Forget the steps up to a position; the last of them is what to begin with."""
        for steps in self._steps.values():
            while len(steps) > 1 and steps[1].position <= position:
                del steps[0]
        for key in [key for key in self._inferred if key[0] <= position]:
            del self._inferred[key]

    def rewind_to(self, position: int) -> None:
        """Forget the steps after a position, which is read again; inferred ones are put aside."""
        self._inferred = {}
        for oid, steps in self._steps.items():
            for step in steps[1:]:
                if step.position > position and step.inferred:
                    self._inferred.setdefault((step.position, oid), []).append(step)
            steps[1:] = [step for step in steps[1:] if step.position <= position]

    def encode_steps(self) -> list[list[dict[str, Any]]]:
        return [
            [{**asdict(step), "shape": encode_shape(step.shape)} for step in steps]
            for steps in self._steps.values()
        ]

    def restore_steps(self, stored: Collection[Collection[Mapping[str, Any]]]) -> None:
        """Take over what was stored."""
        for each in stored:
            steps = [_decode_step(step) for step in each]
            self._steps[steps[0].shape.oid] = steps

    def clear_steps(self) -> None:
        self._steps, self._inferred = {}, {}


def _decode_step(stored: Mapping[str, Any]) -> ShapeStep:
    cause = stored["cause"]
    return ShapeStep(
        stored["position"],
        decode_shape(stored["shape"]),
        ShapeCause(tuple(cause["plain"]), cause["watched"], cause["moved"]),
        stored["inferred"],
    )


def unexplained_shapes(
    connection: psycopg.Connection[Any], history: PostgresShapeHistory
) -> dict[int, PostgresShape]:
    """The shapes that the catalogue has and the history does not, by the tables' oids.

    A table that is gone stays gone; what may still happen is that another one takes its name.
    """
    living = read_shapes(connection, tuple(history))
    shapes = {oid: shape for oid, shape in living.items() if not history.is_explained(shape)}
    for oid in set(history) - living.keys():
        shape = dropped_shape(connection, history.latest_shape(oid))
        if not history.is_explained(shape):
            shapes[oid] = shape
    return shapes


def dropped_shape(connection: psycopg.Connection[Any], last: PostgresShape) -> PostgresShape:
    """The shape of a table that is not there any more."""
    name = f"{quote_name(last.schema)}.{quote_name(last.name)}"
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone()
    return last.as_dropped(again=last.again or bool(row and row[0]))
