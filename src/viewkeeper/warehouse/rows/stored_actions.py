"""Changes that depend on what is stored, turned into the signed rows that carry them out.

Some algorithms do not compute signed rows: they delete by key, insert what is not there yet, or
replace everything. Here such actions are evaluated, in order, against the newest stored state, and
what comes out is appended like any other rows: the log stays signed rows only, and as-of reads,
changes and compaction know of nothing else.

`applied` is the meaning, a pure function of the stored rows; `signed` reads just those stored rows
that the actions can touch. Values are compared as they are stored: NULL is a value like any other,
NaN equals itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute

from viewkeeper.delta.kernel import canonical, matches
from viewkeeper.updates.source_protocol import COUNT
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.rows.lookup import Search, find, search_for
from viewkeeper.warehouse.rows.row_sums import summed
from viewkeeper.warehouse.rows.view_state import stored

pc: Any = pyarrow.compute
"""Untyped: the stubs do not know that every function takes arrays and scalars alike."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyDelete:
    """Delete the stored rows whose `columns` have values among `keys`, a table of these columns."""

    columns: tuple[str, ...]
    keys: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class Insert:
    """Have those of these rows (the stored columns) that are not stored occur once."""

    rows: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class Replace:
    """The stored state becomes exactly these rows (the stored columns and `_count`)."""

    rows: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class Add:
    """Signed rows (the stored columns and `_count`), for those who mix them with the others."""

    rows: pa.Table


Action = KeyDelete | Insert | Replace | Add


def signed(root: Path, view: ViewHead, actions: Sequence[Action]) -> pa.Table:
    """The signed rows that carry out actions, in order, on a view's newest stored state.

    The stored columns and `_count`; one row per tuple, no zeros, none that is not needed.
    """
    exact = [_exact(action, view.schema) for action in actions]
    if any(isinstance(action, Replace) for action in exact):
        return applied(stored(root, view), exact)
    return applied(find(root, view, [*_searches(exact)]), exact)


def applied(rows: pa.Table, actions: Iterable[Action]) -> pa.Table:
    """What actions change in stored rows (each once, with `_count`), as signed rows.

    >>> rows = pa.table({"k": [1, 2], "v": ["a", "b"], "_count": [1, 1]})
    >>> delete = KeyDelete(("k",), pa.table({"k": [2, 3]}))
    >>> insert = Insert(pa.table({"k": [1, 4, 4], "v": ["a", "d", "d"]}))
    >>> applied(rows, [delete, insert]).sort_by("k").to_pylist()
    [{'k': 2, 'v': 'b', '_count': -1}, {'k': 4, 'v': 'd', '_count': 1}]
    """
    made = [rows.slice(0, 0)]
    for action in actions:
        # Only the next action needs the state that this one leaves.
        rows = summed(pa.concat_tables([rows, made[-1]])) if made[-1].num_rows else rows
        made.append(_change(rows, action))
    return summed(pa.concat_tables(made))


def _change(rows: pa.Table, action: Action) -> pa.Table:
    match action:
        case KeyDelete(columns, keys):
            hit, _ = _pairs(rows, keys, columns)
            return _negated(rows.take(pc.unique(hit)))
        case Insert(new):
            return _missing(rows, new)
        case Replace(bag):
            return summed(pa.concat_tables([bag, _negated(rows)]))
        case Add(more):
            return more
        case _:
            assert_never(action)


def _missing(rows: pa.Table, new: pa.Table) -> pa.Table:
    """What makes each of the new rows occur at least once."""
    names = new.column_names
    once = summed(new.append_column(COUNT, pa.array(np.ones(new.num_rows, np.int64))))
    there, found = _pairs(rows, once, names)
    counts = np.zeros(once.num_rows, np.int64)
    counts[found.to_numpy()] = rows[COUNT].take(there).to_numpy()
    lacking = once.set_column(len(names), COUNT, pa.array(1 - counts))
    return lacking.filter(pa.array(counts < 1))


def _pairs(left: pa.Table, right: pa.Table, columns: Sequence[str]) -> tuple[Any, Any]:
    return matches(
        [(left[name], True) for name in columns],
        [(right[name], True) for name in columns],
        (left.num_rows, right.num_rows),
    )


def _negated(rows: pa.Table) -> pa.Table:
    return rows.set_column(rows.num_columns - 1, COUNT, pc.negate(rows[COUNT]))


def _searches(actions: Iterable[Action]) -> Iterable[Search]:
    """What must be read for these actions; key deletes by the same columns are one search."""
    keys: dict[tuple[str, ...], list[pa.Table]] = {}
    for action in actions:
        match action:
            case KeyDelete():
                keys.setdefault(action.columns, []).append(action.keys)
            case Insert():
                keys.setdefault(_cheap(action.rows.schema), []).append(action.rows)
            case Replace() | Add():
                pass
            case _:
                assert_never(action)
    for columns, tables in keys.items():
        together = pa.concat_tables([table.select(list(columns)) for table in tables])
        if together.num_rows:
            yield search_for(together)


def _cheap(schema: pa.Schema) -> tuple[str, ...]:
    """The columns by which rows are searched for that must agree in all of them.

    Those of fixed width are read fastest, and keys are mostly among them.
    """
    fixed = [f.name for f in schema if pa.types.is_primitive(f.type)]
    return tuple(fixed or schema.names)


def _exact(action: Action, schema: pa.Schema) -> Action:
    """The same with columns in the stored order, of the stored types, and canonical values."""
    match action:
        case KeyDelete(columns, keys):
            fields = [schema.field(name) for name in columns]
            return KeyDelete(columns, _cast(keys, pa.schema(fields)))
        case Insert(rows):
            return Insert(_cast(rows, schema))
        case Replace(rows):
            return Replace(_cast(rows, _counted(schema)))
        case Add(rows):
            return Add(_cast(rows, _counted(schema)))
        case _:
            assert_never(action)


def _counted(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, pa.field(COUNT, pa.int64())])


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    arrays = [canonical(rows[field.name].cast(field.type)) for field in schema]
    return pa.table(arrays, schema=schema)
