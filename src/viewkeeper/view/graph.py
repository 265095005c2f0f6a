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
    Generate,
    Graph,
    KeyRecompute,
    Node,
    Relation,
    Union,
    ViewDefinition,
    relation_of_node,
)
from viewkeeper.view.expression import Column
from viewkeeper.view.expression import needs_spark as is_left_to_spark
from viewkeeper.view.render import spark_sql_of


def qualify_graph(graph: Graph, view: str) -> Graph:
    """The same graph, its nodes named after a view."""
    names = {
        relation_of_node(node.number): relation_of_node(node.number, view) for node in graph.nodes
    }
    return rename_relations(graph, names)


def rename_relations(graph: Graph, names: Mapping[Relation, Relation]) -> Graph:
    """The same graph over relations that have other names; those not named stay."""
    return replace(graph, nodes=tuple(_rename_node(node, names) for node in graph.nodes))


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
        case Fold() | Expand() | Generate() | KeyRecompute():
            return replace(node, input=names.get(node.input, node.input))
        case Union():
            return replace(node, inputs=tuple(names.get(r, r) for r in node.inputs))
        case Constant():
            return node
        case _:
            assert_never(node)


UniqueKeys = Mapping[Relation, frozenset[frozenset[str]]]


def know_unique_keys(view: ViewDefinition, unique: UniqueKeys) -> ViewDefinition:
    """The view whose places, and those of its graph, know unique keys: of tables, as they are
    given, and of its own folds, which have one row for each group."""
    places = tuple(replace(p, unique=unique.get(p.relation, p.unique)) for p in view.places)
    if view.graph is None:
        return replace(view, places=places)
    known, nodes = dict(unique), list[Node]()
    for node in view.graph.nodes:
        if isinstance(node, Core):
            node = replace(node, view=know_unique_keys(node.view, known))
        elif isinstance(node, Fold):
            known[relation_of_node(node.number, view.name)] = _keys_of_groups(node)
        nodes.append(node)
    return replace(view, places=places, graph=replace(view.graph, nodes=tuple(nodes)))


def _keys_of_groups(fold: Fold) -> frozenset[frozenset[str]]:
    """The columns that tell the rows of a fold apart, if all of them are shown."""
    shown = {
        output.expression.name: output.name
        for output in fold.outputs
        if isinstance(output.expression, Column)
    }
    names = [field.name for field in fold.groups]
    is_shown = all(name in shown for name in names)
    return frozenset([frozenset(shown[name] for name in names)] if is_shown else [])


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
        case KeyRecompute():
            return [(node.input, node.read)]
        case Union() | Expand() | Generate() | Constant():
            # They read nodes only: what they need of tables comes through a core.
            return [(relation, ()) for relation in node.inputs]
        case _:
            assert_never(node)


def tables_of_view(view: ViewDefinition) -> tuple[str, ...]:
    """The names of the tables that a view has: its own, and those of its stored nodes."""
    numbers = sorted(stored_nodes(view.graph)) if view.graph else []
    return (view.name, *(relation_of_node(number, view.name).table for number in numbers))


def needs_spark(view: ViewDefinition) -> bool:
    """Whether some expression of a view, or of its graph, can only be evaluated by Spark."""
    if view.graph is None:
        return view.needs_spark
    return any(text_for_spark(node) is not None for node in view.graph.nodes)


EXTREMES = ("min", "max", "min_by", "max_by")
"""Calls for which a group that loses its extreme is asked of the fold's input."""
GROUPS = "a group's sums before a batch are needed to know those after it"
SIDE = "all of it is compared again when the value of a subquery changes"


def stored_nodes(graph: Graph) -> dict[int, str]:
    """The nodes below the root that have a table, each with the reason.

    Folds have one, and sides of scalar subqueries. Any other node is computed for the keys that
    others ask for, in tasks and in the driver, in the middle of a batch. There is no Spark SQL
    there, so a node that needs it is stored if somebody asks for its rows.
    """
    stored: dict[int, str] = {}
    asked: set[int] = set()
    for node in reversed(graph.nodes):
        answers = node.number in asked
        if isinstance(node, Fold):
            stored[node.number] = GROUPS
        elif isinstance(node, Core) and node.stored:
            stored[node.number] = SIDE
        elif answers and (text := text_for_spark(node)) is not None:
            stored[node.number] = f"others ask for its rows, and only Spark evaluates {text}"
        if _asks_inputs(node, answers and node.number not in stored):
            asked |= {relation.node for relation in node.inputs if relation.node is not None}
    stored.pop(graph.root.number, None)
    return stored


def text_for_spark(node: Node) -> str | None:
    """Something in a node that only Spark evaluates; None if there is nothing."""
    if isinstance(node, Generate):
        return node.call if node.needs_spark else None
    if isinstance(node, Core):
        outputs = [output.expression for output in node.view.outputs]
        for expression in (*node.view.predicates, *outputs):
            if is_left_to_spark(expression):
                return spark_sql_of(expression)
    return None


def _asks_inputs(node: Node, answers: bool) -> bool:
    """Whether a node asks its inputs for what they were before a batch."""
    if isinstance(node, Core):
        return answers or len(node.view.places) > 1
    if isinstance(node, Fold):
        # It is stored, and asks its own input only where a group has lost its extreme.
        return any(call.function in EXTREMES for call in node.calls)
    return answers or isinstance(node, KeyRecompute)
