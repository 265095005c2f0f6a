"""Spark's plan, read into plain data.

A plan comes over in one piece, as JSON: operators in pre-order with the number of their children,
expressions as such lists inside their fields. What the JSON does not carry is asked from the plan
itself, when it is needed: types, places in the text, the rows of VALUES, the projections of
ROLLUP. An operator, or a field of one, that is not known here is refused.

A part of the plan that reads no table is constant: Spark evaluates it, and its rows are the result.
So VALUES, `range` and a calendar made by `explode(sequence(...))` are rows like any others.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

from viewkeeper.engine.compile.plan.clock_place import STAND_INS
from viewkeeper.engine.compile.plan.pivot_values import PivotArrays
from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    JavaNode,
    PlanAggregate,
    PlanBagOperation,
    PlanConstant,
    PlanExpand,
    PlanExpression,
    PlanFilter,
    PlanGenerate,
    PlanItem,
    PlanJoin,
    PlanLeaf,
    PlanLimit,
    PlanLiteral,
    PlanOperation,
    PlanOperator,
    PlanProject,
    PlanSort,
    PlanSortKey,
    PlanUnion,
    PlanWindow,
)
from viewkeeper.engine.compile.plan.scalar_subqueries import MARK as SCALAR
from viewkeeper.engine.compile.plan.scalar_subqueries import ScalarSubqueries
from viewkeeper.engine.compile.refusal_reasons import (
    CLOCK,
    EXPRESSIONS,
    refuse,
    refuse_expression,
    refuse_operator,
)

Fields = dict[str, Any]
Evaluate = Callable[[JavaNode, tuple[Attribute, ...]], PlanConstant]
"""Runs a part of a plan that reads no table."""
Rewrite = Callable[[Any], Any]
"""Applies all rules to a plan."""

MARK = "\x1f"
"""Between a table's number and a column's ordinal, in the names of the columns of a leaf."""
SKIPPED = frozenset(
    {*("exprId", "jvmId", "resultId", "metadata", "qualifier", "class"), "branches"}
)
"""What says nothing about an expression, or says again, as CASE does, what its operands are."""
TRYING = ("TryAdd", "TrySubtract", "TryMultiply", "TryDivide", "TryMod")
ALIKE = ("Repartition", "RepartitionByExpression", "RebalancePartitions", "ResolvedHint")
"""Operators that say where rows are computed, not which."""

KNOWN_FIELDS: dict[str, frozenset[str]] = {
    "LogicalRDD": frozenset(
        {
            *("output", "rdd", "outputPartitioning", "outputOrdering", "isStreaming", "session"),
            *("fromCheckpoint", "originStats", "originConstraints", "stream"),
        }
    ),
    "Filter": frozenset({"condition", "child"}),
    "Project": frozenset({"projectList", "child"}),
    "Aggregate": frozenset({"groupingExpressions", "aggregateExpressions", "child", "hint"}),
    "Join": frozenset({"left", "right", "joinType", "condition", "hint"}),
    "Union": frozenset({"children", "byName", "allowMissingCol"}),
    "Intersect": frozenset({"left", "right", "isAll"}),
    "Except": frozenset({"left", "right", "isAll"}),
    "Expand": frozenset({"projections", "output", "child"}),
    "Generate": frozenset(
        {*("generator", "unrequiredChildIndex", "outer", "qualifier"), "generatorOutput", "child"}
    ),
    "Window": frozenset({"windowExpressions", "partitionSpec", "orderSpec", "child", "hint"}),
    "Sort": frozenset({"order", "global", "child", "hint"}),
    "GlobalLimit": frozenset({"limitExpr", "child"}),
    "LocalLimit": frozenset({"limitExpr", "child"}),
    "Offset": frozenset({"offsetExpr", "child"}),
}
CONSTANT_LEAVES = frozenset({"OneRowRelation", "LocalRelation", "Range"})
JOINS = frozenset(
    {
        *("Inner", "Cross", "LeftOuter", "RightOuter", "FullOuter"),
        *("LeftSemi", "LeftAnti", "ExistenceJoin", "LeftSingle"),
    }
)


def read_plan(java: Any, evaluate: Evaluate, rewrite: Rewrite) -> PlanOperator:
    """The operators of a plan to which all rules have been applied; `rewrite` does that for the
    plans of subqueries."""

    def read_subquery(found: JavaNode) -> PlanOperator:
        return read_rewritten(rewrite(found.get_node()))

    def read_rewritten(plan: Any) -> PlanOperator:
        reading = _PlanReading(json.loads(plan.toJSON()), evaluate, scalars)
        return reading.read_operator(JavaNode(lambda: plan))

    scalars = ScalarSubqueries(read_subquery)
    return read_rewritten(java)


class _PlanReading:
    """One pass over the list of operators."""

    def __init__(
        self, operators: list[Fields], evaluate: Evaluate, scalars: ScalarSubqueries
    ) -> None:
        self._operators = operators
        self._evaluate = evaluate
        self._scalars = scalars
        self._at = 0
        self._pivots = PivotArrays()
        self._readers: dict[str, Callable[[Fields, JavaNode], PlanOperator]] = {
            "LogicalRDD": _read_leaf,
            "Filter": self._read_filter,
            "Project": self._read_project,
            "Aggregate": self._read_aggregate,
            "Join": self._read_join,
            "Union": self._read_union,
            "Intersect": self._read_bag_operation,
            "Except": self._read_bag_operation,
            "Expand": self._read_expand,
            "Generate": self._read_generate,
            "Window": self._read_window,
            "Sort": self._read_sort,
            "GlobalLimit": self._read_limit,
            "LocalLimit": self._read_limit,
            "Offset": self._read_limit,
        }

    def read_operator(self, java: JavaNode) -> PlanOperator:
        """The operator at which the pass is, with everything below it."""
        end = self._end_of(self._at)
        if _is_constant(self._operators[self._at : end]):
            self._at = end
            return self._evaluate(java, _output_of(java))
        fields = self._operators[self._at]
        self._at += 1
        kind = _class_of(fields)
        if kind in ALIKE:
            return self.read_operator(java.child(0))
        if kind not in self._readers:
            raise refuse_operator(kind, java)
        unknown = fields.keys() - KNOWN_FIELDS[kind] - {"class", "num-children"}
        if unknown:
            raise refuse_operator(f"{kind} with {', '.join(sorted(unknown))}", java)
        return self._readers[kind](fields, java)

    def _end_of(self, start: int) -> int:
        """Where the operators below one end."""
        waiting, at = 1, start
        while waiting:
            waiting += self._operators[at]["num-children"] - 1
            at += 1
        return at

    def _read_filter(self, fields: Fields, java: JavaNode) -> PlanFilter | PlanProject:
        below = self.read_operator(java.child(0))
        condition = read_expression(fields["condition"], java.part(lambda node: node.condition()))
        plan = PlanFilter(below, self._pivots.take_places(condition), java)
        return self._scalars.filter_beside(plan)

    def _read_project(self, fields: Fields, java: JavaNode) -> PlanProject:
        below = self.read_operator(java.child(0))
        items = _read_items(fields["projectList"], java.part(lambda node: node.projectList()))
        plan = PlanProject(below, self._take_places(items), java)
        return self._scalars.project_beside(plan)

    def _take_places(self, items: tuple[PlanItem, ...]) -> tuple[PlanItem, ...]:
        return tuple(
            PlanItem(item.attribute, self._pivots.take_places(item.expression)) for item in items
        )

    def _read_aggregate(self, fields: Fields, java: JavaNode) -> PlanAggregate | PlanProject:
        below = self.read_operator(java.child(0))
        groups = java.part(lambda node: node.groupingExpressions())
        grouping = tuple(
            read_expression(each, _element(groups, index))
            for index, each in enumerate(fields["groupingExpressions"])
        )
        made = java.part(lambda node: node.aggregateExpressions())
        items = self._take_places(_read_items(fields["aggregateExpressions"], made))
        plan = PlanAggregate(below, grouping, self._pivots.unfold_items(items), java)
        return self._scalars.aggregate_beside(plan)

    def _read_join(self, fields: Fields, java: JavaNode) -> PlanOperator:
        left = self.read_operator(java.child(0))
        right = self.read_operator(java.child(1))
        kind = _object_of(fields["joinType"])
        if kind not in JOINS:
            raise refuse_operator(f"{kind} join", java)
        condition = None
        if fields.get("condition"):
            top = java.part(lambda node: node.condition().get())
            condition = read_expression(fields["condition"], top)
        exists = fields["joinType"].get("exists")
        column = _attribute_of(exists[0]) if exists else None
        plan = PlanJoin(kind, left, right, condition, column, java)
        return self._scalars.join_beside(plan)

    def _read_union(self, fields: Fields, java: JavaNode) -> PlanUnion:
        inputs = [self.read_operator(java.child(i)) for i in range(fields["num-children"])]
        return PlanUnion(tuple(inputs), _output_of(java), java)

    def _read_bag_operation(self, fields: Fields, java: JavaNode) -> PlanBagOperation:
        left = self.read_operator(java.child(0))
        right = self.read_operator(java.child(1))
        kind = _class_of(fields)
        if not fields["isAll"]:
            raise refuse_operator(kind, java)
        return PlanBagOperation(kind, left, right, _output_of(java), java)

    def _read_expand(self, _fields: Fields, java: JavaNode) -> PlanExpand:
        below = self.read_operator(java.child(0))
        rows = java.get_node().projections()
        projections = tuple(_read_projection(rows.apply(index)) for index in range(rows.size()))
        return PlanExpand(below, projections, _output_of(java), java)

    def _read_generate(self, fields: Fields, java: JavaNode) -> PlanGenerate:
        below = self.read_operator(java.child(0))
        top = java.part(lambda node: node.generator())
        generator = read_expression(fields["generator"], top)
        made = tuple(_attribute_of(each[0]) for each in fields["generatorOutput"])
        return PlanGenerate(below, generator, made, bool(fields["outer"]), _output_of(java), java)

    def _read_window(self, fields: Fields, java: JavaNode) -> PlanWindow:
        below = self.read_operator(java.child(0))
        items = _read_items(
            fields["windowExpressions"], java.part(lambda node: node.windowExpressions())
        )
        parts = java.part(lambda node: node.partitionSpec())
        partition = tuple(
            read_expression(each, _element(parts, index))
            for index, each in enumerate(fields["partitionSpec"])
        )
        order = _read_order(fields["orderSpec"], java.part(lambda node: node.orderSpec()))
        return PlanWindow(below, items, partition, order, java)

    def _read_sort(self, fields: Fields, java: JavaNode) -> PlanSort:
        below = self.read_operator(java.child(0))
        return PlanSort(below, _read_order(fields["order"], java.part(lambda n: n.order())), java)

    def _read_limit(self, fields: Fields, java: JavaNode) -> PlanOperator:
        below = self.read_operator(java.child(0))
        name = "offsetExpr" if _class_of(fields) == "Offset" else "limitExpr"
        top = java.part(lambda node: getattr(node, name)())
        number = int(constant_text(read_expression(fields[name], top)) or "0")
        if name == "offsetExpr":
            return PlanLimit(below, number, None, java)
        if isinstance(below, PlanLimit):
            # A global limit stands on a local one, and both on an offset.
            limit = number if below.limit is None else min(number, below.limit)
            return PlanLimit(below.input, below.skipped, limit, java)
        return PlanLimit(below, 0, number, java)


def _read_order(keys: list[list[Fields]], java: JavaNode) -> tuple[PlanSortKey, ...]:
    return tuple(
        sort_key_of(read_expression(each, _element(java, index))) for index, each in enumerate(keys)
    )


def sort_key_of(expression: PlanExpression) -> PlanSortKey:
    """A sort order of Spark's as a sort key."""
    assert isinstance(expression, PlanOperation)
    assert expression.kind == "SortOrder"
    facts = dict(expression.facts)
    descending = facts["direction"] == "Descending"
    return PlanSortKey(expression.operands[0], descending, facts["nullOrdering"] == "NullsLast")


