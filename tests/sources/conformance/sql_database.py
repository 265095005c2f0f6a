"""Databases that speak SQL: transactions as statements, each change of exactly one row.

Rows are found by all their values, NULL equal to NULL and text by its bytes, so that of two equal
rows one can be changed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from tests.sources.conformance.changes import Change, Delete, Insert, Row, Update, Word
from tests.sources.conformance.database import Database


class SqlDatabase(Database):
    """What the dialects have in common."""

    types: Mapping[Word, str]
    mark = "%s"
    # How two values are compared when NULL equals NULL.
    same = "{column} IS NOT DISTINCT FROM {mark}"
    # How one of the rows that a condition finds is chosen.
    one = "{condition}"

    def _create(
        self,
        name: str,
        columns: Mapping[str, Word],
        key: Sequence[str],
        indexes: Sequence[Sequence[str]],
    ) -> None:
        listed = [
            f"{column} {self.types[word]}{' NOT NULL' if column in key else ''}"
            for column, word in columns.items()
        ]
        if key:
            listed.append(f"PRIMARY KEY ({', '.join(key)})")
        self.run(f"CREATE TABLE {name} ({', '.join(listed)})")
        for number, index in enumerate(indexes):
            self.run(f"CREATE INDEX {name}_{number} ON {name} ({', '.join(index)})")

    def _write(self, changes: Sequence[Change]) -> None:
        self._begin()
        self._apply(changes)
        self._end(commit=True)

    def abandon(self, *changes: Change) -> None:
        self._begin()
        self._apply(changes)
        self._end(commit=False)

    def _apply(self, changes: Sequence[Change]) -> None:
        for (kind, table), group in groupby(changes, key=lambda each: (type(each), each.table)):
            if kind is Insert:
                self._insert(table, [each.row for each in group if isinstance(each, Insert)])
                continue
            for change in group:
                assert self._execute(*self._statement(change)) == 1, change

    def _statement(self, change: Change) -> tuple[str, list[Any]]:
        columns = self.columns[change.table]
        match change:
            case Delete(table=table, row=row):
                return f"DELETE FROM {table} WHERE {self._one(table)}", self._bound(table, row)
            case Update(table=table, old=old, new=new):
                assigned = ", ".join(f"{column} = {self.mark}" for column in columns)
                values = [*self._bound(table, new), *self._bound(table, old)]
                return f"UPDATE {table} SET {assigned} WHERE {self._one(table)}", values
        raise AssertionError("inserts are made many at a time")

    def _one(self, table: str) -> str:
        compared = (self._same(column, word) for column, word in self.columns[table].items())
        return self.one.format(table=table, condition=" AND ".join(compared))

    def _same(self, column: str, word: Word) -> str:
        return self.same.format(column=column, mark=self.mark)

    def _bound(self, table: str, row: Row) -> list[Any]:
        return [self._value(value) for value in row]

    def _value(self, value: Any) -> Any:
        """What the driver is given for a value."""
        return value

    def _insert(self, table: str, rows: Sequence[Row]) -> None:
        marks = ", ".join(self.mark for _ in self.columns[table])
        statement = f"INSERT INTO {table} VALUES ({marks})"
        self._execute_many(statement, [self._bound(table, row) for row in rows])

    @abstractmethod
    def run(self, *statements: str) -> None:
        """Statements without parameters, each a transaction of its own."""

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _end(self, commit: bool) -> None: ...

    @abstractmethod
    def _execute(self, statement: str, values: Sequence[Any]) -> int:
        """How many rows a statement changed."""

    @abstractmethod
    def _execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None: ...
