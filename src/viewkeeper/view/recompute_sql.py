"""A recompute as Spark SQL: its calls over rows that are sorted in full beneath them.

Spark leaves the order of rows open that the user's order calls equal. A window that finds its rows
sorted by partition and order does not sort them again, so rows that were put below it into the
order of all columns are met in that order, while peers stay what the user's order says.
"""

from __future__ import annotations

import pyarrow as pa

from viewkeeper.view.definition import MONTHS, KeyRecompute, SortKey, WindowCall, WindowFrame
from viewkeeper.view.expression import Literal
from viewkeeper.view.render import quote_name, spark_sql_of

RANKED = frozenset({"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"})
FRAMELESS = RANKED | {"lag", "lead", "percentile", "percentile_disc", "mode", "listagg"}


def recompute_sql(node: KeyRecompute, table: str) -> str:
    """The query that gives a recompute's rows from the table of its input."""
    read = [f"{quote_name(f.name)} AS {quote_name(f'0.{f.name}')}" for f in node.read]
    source = f"(SELECT {', '.join(read)} FROM {table})"
    shown = ", ".join(f"{spark_sql_of(o.expression)} AS {quote_name(o.name)}" for o in node.outputs)
    if node.is_grouped:
        keys = ", ".join(_label(key) for key in node.keys)
        columns = [*map(_label, node.keys), *(_name_call(c, _call_sql(c)) for c in node.calls)]
        grouping = f" GROUP BY {keys}" if keys else ""
        return f"SELECT {shown} FROM (SELECT {', '.join(columns)} FROM {source}{grouping})"
    calls = [
        _name_call(call, f"{_call_sql(call)} OVER ({_window(node, call)})") for call in node.calls
    ]
    columns = [*(_label(field.name) for field in node.read), *calls]
    return f"SELECT {shown} FROM (SELECT {', '.join(columns)} FROM {_sorted_source(node, source)})"


def _sorted_source(node: KeyRecompute, source: str) -> str:
    rest = [SortKey(name) for name in sorted(field.name for field in node.read)]
    order = _order_sql([*(SortKey(k) for k in node.keys), *node.order, *node.completion, *rest])
    by = ", ".join(_label(key) for key in node.keys) or "0"
    return f"(SELECT * FROM {source} DISTRIBUTE BY {by} SORT BY {order})"


def _label(name: str) -> str:
    return quote_name(f"0.{name}")


def _name_call(call: WindowCall, text: str) -> str:
    return f"{text} AS {_label(call.name)}"


def _order_sql(order: list[SortKey]) -> str:
    return ", ".join(_sort_key_sql(key) for key in order)


def _sort_key_sql(key: SortKey) -> str:
    direction, nulls = "DESC" if key.descending else "ASC", "LAST" if key.nulls_last else "FIRST"
    return f"{_label(key.column)} {direction} NULLS {nulls}"


def _window(node: KeyRecompute, call: WindowCall) -> str:
    keys = ", ".join(_label(key) for key in node.keys)
    parts = [f"PARTITION BY {keys}"] if keys else []
    if node.order and not call.order:
        parts.append(f"ORDER BY {_order_sql(list(node.order))}")
    if call.function not in FRAMELESS:
        parts.append(_frame_sql(call.frame, _order_type(node)))
    return " ".join(parts)


def _order_type(node: KeyRecompute) -> pa.DataType | None:
    kinds = {field.name: field.type for field in node.read}
    return kinds[node.order[0].column] if node.order else None


def _frame_sql(frame: WindowFrame, kind: pa.DataType | None) -> str:
    start = _bound_sql(frame.start, "PRECEDING", frame.unit, kind)
    end = _bound_sql(frame.end, "FOLLOWING", frame.unit, kind)
    return f"{frame.unit.upper()} BETWEEN {start} AND {end}"


def _bound_sql(bound: str | None, open_end: str, unit: str, kind: pa.DataType | None) -> str:
    if bound is None:
        return f"UNBOUNDED {open_end}"
    if bound == "0":
        return "CURRENT ROW"
    distance = bound.removeprefix("-")
    if distance.endswith(MONTHS):
        distance = f"INTERVAL '{distance.removesuffix(MONTHS)}' MONTH"
    elif unit == "range" and kind is not None:
        distance = _distance_sql(distance, kind)
    return f"{distance} {'PRECEDING' if bound.startswith('-') else 'FOLLOWING'}"


def _distance_sql(distance: str, kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        seconds, micros = divmod(int(distance), 1_000_000)
        return f"INTERVAL '{seconds}.{micros:06d}' SECOND"
    if pa.types.is_floating(kind):
        return f"{distance}{'D' if kind == pa.float64() else 'F'}"
    return distance


def _call_sql(call: WindowCall) -> str:
    arguments = [_label(field.name) for field in call.arguments]
    where = f" FILTER (WHERE {_label(call.where)})" if call.where is not None else ""
    distinct = "DISTINCT " if call.is_distinct else ""
    nulls = " IGNORE NULLS" if call.ignores_nulls else ""
    order = _order_sql(list(call.order))
    match call.function:
        case "lag" | "lead":
            text = f"{call.function}({arguments[0]}, {call.settings[0]}, {arguments[1]})"
        case "percentile" | "percentile_disc":
            name = "percentile_cont" if call.function == "percentile" else call.function
            text = f"{name}({call.settings[0]}D) WITHIN GROUP (ORDER BY {order})"
        case "mode":
            text = f"mode() WITHIN GROUP (ORDER BY {order})"
        case "listagg":
            between = _text_sql(call.settings[0])
            text = f"listagg({distinct}{arguments[0]}, {between}) WITHIN GROUP (ORDER BY {order})"
        case "array_join":
            collected = f"collect_{'set' if call.is_distinct else 'list'}({arguments[0]}){where}"
            ascending = "false" if call.order[0].descending else "true"
            between = _text_sql(call.settings[0])
            return f"array_join(sort_array({collected}, {ascending}), {between})"
        case _:
            listed = ", ".join([*arguments, *call.settings])
            text = f"{call.function}({distinct}{listed or _no_arguments(call)})"
    return f"{text}{nulls}{where}"


def _no_arguments(call: WindowCall) -> str:
    return "" if call.function in RANKED else "*"


def _text_sql(text: str) -> str:
    return spark_sql_of(Literal(text, pa.string()))
