"""A source whose tables change their shape: states, reports, and answers that may break.

It is asked in one of two ways. *By name*, as the papers do: the question breaks if no table or no
column is called so at that moment, and is answered from whatever is called so otherwise. *By
handle*, as Viewkeeper's sources do: the question breaks if the very table, or one of the very
columns, is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, POSITION
from viewkeeper.evolution.dyno.dyno_events import (
    BrokenQuestion,
    ChangedRows,
    DynoQuestion,
    DynoReply,
    DynoReport,
)
from viewkeeper.evolution.dyno.table_identity import DynoShape
from viewkeeper.simulate.schema_changes.reshaped_scenario import ReshapedTransaction
from viewkeeper.simulate.schema_changes.reshaped_tables import (
    AddColumn,
    ReshapedTable,
    Row,
    Tables,
    WriteOperation,
    apply_operation,
)
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import Answer, Lookup

Asking = Literal["name", "handle"]


class ReshapedSource:
    """One source; positions count its transactions from 1."""

    def __init__(self, name: str, tables: Tables, log: Sequence[ReshapedTransaction]) -> None:
        self.name = name
        self._log = log
        self._states = [tables]

    @property
    def position(self) -> int:
        return len(self._states) - 1

    @property
    def remaining_count(self) -> int:
        """How many transactions are still to be committed."""
        return len(self._log) - self.position

    def commit_next(self) -> DynoReport:
        """Commit the next transaction; its report."""
        transaction = self._log[self.position]
        before = after = self._states[-1]
        for operation in transaction.operations:
            after = apply_operation(after, operation)
        self._states.append(after)
        return DynoReport(
            self.name,
            self.position,
            _changed_rows(transaction, after),
            _changed_shapes(before, after),
            frozenset(
                (o.table, o.column.id)
                for o in transaction.operations
                if isinstance(o, AddColumn) and o.value is None
            ),
        )

    def evaluate_question(
        self, question: DynoQuestion, asking: Asking
    ) -> tuple[DynoReply | BrokenQuestion, int]:
        """The reply to a question in the state of this moment, and the position of that state."""
        answers, read = [], []
        for lookup, meant in zip(question.lookups, question.meant, strict=True):
            found = self._resolve_lookup(lookup, meant, asking)
            if isinstance(found, str):
                return BrokenQuestion(question.number, found), self.position
            table, columns = found
            answers.append(self._answer_lookup(lookup, table, columns))
            read.append(table.shape if asking == "name" else meant)
        return DynoReply(question.number, tuple(answers), tuple(read)), self.position

    def _resolve_lookup(
        self, lookup: Lookup, meant: DynoShape, asking: Asking
    ) -> tuple[ReshapedTable, list[int]] | str:
        """The table that is asked, and where its columns are; or what is not there."""
        now = self._states[-1]
        if asking == "handle":
            table, wanted = (
                now.get(meant.id),
                [meant.column_by_name(name) for name in lookup.columns],
            )
            ids = [column.id for column in wanted if column is not None]
        else:
            tables = (t for t in now.values() if t.shape.name == lookup.relation.table)
            table = next(tables, None)
            named = (
                []
                if table is None
                else [table.shape.column_by_name(name) for name in lookup.columns]
            )
            ids = [column.id for column in named if column is not None]
        if table is None:
            return f"no table {lookup.relation}"
        at = {column.id: i for i, column in enumerate(table.shape.columns)}
        if len(ids) < len(lookup.columns) or not all(id in at for id in ids):
            return f"a column of {lookup.relation} is not there"
        return table, [at[id] for id in ids]

    def _answer_lookup(self, lookup: Lookup, table: ReshapedTable, columns: list[int]) -> Answer:
        place = dict(zip(lookup.columns, columns, strict=True))
        rows = [
            tuple(row[at] for at in columns)
            for row, count in table.rows.items()
            for _ in range(count)
            if _is_asked(lookup, row, place)
        ]
        values: list[Sequence[Any]] = [*zip(*rows, strict=True)] or [()] * len(columns)
        types = [table.shape.columns[at].type for at in columns]
        arrays = [pa.array(list(v), kind) for v, kind in zip(values, types, strict=True)]
        found = pa.table(arrays, names=list(lookup.columns))
        extra = [pa.field(name, pa.int64()) for name in (COUNT, POSITION)]
        tail = pa.schema([*found.schema, *extra]).empty_table()
        return Answer(found, Cut(self.position), self.position, tail)


def _is_asked(lookup: Lookup, row: Row, place: dict[str, int]) -> bool:
    if lookup.keys is None:
        return True
    keys = {tuple(key[name] for name in lookup.on) for key in lookup.keys.to_pylist()}
    return tuple(row[place[name]] for name in lookup.on) in keys


def _changed_rows(transaction: ReshapedTransaction, after: Tables) -> dict[int, ChangedRows]:
    found: dict[int, list[tuple[Row, int]]] = {}
    for operation in transaction.operations:
        if isinstance(operation, WriteOperation):
            found.setdefault(operation.table, []).extend(operation.rows)
    return {
        id: ChangedRows(tuple(column.id for column in after[id].shape.columns), tuple(rows))
        for id, rows in found.items()
    }


def _changed_shapes(before: Tables, after: Tables) -> dict[int, DynoShape | None]:
    """The tables whose shape is another one, as they are now."""
    changed: dict[int, DynoShape | None] = {id: None for id in before if id not in after}
    for id, table in after.items():
        if id not in before or before[id].shape != table.shape:
            changed[id] = table.shape
    return changed