def constant_text(expression: PlanExpression) -> str | None:
    """The value of an expression that reads no column, as Spark writes it; None for NULL."""
    if isinstance(expression, PlanLiteral) and not isinstance(expression.value, bytes):
        plain = ("integer", "long", "short", "byte", "double", "float", "string")
        if expression.value is None or expression.type in plain:
            return expression.value
    assert not isinstance(expression, Attribute), "a constant reads no column"
    value = expression.java.get_node().eval(None)
    return None if value is None else str(value)


def _is_constant(operators: list[Fields]) -> bool:
    """Whether a part of a plan reads nothing but rows of the text itself."""
    leaves = {_class_of(fields) for fields in operators if not fields["num-children"]}
    return leaves <= CONSTANT_LEAVES and not _has_subquery(operators)


def _has_subquery(operators: list[Fields]) -> bool:
    """Whether some expression reads more than the rows: a query, or the clock."""
    text = json.dumps(operators)
    kinds = ("LogicalRDD", "ScalarSubquery", "OuterReference")
    return any(f".{kind}" in text for kind in kinds) or any(time in text for time in STAND_INS)


def _read_leaf(fields: Fields, java: JavaNode) -> PlanLeaf:
    columns = [each[0] for each in fields["output"]]
    names = [column["name"].split(MARK) for column in columns]
    if not names or any(len(parts) != 2 for parts in names):
        raise refuse_operator("LogicalRDD", java)
    ordinals = tuple(int(ordinal) for _, ordinal in names)
    return PlanLeaf(int(names[0][0]), tuple(map(_attribute_of, columns)), ordinals, java)


