"""Generators: explode and its relatives, over rows of a table.

Where the rows that a generator makes are written out in the query - `stack`, `explode(array(...))`,
`inline(array(struct(...)))` - each row is shown once per projection, as for ROLLUP. The parts of a
split text are found by the kernel. Everything else is a call that Spark runs on the changed rows.

A struct that a generator makes is taken apart at once: its fields are columns of the node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from viewkeeper.engine.compile.drafts.core_draft import CoreDraft, columns_of_places
from viewkeeper.engine.compile.drafts.graph_draft import GraphDraft, draft_over
from viewkeeper.engine.compile.drafts.row_operations import expand_rows
from viewkeeper.engine.compile.expressions.expression_translation import Columns, plain_type_of
from viewkeeper.engine.compile.expressions.spark_types import arrow_type_of
from viewkeeper.engine.compile.plan.plan_reader import type_text_of
from viewkeeper.engine.compile.plan.plan_tree import (
    STRUCT,
    Attribute,
    PlanExpand,
    PlanExpression,
    PlanGenerate,
    PlanLiteral,
    PlanOperation,
    attributes_of,
)
from viewkeeper.engine.compile.refusal_reasons import refuse, refuse_expression
from viewkeeper.view.definition import Field, Generate, GeneratedColumn, SplitText

CALLS = {
    "Explode": "explode",
    "PosExplode": "posexplode",
    "Inline": "inline",
    "JsonTuple": "json_tuple",
}
"""Spark's classes of generators, by the names that they have in SQL."""
SPECIAL = frozenset("\\.[]{}()*+?^$|")
"""Characters that mean something in a pattern of `split`."""
PRIVATE = "\ue000"
"""A character that no text has a meaning for; it marks what was escaped."""


def generate_rows(
    graph: GraphDraft, below: CoreDraft, plan: PlanGenerate, needed: frozenset[int]
) -> CoreDraft:
    """A draft over the rows that a generator makes of those of another draft."""
    generator = below.compute_column(plan.generator)
    assert isinstance(generator, PlanOperation), "a generator is a call"
    made = {column.id for column in plan.made}
    kept = [c for c in plan.output if c.id in needed and c.id not in made and c.id in below.shown]
    rows = _written_rows(generator)
    if rows is not None:
        columns = tuple(below.shown[column.id] for column in kept)
        # The last row of stack() may be short.
        missing = [PlanLiteral(None, column.type) for column in plan.made]
        projections = tuple((*columns, *row, *missing[len(row) :]) for row in rows)
        output = (*kept, *plan.made)
        return expand_rows(graph, below, PlanExpand(plan.input, projections, output, plan.java))
    return _add_generate(graph, below, replace(plan, generator=generator), kept)


