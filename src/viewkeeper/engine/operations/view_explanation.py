"""How a view is maintained, as plain data: who is asked what, by which key, at what cost.

Everything here follows from the definition, the sweep plan and the sources' indexes; nothing is
run. A change at a place takes part in those steps of the plan whose origins name the place; each
step is one lookup, so a batch of any size costs at most 2(m - 1) of them, and one more for each
keyed place that changed.

A report has stages: the nodes of its graph, each with what it reads, what it does, and why it is
stored if it is. Its cores are explained as a plain view is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import pyarrow as pa

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.operations.clock_explanation import explain_ticks
from viewkeeper.engine.settings.algorithm_settings import DEFAULT, SCENARIO, AlgorithmSettings
from viewkeeper.evolution.synchronization.parts_of_sql import quote_at_source, quote_source_table
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.sources.kinds import can_merge_commits, index_quote_of, is_clock
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.stages.fold_calls import text_of_call
from viewkeeper.stages.key_recompute import ROWS_MAX
from viewkeeper.stages.scalar_side import SHOWN_ROWS_MAX, has_shown_scalars
from viewkeeper.stages.window_calls import text_of_window_call
from viewkeeper.view.definition import (
    Constant,
    Core,
    Expand,
    Fold,
    Generate,
    Graph,
    KeyRecompute,
    Node,
    Relation,
    SortKey,
    Union,
    ViewDefinition,
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
    SparkSql,
    needs_spark,
    places_of,
    type_of,
)
from viewkeeper.view.graph import needs_spark as needs_spark_job
from viewkeeper.view.graph import stored_nodes
from viewkeeper.view.kernel_words import call_sql
from viewkeeper.view.render import spark_sql_of, spark_type_of
from viewkeeper.view.sweep_plan import SweepPlan, SweepStep, sweep_plan_of

COMPLETE_REASON = (
    "The view has a state for every transaction of every source, and every state that it shows "
    "stands for one state of each source, in commit order."
)
MERGED_LEVEL = "complete over reports, strong over commits"
MERGED_REASON = (
    "{merging} without transaction ids: what was committed between two looks is reported as one "
    "transaction, whole commits in their order. The view has a state for every report, and every "
    "state that it shows stands for one state of each source, in commit order."
)
STRONG_REASON = (
    "Every state that the view shows stands for one state of each source, in commit order; "
    "transactions that came close together may share a state."
)
WEAKER_REASON = (
    "Less than strong: states in between may stand for no state that the sources had. "
    "`viewkeeper simulate` shows runs in which it happens."
)


RECOMPUTED = "Spark computes the whole view again, from all rows of what it reads"


@dataclass(frozen=True, slots=True)
class UsedRelation:
    """A place of the view: which table, under which alias, and the columns that it reads."""

    place: int
    alias: str
    source: str
    table: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UsedSource:
    """A source of the view: where it is, and what should be done about it."""

    name: str
    kind: str
    description: str
    advice: str | None


@dataclass(frozen=True, slots=True)
class Branch:
    """An edge of the join tree, parent first; no condition means a cross product."""

    parent: int
    child: int
    condition: str


@dataclass(frozen=True, slots=True)
class LookupCost:
    """One lookup: which table of whom, by which columns, and how the source finds the rows."""

    source: str
    table: str
    alias: str
    key: tuple[str, ...]
    by: str
    served: str
    cheap: bool


@dataclass(frozen=True, slots=True)
class ChangeCost:
    """What a change at one place asks."""

    place: int
    alias: str
    asks: tuple[LookupCost, ...]


@dataclass(frozen=True, slots=True)
class ExplainedCondition:
    """A condition that is no join key: `local`, `residual` or `constant`, and where it runs."""

    text: str
    kind: str
    where: str


@dataclass(frozen=True, slots=True)
class ExplainedColumn:
    """A column of the view; the type is None where only Spark knows it before the load."""

    name: str
    type: str | None
    expression: str
    where: str


@dataclass(frozen=True, slots=True)
class StageExplanation:
    """A node of a report's graph: what it reads and does, and why it is stored if it is.

    What a core joins, and what its changes ask, is in `tree` and `changes`.
    """

    name: str
    kind: str
    reads: tuple[str, ...]
    does: tuple[str, ...]
    stored: str | None
    root: int | None = None
    relations: tuple[UsedRelation, ...] = ()
    tree: tuple[Branch, ...] = ()
    changes: tuple[ChangeCost, ...] = ()
    lookups_max: int = 0


@dataclass(frozen=True, slots=True)
class ViewExplanation:
    """A view, explained."""

    view: str
    path: str | None
    incremental: bool
    relations: tuple[UsedRelation, ...]
    sources: tuple[UsedSource, ...]
    root: int
    tree: tuple[Branch, ...]
    changes: tuple[ChangeCost, ...]
    lookups_max: int
    conditions: tuple[ExplainedCondition, ...]
    outputs: tuple[ExplainedColumn, ...]
    runs: str
    algorithm: str
    level: str
    level_reason: str
    warnings: tuple[str, ...]
    stages: tuple[StageExplanation, ...] = ()


def explain_view(
    view: ViewDefinition, connections: Connections, algorithm: AlgorithmSettings
) -> ViewExplanation:
    """Explain a bound view; asks its sources for their indexes only."""
    if view.graph is not None:
        return _explain_report(view, view.graph, connections, algorithm)
    plan = sweep_plan_of(view)
    changes = tuple(_change_cost(view, plan, place.index, connections) for place in view.places)
    sources = tuple(_used_source(connections, name) for name in view.sources)
    settings = [connections.settings[name] for name in view.sources]
    level, reason = explain_level(algorithm, settings)
    return ViewExplanation(
        view=view.name,
        path=view.path,
        incremental=True,
        relations=_used_relations(view),
        sources=sources,
        root=plan.tree.root,
        tree=_branches_of(view, plan),
        changes=changes,
        lookups_max=sum(step.asks_somebody for step in plan.steps),
        conditions=_list_conditions(view, plan),
        outputs=tuple(
            ExplainedColumn(
                o.name,
                _type_name(o.expression),
                readable_sql(view, o.expression),
                evaluator_of(o.expression),
            )
            for o in view.outputs
        ),
        runs=_explain_runs(view, algorithm),
        algorithm=algorithm.name,
        level=level,
        level_reason=reason,
        warnings=(
            *view.warnings,
            *_scan_warnings(changes, connections.settings),
            *(s.advice for s in sources if s.advice),
        ),
    )


def _used_relations(view: ViewDefinition) -> tuple[UsedRelation, ...]:
    return tuple(
        UsedRelation(p.index, p.alias, p.relation.source, p.relation.table, p.columns)
        for p in view.places
    )


def _branches_of(view: ViewDefinition, plan: SweepPlan) -> tuple[Branch, ...]:
    found = []
    for edge in plan.tree.edges:
        on = _join_condition(view, [(k.have, k.want, k.null_safe) for k in edge.on])
        keyed = view.places[edge.child].keyed
        found.append(Branch(edge.parent, edge.child, f"{keyed.kind.upper()} {on}" if keyed else on))
    return tuple(found)


def _explain_report(
    view: ViewDefinition, graph: Graph, connections: Connections, algorithm: AlgorithmSettings
) -> ViewExplanation:
    is_recomputed = graph.recomputed is not None
    # A view that is computed again has stages too, which nobody ever runs.
    nodes = () if is_recomputed else graph.nodes
    stages = tuple(_explain_node(view, graph, node, connections) for node in nodes)
    changes = tuple(change for stage in stages for change in stage.changes)
    sources = tuple(_used_source(connections, name) for name in view.sources)
    settings = [connections.settings[name] for name in view.sources]
    level, reason = explain_level(None if is_recomputed else algorithm, settings)
    outputs = [ExplainedColumn(o.name, _type_name(o.expression), o.name, "") for o in view.outputs]
    return ViewExplanation(
        view=view.name,
        path=view.path,
        incremental=not is_recomputed,
        relations=_used_relations(view),
        sources=sources,
        root=0,
        tree=(),
        changes=changes,
        lookups_max=sum(stage.lookups_max for stage in stages),
        conditions=(),
        outputs=tuple(outputs),
        runs=RECOMPUTED if is_recomputed else _explain_runs(view, algorithm),
        algorithm="none" if is_recomputed else algorithm.name,
        level=level,
        level_reason=reason,
        warnings=(
            *view.warnings,
            *explain_ticks(graph),
            *_recomputation_warnings(graph),
            *_scan_warnings(changes, connections.settings),
            *(s.advice for s in sources if s.advice),
        ),
        stages=stages,
    )


def _recomputation_warnings(graph: Graph) -> list[str]:
    """What is to be known of a view that is computed again."""
    if graph.recomputed is None:
        return []
    return [
        f"it is not maintained from changes ({graph.recomputed}): whenever what it reads has "
        "changed, it is computed again by Spark, at most every second and never closer than "
        "that takes, and the difference is one state"
    ]


def _explain_node(
    view: ViewDefinition, graph: Graph, node: Node, connections: Connections
) -> StageExplanation:
    is_root = node is graph.root
    name = view.name if is_root else f"#{node.number}"
    reads = tuple(_relation_name(relation) for relation in node.inputs)
    stored = "it is the view" if is_root else stored_nodes(graph).get(node.number)
    match node:
        case Core():
            made = _explain_core(node.view, name, reads, stored, connections)
            return replace(made, does=(*made.does, *_explain_scalars(node)))
        case Fold():
            groups = ", ".join(field.name for field in node.groups) or "all rows"
            calls = [f"{call.name} = {text_of_call(call)}" for call in node.calls]
            return StageExplanation(name, "fold", reads, (f"per {groups}", *calls), stored)
        case Union():
            return StageExplanation(name, "union", reads, ("the rows of all",), stored)
        case Expand():
            each = f"every row {len(node.projections)} times, once per grouping set"
            return StageExplanation(name, "expand", reads, (each,), stored)
        case Generate():
            where = "Spark: one job for the changes of a batch" if node.needs_spark else "kernel"
            call = f"every row once per row of {node.call}  [{where}]"
            return StageExplanation(name, "generate", reads, (call,), stored)
        case KeyRecompute():
            return _explain_recompute(node, name, reads, stored)
        case Constant():
            rows = f"{len(node.rows)} rows that the text gives"
            return StageExplanation(name, "constant", reads, (rows,), stored)
        case _:
            assert_never(node)


def _explain_recompute(
    node: KeyRecompute, name: str, reads: tuple[str, ...], stored: str | None
) -> StageExplanation:
    keys = ", ".join(node.keys)
    shown = "one row" if node.is_grouped else "every row"
    what = f"{shown} per {keys or 'all rows'}, computed again for what is touched"
    asked = (
        f"asks its input for the rows of touched ({keys}) only"
        if keys
        else f"asks its input for all rows at every change; they may be {ROWS_MAX:,} at most"
    )
    order = ", ".join(_sort_key_text(key) for key in node.order)
    calls = [f"{call.name} = {text_of_window_call(call)}" for call in node.calls]
    ordered = (f"in the order of {order}, then of all columns",) if order else ()
    return StageExplanation(name, "recompute", reads, (what, *ordered, *calls, asked), stored)


def _sort_key_text(key: SortKey) -> str:
    direction = " DESC" if key.descending else ""
    nulls = "" if key.nulls_last == key.descending else " NULLS LAST" if key.nulls_last else ""
    return f"{key.column}{direction}{nulls}"


def _explain_scalars(core: Core) -> list[str]:
    """What the values of scalar subqueries mean for the rows beside them."""
    if not core.scalars:
        return []
    many = f"{SHOWN_ROWS_MAX:,}"
    if has_shown_scalars(core):
        return [
            "every row shows a value of a subquery, and is another one whenever that changes;"
            f" a batch that would change more than {many} rows so is one state, as of its last ts"
        ]
    return ["all rows are compared again whenever the value of a subquery changes"]


def _explain_core(
    core: ViewDefinition,
    name: str,
    reads: tuple[str, ...],
    stored: str | None,
    connections: Connections,
) -> StageExplanation:
    plan = sweep_plan_of(core)
    conditions = [f"where {c.text}  [{c.where}]" for c in _list_conditions(core, plan)]
    outputs = [
        f"{o.name} = {readable_sql(core, o.expression)}  [{evaluator_of(o.expression)}]"
        for o in core.outputs
    ]
    return StageExplanation(
        name,
        "core",
        reads,
        (*conditions, *outputs),
        stored,
        plan.tree.root,
        _used_relations(core),
        _branches_of(core, plan),
        tuple(_change_cost(core, plan, place.index, connections) for place in core.places),
        len(plan.steps),
    )


def _relation_name(relation: Relation) -> str:
    return f"#{relation.node}" if relation.node is not None else str(relation)


def _change_cost(
    view: ViewDefinition, plan: SweepPlan, place: int, connections: Connections
) -> ChangeCost:
    steps = [s for s in plan.steps if place in s.origins and s.asks_somebody]
    asks = tuple(_lookup_cost(view, step, connections) for step in steps)
    return ChangeCost(place, view.places[place].alias, asks)


def _lookup_cost(view: ViewDefinition, step: SweepStep, connections: Connections) -> LookupCost:
    target = view.places[step.target]
    relation = target.relation
    window = step.window.column if step.window is not None else None
    columns = [key.want.name for key in step.on] or ([window.name] if window is not None else [])
    if relation.is_own:
        return _own_lookup_cost(view, step)
    table = connections.get_source(relation.source).describe_table(relation.table)
    if is_clock(connections.settings[relation.source]):
        served, cheap = "the clock has one row", True
    elif not columns:
        served, cheap = "reads the whole table: no equality joins it", False
    elif table.is_indexed(columns):
        served, cheap = "an index finds the rows", True
    elif table.can_find_by_key(columns):
        served, cheap = "no index: reads the table, returns matching rows only", False
    elif window is not None:
        served, cheap = "no index: reads the table, returns the rows that have passed only", False
    else:
        served, cheap = "reads the whole table: values of this type have several spellings", False
    by = _join_condition(view, [(k.have, k.want, k.null_safe) for k in step.on])
    if window is not None:
        spans = "days that have passed" if window.type == pa.date32() else "time that has passed"
        by = f"{_column_name(view, window)} among the {spans}"
    return LookupCost(
        relation.source, relation.table, target.alias, tuple(columns), by, served, cheap
    )


def _own_lookup_cost(view: ViewDefinition, step: SweepStep) -> LookupCost:
    target = view.places[step.target]
    by = _join_condition(view, [(k.have, k.want, k.null_safe) for k in step.on])
    node = target.relation.node is not None
    served = "computed for these keys" if node else "found in what is stored of the view"
    key = tuple(k.want.name for k in step.on)
    return LookupCost("", _relation_name(target.relation), target.alias, key, by, served, True)


def _scan_warnings(
    changes: Sequence[ChangeCost], settings: Mapping[str, SourceSettings]
) -> list[str]:
    """A sentence for every lookup by key that no index serves."""
    slow = {(a.source, a.table, a.key) for c in changes for a in c.asks if not a.cheap and a.key}
    return [
        f"{source}.{table} has no index that begins with ({', '.join(key)}): every lookup reads "
        f"the table; {_index_remedy(settings[source], table, key)}"
        for source, table, key in sorted(slow)
    ]


def _index_remedy(source: SourceSettings, table: str, key: tuple[str, ...]) -> str:
    mark = index_quote_of(source)
    if mark is None:
        return f"there are none in a source of the kind {source.kind}"
    return f"{_index_statement(table, key, mark)} in {source.name} makes it a search"


def _index_statement(table: str, key: tuple[str, ...], mark: str) -> str:
    name = quote_at_source("_".join((table.replace(".", "_"), *key)), mark)
    columns = ", ".join(quote_at_source(column, mark) for column in key)
    return f"CREATE INDEX {name} ON {quote_source_table(table, mark)} ({columns})"


def _used_source(connections: Connections, name: str) -> UsedSource:
    source, kind = connections.get_source(name), connections.settings[name].kind
    return UsedSource(name, kind, source.describe_source(), source.read_health(()).advice)


def _list_conditions(view: ViewDefinition, plan: SweepPlan) -> tuple[ExplainedCondition, ...]:
    kinds = ("constant", "local")
    found = []
    for expression in (*plan.conditions, *plan.late):
        places = len(places_of(expression))
        kind = kinds[places] if places < len(kinds) else "residual"
        found.append(
            ExplainedCondition(readable_sql(view, expression), kind, evaluator_of(expression))
        )
    return tuple(found)


def evaluator_of(expression: Expression) -> str:
    """Who evaluates an expression, and why."""
    if not needs_spark(expression):
        return "kernel"
    return "Spark: the kernel has no equal of it"


def explain_level(
    algorithm: AlgorithmSettings | None, sources: Sequence[SourceSettings]
) -> tuple[str, str]:
    """The level of a view over these sources, and why; without an algorithm it is recomputed."""
    promise = Level.STRONG if algorithm is None else algorithm.kind.promise[SCENARIO]
    merging = [source.name for source in sources if can_merge_commits(source)]
    if promise is Level.COMPLETE and merging:
        who = f"{', '.join(merging)} {'reports' if len(merging) == 1 else 'report'}"
        return MERGED_LEVEL, MERGED_REASON.format(merging=who)
    reasons = {Level.COMPLETE: COMPLETE_REASON, Level.STRONG: STRONG_REASON}
    return promise.lower_name, reasons.get(promise, WEAKER_REASON)


def _explain_runs(view: ViewDefinition, algorithm: AlgorithmSettings) -> str:
    if algorithm.name != DEFAULT:
        return f"{algorithm.name} runs in the driver, transaction by transaction; no Spark job"
    if needs_spark_job(view):
        return (
            "every batch ends in a Spark job, because some expression is evaluated by Spark SQL "
            "on the joined rows; `run` lets the view advance apart from those that need no job"
        )
    return "small batches run in the driver without Spark, large ones as one Spark job"


def _join_condition(view: ViewDefinition, pairs: Sequence[tuple[Column, Column, bool]]) -> str:
    words = [
        f"{_column_name(view, have)} {'<=>' if safe else '='} {_column_name(view, want)}"
        for have, want, safe in pairs
    ]
    return " AND ".join(words)


def _column_name(view: ViewDefinition, column: Column) -> str:
    return f"{view.places[column.place].alias}.{column.name}"


def _type_name(expression: Expression) -> str | None:
    kind = type_of(expression)
    return None if kind is None else spark_type_of(kind)


def readable_sql(view: ViewDefinition, expression: Expression) -> str:
    """An expression as a user would write it, with the view's own aliases."""
    match expression:
        case Column():
            return _column_name(view, expression)
        case Literal():
            return _literal_text(expression)
        case Compare() | Logic() | Arithmetic():
            left, right = readable_sql(view, expression.left), readable_sql(view, expression.right)
            return f"({left} {expression.operator.upper()} {right})"
        case Not():
            return f"NOT {readable_sql(view, expression.operand)}"
        case IsNull():
            return f"({readable_sql(view, expression.operand)} IS NULL)"
        case Cast():
            return (
                f"CAST({readable_sql(view, expression.operand)} AS "
                f"{spark_type_of(expression.type)})"
            )
        case Call():
            arguments = [readable_sql(view, argument) for argument in expression.arguments]
            return call_sql(expression, arguments, spark_type_of(expression.type))
        case SparkSql():
            text = expression.text
            for column in expression.columns:
                text = text.replace(spark_sql_of(column), _column_name(view, column))
            return text
        case _:
            assert_never(expression)


def _literal_text(literal: Literal) -> str:
    if literal.value is None:
        return "NULL"
    if isinstance(literal.value, bool):
        return str(literal.value).upper()
    if isinstance(literal.value, str):
        return "'" + literal.value.replace("'", "''") + "'"
    return str(literal.value)