def _read_items(items: list[list[Fields]], java: JavaNode) -> tuple[PlanItem, ...]:
    return tuple(_read_item(each, _element(java, index)) for index, each in enumerate(items))


def _read_item(item: list[Fields], java: JavaNode) -> PlanItem:
    top = item[0]
    if _class_of(top) == "Alias":
        expression = read_expression(item[1:], java.child(0))
        return PlanItem(Attribute(_id_of(top), "", top["name"]), expression)
    attribute = _attribute_of(top)
    return PlanItem(attribute, attribute)


def _read_projection(row: Any) -> tuple[PlanExpression, ...]:
    return tuple(_read_whole(row.apply(index)) for index in range(row.size()))


def _read_whole(expression: Any) -> PlanExpression:
    return read_expression(json.loads(expression.toJSON()), JavaNode(lambda: expression))


def _element(java: JavaNode, index: int) -> JavaNode:
    return java.part(lambda sequence: sequence.apply(index))


def _output_of(java: JavaNode) -> tuple[Attribute, ...]:
    columns = java.get_node().output()
    found = []
    for index in range(columns.size()):
        column = columns.apply(index)
        kind = json.loads(column.dataType().json())
        found.append(Attribute(column.exprId().id(), type_text_of(kind), column.name()))
    return tuple(found)


