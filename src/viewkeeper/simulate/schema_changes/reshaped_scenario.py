"""A scenario with schema changes: tables, a view, what it can do without, and transactions.

The view is kept twice. Its SQL is what Dyno gets. Its *sketch* is the same view by identities:
which table each place means, what is joined, what is shown. Every transaction says what it does to
the sketch (*effects*): the generator knows that, because it chose the change. So the judge never
reads SQL, never rewrites a definition, and never sees a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from viewkeeper.evolution.dyno.rewriter import Wishes
from viewkeeper.evolution.dyno.table_identity import DynoShapes, Key
from viewkeeper.simulate.schema_changes.reshaped_tables import Operation, Tables


@dataclass(frozen=True, slots=True)
class PlaceMeaning:
    """The table that a place means, and its columns by the letters of the sketch."""

    table: Key
    columns: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ShownOutput:
    """An output of the view: its name, and the letter of the place that it shows."""

    name: str
    place: int
    letter: str


@dataclass(frozen=True, slots=True)
class Sketch:
    """A view by identities.

    `joins` are pairs of place and letter that must be equal; `limit` is a place, a letter and a
    number that its values must be below.
    """

    places: tuple[PlaceMeaning, ...]
    joins: tuple[tuple[tuple[int, str], tuple[int, str]], ...]
    outputs: tuple[ShownOutput, ...]
    limit: tuple[int, str, int] | None = None


@dataclass(frozen=True, slots=True)
class MeaningEffect:
    """An effect: a place means another table, or other columns, from now on."""

    place: int
    meaning: PlaceMeaning


@dataclass(frozen=True, slots=True)
class GoneEffect:
    """An effect: the view does without an output from now on."""

    output: str


Effect = MeaningEffect | GoneEffect


@dataclass(frozen=True, slots=True)
class ReshapedTransaction:
    """What a source commits as one: operations, rows last; and what that means for the view."""

    source: str
    operations: tuple[Operation, ...]
    effects: tuple[Effect, ...] = ()
    keeps_values: bool = True
    kind: str = "rows"


@dataclass(frozen=True, slots=True)
class ReshapedScenario:
    """What happens in a world, each source's transactions in its order.

    `fifo`: reports and replies of a source share one channel, as the paper assumes.
    """

    text: str
    sketch: Sketch
    tables: Mapping[str, Tables]
    wishes: Wishes
    transactions: tuple[ReshapedTransaction, ...]
    fifo: bool = True

    @property
    def initial_shapes(self) -> DynoShapes:
        """All tables as they are at the start."""
        return DynoShapes(
            {
                (source, id): table.shape
                for source, tables in self.tables.items()
                for id, table in tables.items()
            }
        )

    @property
    def keeps_values(self) -> bool:
        """Whether all schema changes do; then the view must show every state."""
        return all(transaction.keeps_values for transaction in self.transactions)

    def logs_by_source(self) -> dict[str, list[ReshapedTransaction]]:
        """Per source, its transactions."""
        logs: dict[str, list[ReshapedTransaction]] = {source: [] for source in self.tables}
        for transaction in self.transactions:
            logs[transaction.source].append(transaction)
        return logs