def _written_rows(generator: PlanOperation) -> list[tuple[PlanExpression, ...]] | None:
    """The rows of a generator whose arguments write them out; None if they do not."""
    if generator.kind == "Stack":
        count, *values = generator.operands
        assert isinstance(count, PlanLiteral), "Spark folds the number of rows of stack()"
        rows = int(str(count.value))
        width = -(-len(values) // rows)
        return [tuple(values[at : at + width]) for at in range(0, len(values), width)]
    array = generator.operands[0]
    if not isinstance(array, PlanOperation) or array.kind != "CreateArray" or not array.operands:
        return None
    match generator.kind:
        case "Explode":
            return [(value,) for value in array.operands]
        case "PosExplode":
            return [
                (PlanLiteral(str(at), "integer"), value) for at, value in enumerate(array.operands)
            ]
        case "Inline":
            found = [_values_of_struct(value) for value in array.operands]
            return [row for row in found if row is not None] if None not in found else None
    return None


def _values_of_struct(value: PlanExpression) -> tuple[PlanExpression, ...] | None:
    if isinstance(value, PlanOperation) and value.kind == "CreateNamedStruct":
        return value.operands[1::2]
    return None


def _add_generate(
    graph: GraphDraft, below: CoreDraft, plan: PlanGenerate, kept: list[Attribute]
) -> CoreDraft:
    generator = plan.generator
    assert isinstance(generator, PlanOperation)
    cut = _cut_text(generator, columns_of_places(below))
    read = [cut[0]] if cut is not None else [*_columns_read(generator)]
    plain, structs = _take_structs_apart(below, kept)
    found = graph.finish_draft(below, [*plain.values(), *read])
    call = _call_text(graph, generator, dict(zip(read, found.fields[len(plain) :], strict=True)))
    made = _made_columns(graph, plan)
    shown = [GeneratedColumn(field.name) for field in found.fields[: len(plain)]]
    types = [field.type for field in found.fields[: len(plain)]]
    types += [kind for _, _, kind in made.columns]
    fields = tuple(Field(graph.new_name(), kind) for kind in types)
    columns = (*shown, *(column for _, column, _ in made.columns))
    split = None
    if cut is not None:
        split = SplitText(found.fields[-1].name, cut[1], generator.kind == "PosExplode")
    width = len(plan.made)
    node = Generate(
        graph.next_number, found.relation, call, width, columns, fields, plan.outer, split
    )
    keys = [*plain, *(key for key, _, _ in made.columns)]
    draft = draft_over(graph.add_node(node), dict(zip(keys, fields, strict=True)))
    return replace(draft, shown={**draft.shown, **structs, **made.structs})


def _take_structs_apart(
    below: CoreDraft, kept: list[Attribute]
) -> tuple[dict[int, PlanExpression], dict[int, PlanExpression]]:
    """The expressions of kept columns by their ids, and the structs among the columns.

    A struct that a generator below has made is no column of a node: its parts are kept.
    """
    plain: dict[int, PlanExpression] = {}
    structs: dict[int, PlanExpression] = {}
    for column in kept:
        shown = below.shown[column.id]
        if isinstance(shown, PlanOperation) and shown.kind == STRUCT:
            plain |= {part.id: part for part in shown.operands if isinstance(part, Attribute)}
            structs[column.id] = shown
        else:
            plain[column.id] = shown
    return plain, structs


def _columns_read(generator: PlanOperation) -> list[PlanExpression]:
    return [Attribute(key, "") for key in sorted(attributes_of(generator))]


def _cut_text(generator: PlanOperation, columns: Columns) -> tuple[PlanExpression, str] | None:
    """The text that a generator splits, and the separator, if that is no pattern."""
    if generator.kind not in ("Explode", "PosExplode"):
        return None
    array = generator.operands[0]
    if not isinstance(array, PlanOperation) or array.kind != "StringSplit":
        return None
    text, pattern, limit = array.operands
    if not isinstance(pattern, PlanLiteral) or not isinstance(limit, PlanLiteral):
        return None
    separator = _plain_separator(str(pattern.value or ""))
    own = columns[text.id].type if isinstance(text, Attribute) else plain_type_of(text)
    if limit.value != "-1" or separator is None or own != pa.string():
        return None
    return text, separator


def _plain_separator(pattern: str) -> str | None:
    """The text that a pattern matches, if it is just one text.

    >>> _plain_separator(", "), _plain_separator("\\\\|"), _plain_separator("a|b")
    (', ', '|', None)
    """
    found = re.sub(r"\\([^A-Za-z0-9])", lambda match: PRIVATE + match[1], pattern)
    plain = re.sub(rf"{PRIVATE}.", "", found, flags=re.DOTALL)
    if not pattern or SPECIAL & set(plain) or PRIVATE in pattern:
        return None
    return found.replace(PRIVATE, "")


def _call_text(
    graph: GraphDraft, generator: PlanOperation, columns: Mapping[PlanExpression, Field]
) -> str:
    """The generator in Spark's SQL, over columns of the node that it reads."""
    name = CALLS.get(generator.kind)
    if name is None:
        raise refuse_expression(generator.kind, generator.java)
    labels = {}
    for read, field in columns.items():
        key = read if isinstance(read, Attribute) else graph.new_column()
        generator = _put_column(generator, read, key)
        labels[key.id] = field
    texts = [graph.translator.write_text(each, labels) for each in generator.operands]
    return f"{name}({', '.join(texts)})"


def _put_column(operation: PlanOperation, old: PlanExpression, new: Attribute) -> PlanOperation:
    """The operation with a column in place of an operand somewhere in it."""
    operands: list[PlanExpression] = []
    for each in operation.operands:
        if each == old:
            operands.append(new)
        elif isinstance(each, PlanOperation):
            operands.append(_put_column(each, old, new))
        else:
            operands.append(each)
    return replace(operation, operands=tuple(operands))


@dataclass(frozen=True, slots=True)
class _MadeColumns:
    """What a generator makes: ids of columns with what and of which type they are, and structs."""

    columns: list[tuple[int, GeneratedColumn, pa.DataType]]
    structs: dict[int, PlanOperation]


def _made_columns(graph: GraphDraft, plan: PlanGenerate) -> _MadeColumns:
    made = _MadeColumns([], {})
    for number, column in enumerate(plan.made):
        if (kind := arrow_type_of(column.type)) is not None:
            made.columns.append((column.id, GeneratedColumn(None, number), kind))
            continue
        parts = []
        for name, text in _fields_of_struct(column, plan):
            kind = arrow_type_of(text)
            if kind is None:
                hint = "leave it out of the schema, or explode it in the same query"
                raise refuse(f"a generated column with a part of type {text}", hint, plan.java)
            key = graph.new_column()
            made.columns.append((key.id, GeneratedColumn(None, number, name), kind))
            parts.append(key)
        made.structs[column.id] = PlanOperation(STRUCT, tuple(parts))
    return made


def _fields_of_struct(column: Attribute, plan: PlanGenerate) -> list[tuple[str, str]]:
    kind = json.loads(column.type) if column.type.startswith("{") else {}
    if kind.get("type") != "struct":
        hint = "take plain values out of it in the call, such as explode(flatten(...))"
        raise refuse(f"a generated column of type {column.type}", hint, plan.java)
    return [(field["name"], type_text_of(field["type"])) for field in kind["fields"]]
