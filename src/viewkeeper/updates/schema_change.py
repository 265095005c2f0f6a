"""Schema changes, as a source reports them: what happened to the shape of a table, in its order.

A view asks for a table by a *handle*: the name that the table had when it was bound, and with it
the names that its columns had. A handle goes on to mean the same table and the same columns
whatever they are called later (`viewkeeper.updates.source_protocol.Source.handle_of`), so a rename
needs no question to be asked differently. What a change does to the *values* behind a handle is
what counts: they are kept (as rename, add and widen do), or they changed or went without being
listed, and then nothing that lies before the change can be asked any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from viewkeeper.view.definition import name_of_handle

__all__ = ["KINDS", "ChangeKind", "SchemaChange", "name_of_handle"]

ChangeKind = Literal[
    "add_column",
    "add_filled_column",
    "rename_column",
    "widen_type",
    "rename_table",
    "change_key",
    "drop_column",
    "change_type",
    "rewrite",
    "drop_table",
    "recreate_table",
]

KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)

_KEPT: frozenset[ChangeKind] = frozenset(
    ("add_column", "rename_column", "widen_type", "rename_table", "change_key")
)

_SENTENCES: dict[ChangeKind, str] = {
    "add_column": "{table}: column {column} was added, NULL in all rows",
    "add_filled_column": "{table}: column {column} was added with a value in all rows",
    "rename_column": "{table}: column {column} is called {now} now",
    "widen_type": "{table}: column {column} got the wider type {now}",
    "rename_table": "{table} is called {now} now",
    "change_key": "{table}: its key is {now} now",
    "drop_column": "{table}: column {column} was dropped",
    "change_type": "{table}: column {column} got the type {now}",
    "rewrite": "{table}: values of column {column} were rewritten",
    "drop_table": "{table} was dropped",
    "recreate_table": "{table} was dropped and another table is called so now",
}


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change of the shape of a table that is asked for by the handle `table`.

    `column` is called as the handle calls it; `now` is the new name, type or key, as the database
    spells it. A table that two handles stand for is reported once for each.
    """

    kind: ChangeKind
    table: str
    column: str = ""
    now: str = ""

    @property
    def keeps_values(self) -> bool:
        """Whether every value that was there before is there now, and can be asked for.

        >>> SchemaChange("rename_column", "orders", "price", "cost").keeps_values
        True
        >>> SchemaChange("drop_column", "orders", "price").keeps_values
        False
        """
        return self.kind in _KEPT

    def __str__(self) -> str:
        """
        >>> str(SchemaChange("rename_column", "orders#2", "price", "cost"))
        'orders: column price is called cost now'
        """
        facts = {"table": name_of_handle(self.table), "column": self.column, "now": self.now}
        return _SENTENCES[self.kind].format(**facts)
