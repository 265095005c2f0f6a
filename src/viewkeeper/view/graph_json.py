"""A graph as JSON, and back: what a view was compiled into, kept with its version.

Each value is an object with the fields of its class; fields that have their default are left out.
A node or an expression stands in an object with one name, which says its class. Types are written
as Spark names them, values of literals as text that loses nothing.

Reading is strict: an unknown name or a value of another type is a `ValueError` that says where, as
everywhere in `viewkeeper.storage.typed_json`.

>>> decode_graph(encode_graph(Graph((Constant(0, (Field("a", pa.int64()),), ((1,), (None,))),))))
Graph(nodes=(Constant(number=0, fields=(Field(name='a', type=DataType(int64)),), \
rows=((1,), (None,))),), recomputed=None)
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import re
from typing import Any

import pyarrow as pa
import pyarrow.types as is_type

from viewkeeper.storage.typed_json import Readers, read_typed
from viewkeeper.view.definition import (
    Constant,
    Core,
    Expand,
    Field,
    Fold,
    Generate,
    Graph,
    KeyRecompute,
    Node,
    Union,
)
from viewkeeper.view.expression import (
    Arithmetic,
    Call,
    Cast,
    Column,
    Compare,
    Expression,
    IsNull,
    Literal,
    Logic,
    Not,
    Scalar,
    SparkSql,
)
from viewkeeper.view.render import spark_type_of

_CLASSES: tuple[type[Any], ...] = (
    *(Arithmetic, Call, Cast, Column, Compare, IsNull, Literal, Logic, Not, SparkSql),
    *(Constant, Core, Expand, Fold, Generate, KeyRecompute, Union),
)
_TAGS = {kind: re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in _CLASSES}
_KINDS = {tag: kind for kind, tag in _TAGS.items()}
_NODES = frozenset({"constant", "core", "expand", "fold", "generate", "key_recompute", "union"})
_TYPES: dict[str, pa.DataType] = {
    spark_type_of(kind): kind
    for kind in (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
    )
}
_DECIMAL = re.compile(r"DECIMAL\((\d{1,2}),(\d{1,2})\)")


def encode_graph(graph: Graph) -> dict[str, Any]:
    """The graph as a value that `json.dumps` takes."""
    content: dict[str, Any] = {"nodes": [_encode_value(node) for node in graph.nodes]}
    return content if graph.recomputed is None else {**content, "recomputed": graph.recomputed}


def decode_graph(content: object) -> Graph:
    """The inverse; a ValueError says where the content is wrong."""
    graph = read_typed(Graph, content, _READERS)
    if not graph.nodes or any(node.number != at for at, node in enumerate(graph.nodes)):
        raise ValueError("nodes: they are not numbered in order")
    return graph


# -- writing ---------------------------------------------------------------------------------------


def _encode_value(value: object) -> Any:
    match value:
        case Literal():
            return {"literal": _encode_literal(value)}
        case Constant():
            fields = _encode_fields(value)
            rows = [
                [_encode_scalar(v, f.type) for v, f in zip(row, value.fields, strict=True)]
                for row in value.rows
            ]
            return {"constant": {**fields, "rows": rows}}
        case pa.DataType():
            return spark_type_of(value)
        case tuple():
            return [_encode_value(each) for each in value]
    if not dataclasses.is_dataclass(value):
        return value
    fields, tag = _encode_fields(value), _TAGS.get(type(value))
    return fields if tag is None else {tag: fields}


def _encode_fields(value: Any) -> dict[str, Any]:
    return {
        field.name: _encode_value(found)
        for field in dataclasses.fields(value)
        if (found := getattr(value, field.name)) != field.default and field.name != "rows"
    }


def _encode_literal(literal: Literal) -> dict[str, Any]:
    value = _encode_scalar(literal.value, literal.type)
    return {"value": value, "type": spark_type_of(literal.type)}


def _encode_scalar(value: Scalar, kind: pa.DataType) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if is_type.is_floating(kind):
        return repr(float(value))  # type: ignore[arg-type]  # of that type are only numbers
    match value:
        case int():
            return value
        case bytes():
            return value.hex()
        case datetime.datetime() | datetime.date():
            return value.isoformat()
    return str(value)


# -- reading ---------------------------------------------------------------------------------------


def _decode_type(text: object) -> pa.DataType:
    if isinstance(text, str):
        if found := _DECIMAL.fullmatch(text):
            return _checked_decimal(int(found[1]), int(found[2]))
        if text in _TYPES:
            return _TYPES[text]
    raise ValueError(f"{str(text)[:80]} is not a type")


def _checked_decimal(precision: int, scale: int) -> pa.DataType:
    if not (1 <= precision <= 38 and scale <= precision):
        raise ValueError(f"DECIMAL({precision},{scale}) is not a type")
    return pa.decimal128(precision, scale)


def _tag_of(content: object) -> tuple[str, Any]:
    if not isinstance(content, dict) or len(content) != 1:
        raise ValueError(f"{str(content)[:80]} is not an object with one name")
    ((tag, fields),) = content.items()
    return str(tag), fields


def _decode_node(content: object) -> Any:
    tag, fields = _tag_of(content)
    if tag not in _NODES:
        raise ValueError(f"{tag[:80]} is not a kind of node")
    if tag == "constant":
        return _decode_constant(fields)
    return read_typed(_KINDS[tag], fields, _READERS)


def _decode_expression(content: object) -> Any:
    tag, fields = _tag_of(content)
    if tag in _NODES or tag not in _KINDS:
        raise ValueError(f"{tag[:80]} is not a kind of expression")
    if tag == "literal":
        found = read_typed(_LiteralText, fields, _READERS)
        return Literal(_decode_scalar(found.value, found.type), found.type)
    if tag == "column":
        return read_typed(Column, fields, {pa.DataType: _decode_type})
    return read_typed(_KINDS[tag], fields, _READERS)


def _decode_column(content: object) -> Any:
    column = _decode_expression(content)
    if not isinstance(column, Column):
        raise ValueError(f"{str(content)[:80]} is not a column")
    return column


@dataclasses.dataclass(frozen=True, slots=True)
class _LiteralText:
    """A literal as it is written."""

    value: Any
    type: pa.DataType


@dataclasses.dataclass(frozen=True, slots=True)
class _ConstantText:
    """A constant as it is written."""

    number: int
    fields: tuple[Field, ...]
    rows: tuple[tuple[Any, ...], ...]


def _decode_constant(content: object) -> Constant:
    found = read_typed(_ConstantText, content, _READERS)
    kinds = [field.type for field in found.fields]
    if any(len(row) != len(kinds) for row in found.rows):
        raise ValueError("rows: a row has not as many values as there are fields")
    rows = tuple(
        tuple(_decode_scalar(value, kind) for value, kind in zip(row, kinds, strict=True))
        for row in found.rows
    )
    return Constant(found.number, found.fields, rows)


def _decode_scalar(value: object, kind: pa.DataType) -> Scalar:
    if value is None:
        return None
    try:
        found = _read_scalar(value, kind)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"{str(value)[:80]} is not of type {spark_type_of(kind)}") from error
    if found is None or _encode_scalar(found, kind) != value:
        raise ValueError(f"{str(value)[:80]} is not of type {spark_type_of(kind)}")
    return found


def _read_scalar(value: Any, kind: pa.DataType) -> Scalar:
    """The value of a text; None if JSON has it as something else than it is written as."""
    if is_type.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if is_type.is_integer(kind):
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if not isinstance(value, str):
        return None
    if is_type.is_floating(kind):
        return float(value)
    if is_type.is_decimal(kind):
        return decimal.Decimal(value)
    if is_type.is_date(kind):
        return datetime.date.fromisoformat(value)
    if is_type.is_timestamp(kind):
        return datetime.datetime.fromisoformat(value)
    return bytes.fromhex(value) if is_type.is_binary(kind) else value


_READERS: Readers = {
    pa.DataType: _decode_type,
    Expression: _decode_expression,
    Column: _decode_column,
    Node: _decode_node,
}
