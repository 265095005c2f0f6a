"""Graphs as a whole: what they read, under which names, and in which order.

A graph is compiled without the name of its view, so that equal queries give equal graphs; where it
is maintained its nodes have names that are unique in the project, `view#3`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from viewkeeper.view.definition import (
    Constant,
    Core,
    Expand,
    Field,
    Fold,
    Graph,
    Node,
    Relation,
    Union,
    ViewDefinition,
    relation_of_node,
)
from viewkeeper.view.expression import Expression
from viewkeeper.view.expression import needs_spark as is_left_to_spark


def qualify_graph(graph: Graph, view: str) -> Graph:
    """The same graph, its nodes named after a view."""
    names = {
        relation_of_node(node.number): relation_of_node(node.number, view) for node in graph.nodes
    }
    return rename_relations(graph, names)


def rename_relations(graph: Graph, names: Mapping[Relation, Relation]) -> Graph:
    """The same graph over relations that have other names; those not named stay."""
    return Graph(tuple(_rename_node(node, names) for node in graph.nodes))


def _rename_node(node: Node, names: Mapping[Relation, Relation]) -> Node:
    match node:
        case Core():
            places = tuple(
                replace(place, relation=names.get(place.relation, place.relation))
                for place in node.view.places
            )
            own = relation_of_node(node.number)
            name = names[own].table if own in names else node.view.name
            return replace(node, view=replace(node.view, name=name, places=places))
        case Fold() | Expand():
            return replace(node, input=names.get(node.input, node.input))
        case Union():
            return replace(node, inputs=tuple(names.get(r, r) for r in node.inputs))
        case Constant():
            return node
        case _:
            assert_never(node)


def fields_read(graph: Graph) -> dict[Relation, tuple[Field, ...]]:
    """What a graph reads of tables and views: their columns, sorted by name."""
    read: dict[Relation, set[Field]] = {}
    for node in graph.nodes:
        for relation, fields in _node_reads(node):
            if relation.node is None:
                read.setdefault(relation, set()).update(fields)
    return {r: tuple(sorted(fields, key=lambda f: f.name)) for r, fields in read.items()}


def _node_reads(node: Node) -> list[tuple[Relation, tuple[Field, ...]]]:
    match node:
        case Core():
            return [(place.relation, place.fields) for place in node.view.places]
        case Fold():
            used = [*node.groups, *(field for call in node.calls for field in call.arguments)]
            return [(node.input, tuple(dict.fromkeys(used)))]
        case Union() | Expand() | Constant():
            # They read nodes only: what they need of tables comes through a core.
            return [(relation, ()) for relation in node.inputs]
        case _:
            assert_never(node)


def tables_of_view(view: ViewDefinition) -> tuple[str, ...]:
    """The names of the tables that a view has: its own, and those of its folds."""
    nodes = view.graph.nodes[:-1] if view.graph else ()
    folds = [node for node in nodes if isinstance(node, Fold)]
    return (view.name, *(relation_of_node(fold.number, view.name).table for fold in folds))


def needs_spark(view: ViewDefinition) -> bool:
    """Whether some expression of a view, or of its graph, can only be evaluated by Spark."""
    if view.graph is None:
        return view.needs_spark
    return any(node.view.needs_spark for node in view.graph.nodes if isinstance(node, Core))


EXTREMES = ("min", "max", "min_by", "max_by")
"""Calls for which a group that loses its extreme is asked of the fold's input."""


def find_unanswerable(graph: Graph) -> Expression | None:
    """An expression that only Spark evaluates in a core that is asked for its rows by key; None if
    there is none.

    Tasks and the driver ask for rows in the middle of a batch, where there is no Spark SQL.
    """
    for number in _asked_nodes(graph):
        node = graph.nodes[number]
        if isinstance(node, Core):
            outputs = [output.expression for output in node.view.outputs]
            for expression in (*node.view.predicates, *outputs):
                if is_left_to_spark(expression):
                    return expression
    return None


def _asked_nodes(graph: Graph) -> set[int]:
    """The nodes that others ask for what they were before a batch."""
    asked: set[int] = set()
    for node in reversed(graph.nodes):
        asks = node.number in asked
        if isinstance(node, Core):
            asks = asks or len(node.view.places) > 1
        elif isinstance(node, Fold):
            # It is stored, and asks its own input only where a group has lost its extreme.
            asks = any(call.function in EXTREMES for call in node.calls)
        if asks:
            asked |= {relation.node for relation in node.inputs if relation.node is not None}
    return asked