def read_expression(nodes: list[Fields], java: JavaNode) -> PlanExpression:
    """An expression from its pre-order list."""
    expression, end = _take_expression(nodes, 0, java)
    assert end == len(nodes), "an expression ends where its list does"
    return expression


def _take_expression(nodes: list[Fields], at: int, java: JavaNode) -> tuple[PlanExpression, int]:
    fields = nodes[at]
    kind = _class_of(fields)
    if kind == "AttributeReference":
        return _attribute_of(fields), at + 1
    if kind == "Literal":
        return _literal_of(fields, java), at + 1
    if kind == SCALAR and not fields["num-children"]:
        return PlanOperation(SCALAR, (), (("id", _id_of(fields)),), java), at + 1
    if kind in EXPRESSIONS or kind in CLOCK:
        raise refuse_expression(kind, java)
    operands, end = [], at + 1
    for index in range(fields["num-children"]):
        operand, end = _take_expression(nodes, end, java.child(index))
        operands.append(operand)
    if "replacement" in fields:
        return _replaced_call(fields, operands[0], java), end
    return PlanOperation(kind, tuple(operands), _facts_of(fields, java), java), end


def _replaced_call(fields: Fields, replacement: PlanExpression, java: JavaNode) -> PlanExpression:
    """What Spark puts in the place of a call such as NULLIF: only that was coerced."""
    kind = _class_of(fields)
    if kind in TRYING and isinstance(replacement, PlanOperation):
        # Only the class says that errors are tolerated.
        inner = replacement.operands[0] if replacement.kind == "TryEval" else replacement
        assert isinstance(inner, PlanOperation)
        return PlanOperation(kind, inner.operands, (), java)
    if not isinstance(replacement, PlanOperation):
        return replacement
    spelled = [
        read_expression(value, _field_of(java, name))
        for name, value in fields.items()
        if _is_expression_list(value)
    ]
    call = PlanOperation(kind, tuple(spelled), (), java)
    return PlanOperation(
        replacement.kind, replacement.operands, replacement.facts, replacement.java, call
    )


