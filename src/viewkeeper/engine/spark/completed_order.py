"""What Spark leaves open about an order, filled in: rows that an ORDER BY calls equal get one.

`row_number() OVER (PARTITION BY customer ORDER BY day)` numbers two rows of one day as it meets
them. So that a view has one meaning, wherever and whenever it is computed, the rows below every
window are put into the user's order *and then that of all columns which the SELECT around it reads,
in Spark's order of them*, ascending with NULLs first. Rows that are equal in all of these differ in
what other windows of the SELECT say of them, if at all: a window's order ends with what those that
Spark computes before it have made. A window that finds its rows sorted does not
sort them again, so it meets them in that order; which rows are peers is still what the user's
order says, and ranks and RANGE frames are untouched. The order below a LIMIT is completed likewise.

The plan that a view is compiled from, verification and the tests' judge go through this one
function: it is what "the user's text" means where the text leaves something open. Where the order
is total already it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def complete_frame(frame: DataFrame) -> DataFrame:
    """The same query over the same rows, its orders completed."""
    from pyspark.sql import DataFrame as Frame

    analyzed = frame._jdf.queryExecution().analyzed()
    session = frame.sparkSession
    completion = _completion_in(session._jvm)
    plan = completion.complete_plan(completion.inline.apply(analyzed))
    if plan.fastEquals(analyzed):
        return frame
    return Frame(completion.datasets.ofRows(session._jsparkSession, plan), session)


def complete_order(session: SparkSession, plan: Any) -> Any:
    """The analyzed plan with the orders of its windows and limits completed; itself if it has
    none."""
    return _completion_in(session._jvm).complete_plan(plan)


class _Completion:
    """The classes of Spark's plans that a completion makes.

    They are named in full: of `jvm.org.apache`, Java looks into every jar whether that is a class.
    """

    def __init__(self, jvm: Any) -> None:
        catalyst = "org.apache.spark.sql.catalyst"
        logical, expressions = f"{catalyst}.plans.logical", f"{catalyst}.expressions"
        # Spark gives the queries of WITH new numbers before it optimizes, and confuses those of two
        # parts of FROM. So each reading of one becomes the query itself, as it would be anyway.
        self.inline = getattr(jvm, f"{catalyst}.optimizer.InlineCTE")(True, False, False)
        self.datasets = getattr(jvm, "org.apache.spark.sql.classic.Dataset")
        self._sequences = getattr(jvm, "org.apache.spark.api.python.PythonUtils")
        self._filter = getattr(jvm, f"{logical}.Filter")
        self._sort = getattr(jvm, f"{logical}.Sort")
        self._repartition = getattr(jvm, f"{logical}.Repartition")
        self._repartition_by = getattr(jvm, f"{logical}.RepartitionByExpression")
        self._ordering = getattr(jvm, f"{expressions}.RowOrdering")
        self._sort_order = getattr(jvm, f"{expressions}.SortOrder")
        self._upwards = [
            getattr(getattr(jvm, f"{expressions}.{name}$"), "MODULE$")
            for name in ("Ascending", "NullsFirst")
        ]
        patterns = getattr(jvm, f"{catalyst}.trees.TreePattern")
        self._patterns = (patterns.WINDOW(), patterns.LIMIT())
        self._none = getattr(jvm, "scala.Option").apply(None)

    def complete_plan(self, plan: Any) -> Any:
        if not any(plan.containsPattern(pattern) for pattern in self._patterns):
            return plan
        before = _list_of(plan.children())
        children = [self.complete_plan(child) for child in before]
        found = plan
        if any(new is not old for new, old in zip(children, before, strict=True)):
            found = plan.withNewChildren(self._sequence_of(children))
        match str(plan.nodeName()):
            case "Window":
                return self._sorted_window(plan, found)
            case "GlobalLimit" | "Offset":
                return self._sorted_limit(found)
            case "Filter":
                return self._completed_filter(found)
        return found

    def _sorted_window(self, plan: Any, found: Any) -> Any:
        """A window whose rows are sorted in full; windows of one SELECT stand on each other."""
        keys = _list_of(plan.partitionSpec())
        order = [*map(self._ascending, keys), *_list_of(plan.orderSpec())]
        order += self._all_columns(plan.child())
        child = found.child()
        if keys:
            parted = self._repartition_by(self._sequence_of(keys), child, self._none, self._none)
        else:
            parted = self._repartition(1, True, child)
        rows = self._sort(self._sequence_of(order), False, parted, self._none)
        return found.withNewChildren(self._sequence_of([rows]))

    def _sorted_limit(self, plan: Any) -> Any:
        """A limit above an order, which is completed by all columns of its rows."""
        if str(plan.nodeName()) == "Sort":
            order = [*_list_of(plan.order()), *self._all_columns(plan.child())]
            return self._sort(
                self._sequence_of(order), getattr(plan, "global")(), plan.child(), self._none
            )
        if str(plan.nodeName()) not in ("GlobalLimit", "LocalLimit", "Offset", "Project"):
            return plan
        below = self._sorted_limit(plan.child())
        return plan.withNewChildren(self._sequence_of([below]))

    def _completed_filter(self, plan: Any) -> Any:
        """A filter whose condition asks subqueries."""
        condition = self._completed_expression(plan.condition())
        if condition is plan.condition():
            return plan
        return self._filter(condition, plan.child())

    def _completed_expression(self, expression: Any) -> Any:
        if not any(expression.containsPattern(pattern) for pattern in self._patterns):
            return expression
        before = _list_of(expression.children())
        children = [self._completed_expression(child) for child in before]
        if any(new is not old for new, old in zip(children, before, strict=True)):
            expression = expression.withNewChildren(self._sequence_of(children))
        if str(expression.nodeName()) in ("exists", "listquery", "ListQuery", "Exists"):
            expression = expression.withNewPlan(self.complete_plan(expression.plan()))
        return expression

    def _all_columns(self, plan: Any) -> list[Any]:
        """All columns of a plan, as far as they have an order.

        Spark lists what only windows read by name, and columns of one name as they were numbered,
        which differs from session to session; so those are listed by where they come from.
        """
        columns = _list_of(plan.output())
        names = [str(column.name()) for column in columns]
        for name in {name for name in names if names.count(name) > 1}:
            places = [place for place, each in enumerate(names) if each == name]
            same = sorted((columns[place] for place in places), key=partial(_origin_of, plan))
            for place, column in zip(places, same, strict=True):
                columns[place] = column
        return [self._ascending(c) for c in columns if self._ordering.isOrderable(c.dataType())]

    def _ascending(self, expression: Any) -> Any:
        nothing = self._sequence_of([])
        return self._sort_order(expression, *self._upwards, nothing)

    def _sequence_of(self, items: Sequence[Any]) -> Any:
        return self._sequences.toSeq(list(items))


@lru_cache(maxsize=1)
def _completion_in(jvm: Any) -> _Completion:
    """The completion in a JVM, of which a process has one."""
    return _Completion(jvm)


def _origin_of(plan: Any, column: Any) -> list[int]:
    """Where a column of a plan comes from: at each step down, which child has it."""
    path: list[int] = []
    while True:
        children = _list_of(plan.children())
        found = [n for n, child in enumerate(children) if child.outputSet().contains(column)]
        if not found:
            numbers = [each.exprId() for each in _list_of(plan.output())]
            return [*path, numbers.index(column.exprId())]
        path.append(found[0])
        plan = children[found[0]]


def _list_of(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
