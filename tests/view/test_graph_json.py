"""Graphs through JSON and back, and what is not a graph refused with its place."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from tests.view.graphs import GRAPHS
from viewkeeper.view.definition import Constant, Field, Graph, Output, relation_of_node
from viewkeeper.view.definition import Expand as ExpandNode
from viewkeeper.view.expression import Column, Literal
from viewkeeper.view.graph_json import decode_graph, encode_graph


@given(GRAPHS)
def test_a_graph_comes_back_as_it_was(graph: Graph) -> None:
    text = json.dumps(encode_graph(graph), allow_nan=False)
    assert decode_graph(json.loads(text)) == graph


def test_floats_that_json_does_not_know_come_back() -> None:
    rows = ((math.nan,), (math.inf,), (-0.0,))
    graph = Graph((Constant(0, (Field("x", pa.float64()),), rows),))
    (node,) = decode_graph(encode_graph(graph)).nodes
    assert isinstance(node, Constant)
    ((nan,), (above,), (zero,)) = node.rows
    assert isinstance(nan, float)
    assert math.isnan(nan)
    assert above == math.inf
    assert isinstance(zero, float)
    assert math.copysign(1, zero) == -1


def sample() -> dict[str, Any]:
    fields = (Field("a", pa.int64()), Field("b", pa.date32()))
    rows = ((1, None),)
    shown = (Output("c", Column(0, "a", pa.int64())), Output("d", Literal(2, pa.int32())))
    expand = ExpandNode(1, relation_of_node(0), (shown,), (Field("c", pa.int64()),))
    return encode_graph(Graph((Constant(0, fields, rows), expand)))


def changed(path: list[str | int], value: object) -> dict[str, Any]:
    content = json.loads(json.dumps(sample()))
    place: Any = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return dict(content)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["more"], 1, "is not made of nodes"),
        (["nodes"], [], "not numbered"),
        (["nodes", 0, "constant", "number"], 4, "not numbered"),
        (["nodes", 0, "constant", "number"], True, "whole number"),
        (["nodes", 0, "constant", "rows", 0, 0], "1", "not of type BIGINT"),
        (["nodes", 0, "constant", "rows", 0, 1], "2024-1-1", "not of type DATE"),
        (["nodes", 0, "constant", "rows", 0], [1], "as many values"),
        (["nodes", 0, "constant", "fields", 0, "type"], "LONG", "LONG is not a type"),
        (["nodes", 0, "constant", "fields", 0, "type"], "DECIMAL(39,0)", "is not a type"),
        (["nodes", 0], {"window": {}}, "window is not a kind of node"),
        (["nodes", 0], {"column": {}}, "column is not a kind of node"),
        (["nodes", 1, "expand", "odd"], 1, "is not made of"),
        (["nodes", 1, "expand", "input", "table"], 3, "is not a text"),
        (
            ["nodes", 1, "expand", "projections", 0, 0, "expression"],
            {"fold": {}},
            "fold is not a kind of expression",
        ),
        (
            ["nodes", 1, "expand", "projections", 0, 0, "expression"],
            {"column": {}, "literal": {}},
            "object with one name",
        ),
        (
            ["nodes", 1, "expand", "projections", 0, 1, "expression", "literal", "more"],
            1,
            "is not made of value, type",
        ),
    ],
)
def test_what_is_not_a_graph_is_refused(path: list[str | int], value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode_graph(changed(path, value))