def _field_of(java: JavaNode, name: str) -> JavaNode:
    return java.part(lambda node: getattr(node, name)())


def _is_expression_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _facts_of(fields: Fields, java: JavaNode) -> tuple[tuple[str, Any], ...]:
    facts: dict[str, Any] = {}
    for name, value in fields.items():
        if name in SKIPPED:
            continue
        if value is None:
            value = _asked_fact(java, name)
        elif isinstance(value, dict) and ("object" in value or "product-class" in value):
            value = _object_of(value)
        elif name == "dataType":
            value = type_text_of(value)
        elif isinstance(value, dict | list):
            value = json.dumps(value, sort_keys=True)
        facts[name] = value
    return tuple(sorted((name, value) for name, value in facts.items() if value is not None))


def _asked_fact(java: JavaNode, name: str) -> str | int | bool | None:
    """A setting that the JSON cannot carry: an enumeration, a character."""
    value = _field_of(java, name).get_node()
    return value if isinstance(value, str | int | bool | None) else str(value.toString())


def _literal_of(fields: Fields, java: JavaNode) -> PlanLiteral:
    kind, value = type_text_of(fields["dataType"]), fields.get("value")
    if kind == "binary" and value is not None:
        value = bytes(java.get_node().value())
    elif kind == "timestamp_ntz" and value is not None:
        value = _local_text(int(value), java)
    return PlanLiteral(value, kind, java)


def _local_text(microseconds: int, java: JavaNode) -> str:
    try:
        return str(datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=microseconds))
    except OverflowError:
        raise refuse("a timestamp beyond the year 9999", None, java) from None


def _attribute_of(fields: Fields) -> Attribute:
    return Attribute(_id_of(fields), type_text_of(fields["dataType"]), fields["name"])


def _id_of(fields: Fields) -> int:
    return int(fields["exprId"]["id"])


def _class_of(fields: Fields) -> str:
    return str(fields["class"]).rpartition(".")[2].rstrip("$")


def _object_of(value: Fields) -> str:
    name = value.get("object") or value["product-class"]
    return str(name).rpartition(".")[2].rstrip("$")


def type_text_of(kind: Any) -> str:
    """A type of Spark's JSON as text, which is its name where it has one.

    >>> type_text_of("long"), type_text_of({"type": "array", "elementType": "long"})
    ('long', '{"elementType": "long", "type": "array"}')
    """
    return kind if isinstance(kind, str) else json.dumps(kind, sort_keys=True)
