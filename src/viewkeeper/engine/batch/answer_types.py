"""Answers in the types that a definition has, whatever the columns have become.

A source gives values in the type that a column has now. A type that was widened while a batch is
under way still holds every value that the definition knows; one that no longer fits shows that a
schema change came in between, and the question counts as broken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from viewkeeper.delta.exact_cast import exact_cast
from viewkeeper.errors import BrokenQueryError
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.view.definition import Field, Relation, ViewDefinition

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def typed_answer(view: ViewDefinition, lookup: Lookup, answer: Answer) -> Answer:
    """The same answer in the types of the place that asked."""
    fields = {field.name: field.type for field in view.places[lookup.place].fields}
    rows = cast_rows(lookup.relation, answer.rows, fields)
    tail = cast_rows(lookup.relation, answer.tail, fields)
    if rows is answer.rows and tail is answer.tail:
        return answer
    return replace(answer, rows=rows, tail=tail)


def cast_rows(relation: Relation, rows: Rows, types: Mapping[str, pa.DataType]) -> Rows:
    """The rows with these columns in these types."""
    known = rows.schema
    if all(types.get(field.name, field.type) == field.type for field in known):
        return rows
    wanted = pa.schema([(f.name, types.get(f.name, f.type)) for f in known])
    try:
        arrays = [exact_cast(rows.column(f.name), f.type) for f in wanted]
        return type(rows).from_arrays(arrays, schema=wanted)
    except (ValueError, pa.ArrowNotImplementedError) as error:
        what = f"values do not fit the type that their column had: {error}"
        raise BrokenQueryError(relation.source, relation.table, what) from error


def types_of(fields: Sequence[Field]) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in fields}
