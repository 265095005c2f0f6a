"""A node of a graph as one Spark SQL text: what it shows, computed from nothing.

Loads run it, and tests compare it with the user's own text. Every node below is a named subquery.
Inside a core the column `name` of place `p` is called `p.name`, as everywhere, so no two columns
share a name and none needs its table before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from viewkeeper.view.definition import (
    EXISTS,
    Constant,
    Core,
    Equality,
    Expand,
    Field,
    Fold,
    FoldCall,
    Generate,
    GeneratedColumn,
    Graph,
    KeyedJoin,
    KeyRecompute,
    Node,
    Output,
    Place,
    Relation,
    Union,
)
from viewkeeper.view.expression import Column, Compare, Expression, Literal
from viewkeeper.view.recompute_sql import recompute_sql
from viewkeeper.view.render import quote_name, spark_sql_of

Tables = Mapping[Relation, str]
"""What each relation is called in the SQL text."""

JOIN_WORDS = {"left": "LEFT JOIN", "semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}


def node_query(graph: Graph, number: int, tables: Tables) -> str:
    """The rows of a node; its columns are called as its fields are.

    `tables` may name nodes too: those are read, and not computed again.
    """
    below = _nodes_below(graph, number, tables)
    known = {**tables, **{relation: f"__node_{each}" for each, relation in below.items()}}
    parts = [f"__node_{each} AS ({_node_sql(graph.nodes[each], known)})" for each in sorted(below)]
    query = _node_sql(graph.nodes[number], known)
    return f"WITH {', '.join(parts)} {query}" if parts else query


def _nodes_below(graph: Graph, number: int, tables: Tables) -> dict[int, Relation]:
    """The nodes that a node is computed from, by the names under which they are read."""
    found: dict[int, Relation] = {}
    for relation in graph.nodes[number].inputs:
        if relation.node is not None and relation not in tables:
            found |= {relation.node: relation, **_nodes_below(graph, relation.node, tables)}
    return found


def _node_sql(node: Node, tables: Tables) -> str:
    match node:
        case Core():
            return _core_sql(node, tables)
        case Fold():
            return _fold_sql(node, tables)
        case Union():
            return _union_sql(node, tables)
        case Expand():
            source = _labelled_source(0, node.input, _fields_below(node), tables)
            selects = [f"SELECT {_outputs_sql(row)} FROM {source}" for row in node.projections]
            return " UNION ALL ".join(selects)
        case Generate():
            return generate_sql(node, tables[node.input])
        case KeyRecompute():
            return recompute_sql(node, tables[node.input])
        case Constant():
            return _constant_sql(node)
        case _:
            assert_never(node)


def _outputs_sql(outputs: Sequence[Output]) -> str:
    return ", ".join(f"{spark_sql_of(o.expression)} AS {quote_name(o.name)}" for o in outputs)


def _labelled_source(
    place: int, relation: Relation, fields: Sequence[Field], tables: Tables
) -> str:
    """A relation with its columns called by their labels; its rows are there without any."""
    columns = [f"{quote_name(f.name)} AS {quote_name(f'{place}.{f.name}')}" for f in fields]
    columns = columns or [f"1 AS {quote_name(f'{place}.')}"]
    return f"(SELECT {', '.join(columns)} FROM {tables[relation]})"


# -- cores ---------------------------------------------------------------------------------------


def _core_sql(core: Core, tables: Tables) -> str:
    view = core.view
    rows, joined = "", set[Equality]()
    for place in view.places:
        source = _labelled_source(place.index, place.relation, place.fields, tables)
        if place.keyed is not None:
            rows = _join_keyed(rows, source, place, place.keyed)
            continue
        ready = [e for e in view.equalities if e not in joined and _is_ready(e, place.index)]
        joined |= set(ready)
        rows = _join_inner(rows, source, ready) if rows else source
    conditions = [_equality_sql(e) for e in view.equalities if e not in joined]
    conditions += [spark_sql_of(predicate) for predicate in view.predicates]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    query = f"SELECT {_outputs_sql(view.outputs)} FROM {rows}{where}"
    return _repeat_rows(core, query)


def _is_ready(equality: Equality, newest: int) -> bool:
    """Whether a place is the last one that an equality waits for."""
    return max(equality.left.place, equality.right.place) == newest


def _join_inner(rows: str, source: str, on: Sequence[Equality]) -> str:
    if not on:
        return f"{rows} CROSS JOIN {source}"
    return f"{rows} JOIN {source} ON {' AND '.join(map(_equality_sql, on))}"


def _join_keyed(rows: str, source: str, place: Place, keyed: KeyedJoin) -> str:
    conditions = [_equality_sql(e) for e in keyed.on]
    on = " AND ".join([*conditions, *map(spark_sql_of, keyed.conditions)])
    if keyed.kind == "exists":
        label = quote_name(f"{place.index}.{EXISTS}")
        return f"(SELECT *, EXISTS (SELECT 1 FROM {source} WHERE {on}) AS {label} FROM {rows})"
    return f"{rows} {JOIN_WORDS[keyed.kind]} {source} ON {on}"


def _equality_sql(equality: Equality) -> str:
    operator: Expression = Compare(
        "<=>" if equality.null_safe else "=", equality.left, equality.right
    )
    return spark_sql_of(operator)


def _repeat_rows(core: Core, query: str) -> str:
    """Each row as often as its own column says."""
    if core.copies is None:
        return query
    count = quote_name(core.copies.name)
    shown = ", ".join(quote_name(field.name) for field in core.fields)
    kept = f"(SELECT * FROM ({query}) WHERE {count} > 0)"
    return f"SELECT {shown} FROM {kept} LATERAL VIEW explode(sequence(1L, {count})) AS __copy"


# -- the other nodes -----------------------------------------------------------------------------


def _fold_sql(fold: Fold, tables: Tables) -> str:
    groups = [f"{quote_name(g.name)} AS {quote_name(f'0.{g.name}')}" for g in fold.groups]
    calls = [f"{_call_sql(call)} AS {quote_name(f'0.{call.name}')}" for call in fold.calls]
    grouping = ", ".join(quote_name(group.name) for group in fold.groups)
    by = "" if fold.is_global else f" GROUP BY {grouping}"
    inner = f"SELECT {', '.join([*groups, *calls])} FROM {tables[fold.input]}{by}"
    return f"SELECT {_outputs_sql(fold.outputs)} FROM ({inner})"


def _call_sql(call: FoldCall) -> str:
    arguments = ", ".join(quote_name(field.name) for field in call.arguments)
    where = f" FILTER (WHERE {quote_name(call.where)})" if call.where is not None else ""
    return f"{call.function}({arguments or '*'}){where}"


def _union_sql(union: Union, tables: Tables) -> str:
    selects = []
    for relation, names in zip(union.inputs, union.columns, strict=True):
        pairs = zip(names, union.fields, strict=True)
        columns = [f"{quote_name(name)} AS {quote_name(field.name)}" for name, field in pairs]
        selects.append(f"SELECT {', '.join(columns)} FROM {tables[relation]}")
    return " UNION ALL ".join(selects)


def generate_sql(node: Generate, rows: str, also: Sequence[str] = ()) -> str:
    """The rows that a generator makes of the rows of a table, with more columns of that table."""
    pairs = zip(node.columns, node.fields, strict=True)
    own = [f"{_generated_sql(column)} AS {quote_name(field.name)}" for column, field in pairs]
    shown = ", ".join([*own, *map(quote_name, also)])
    names = ", ".join(_generated_name(number) for number in range(node.width))
    outer = "OUTER " if node.outer else ""
    return f"SELECT {shown} FROM {rows} LATERAL VIEW {outer}{node.call} __generated AS {names}"


def _generated_name(number: int) -> str:
    return f"__generated_{number}"


def _generated_sql(column: GeneratedColumn) -> str:
    if column.kept is not None:
        return quote_name(column.kept)
    name = _generated_name(column.number)
    return name if column.part is None else f"{name}.{quote_name(column.part)}"


def _fields_below(node: Expand) -> list[Field]:
    """The columns of its input that an expansion reads."""
    read = {column for row in node.projections for column in _columns_read(row)}
    return [Field(c.name, c.type) for c in sorted(read, key=lambda column: column.name)]


def _columns_read(row: Sequence[Output]) -> Iterator[Column]:
    for output in row:
        if isinstance(output.expression, Column):
            yield output.expression


def _constant_sql(constant: Constant) -> str:
    if not constant.rows:
        columns = [Output(field.name, Literal(None, field.type)) for field in constant.fields]
        return f"SELECT {_outputs_sql(columns)} WHERE false"
    names = ", ".join(quote_name(field.name) for field in constant.fields)
    kinds = [field.type for field in constant.fields]
    rows = [
        f"({', '.join(spark_sql_of(Literal(v, k)) for v, k in zip(row, kinds, strict=True))})"
        for row in constant.rows
    ]
    return f"SELECT * FROM (VALUES {', '.join(rows)}) AS __rows({names})"
