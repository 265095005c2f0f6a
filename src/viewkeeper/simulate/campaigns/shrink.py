"""Shrinking: from a run that fails to the smallest one found that still does.

A failing seed has some eight transactions over four relations and sixty steps; what goes wrong
usually needs two or three of them. Everything that may be left out is tried in turn, the large
things first (delta debugging): transactions, relations of the view, conditions, row changes, rows
at the start, lateness, reporters, channels, and at last steps. A candidate is replayed by
`schedule.follow`, which skips steps that are no longer possible and runs to the end in a fixed
order; whatever still fails is the new starting point. It ends when nothing more can be left out,
or when the budget of replays is used up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from viewkeeper.check.history.recorded_history import CommittedTransaction, Row
from viewkeeper.errors import ViewkeeperError
from viewkeeper.simulate.scenario import AlgorithmSubject, Scenario, ScenarioTable, Step
from viewkeeper.view.definition import Relation, ViewDefinition
from viewkeeper.view.expression import Compare, Expression, places_of
from viewkeeper.view.render import spark_sql_of
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import parse_view

BUDGET = 1_500
"""Replays after which the smallest run so far has to do."""


@dataclass(frozen=True, slots=True)
class Case:
    """A run: what happens, under which algorithm, in which order."""

    scenario: Scenario
    subject: AlgorithmSubject
    steps: tuple[Step, ...]


Fails = Callable[[Case], bool]
Reduce = Callable[[Case], Iterator[Case]]
T = TypeVar("T")


def shrink_case(case: Case, fails: Fails, budget: int = BUDGET) -> Case:
    """The smallest case found that still fails; `case` must."""
    left = budget
    smaller = True
    while smaller:
        smaller = False
        for reduce in REDUCTIONS:
            found: Case | None = case
            while found is not None:
                found = None
                for candidate in reduce(case):
                    if not left:
                        return case
                    if not is_possible(candidate.scenario):
                        continue
                    left -= 1
                    if fails(candidate):
                        case, found, smaller = candidate, candidate, True
                        break
    return case


def is_possible(scenario: Scenario) -> bool:
    """Whether no transaction deletes what is not there or inserts a key that is."""
    rows = {table.relation: Counter(dict(table.rows)) for table in scenario.tables}
    keys = {
        table.relation: [i for i, f in enumerate(table.fields) if f.name in table.key]
        for table in scenario.tables
    }
    for transaction in scenario.transactions:
        for part in transaction.parts.values():
            for relation, changes in part.items():
                for row, count in changes:
                    rows[relation][row] += count
                if min(rows[relation].values(), default=0) < 0:
                    return False
                if keys[relation] and not _has_unique_keys(rows[relation], keys[relation]):
                    return False
    return True


def _has_unique_keys(rows: Mapping[Row, int], key: list[int]) -> bool:
    present = Counter(
        tuple(row[i] for i in key) for row, count in rows.items() for _ in range(count)
    )
    return max(present.values(), default=0) <= 1


def _sublists_of(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """The items without some of them: all, halves, quarters, ..., single ones, later ones first."""
    size = len(items)
    while size:
        for start in range(len(items) - size, -1, -size):
            yield items[:start] + items[start + size :]
        size //= 2


def _fewer_transactions(case: Case) -> Iterator[Case]:
    for kept in _sublists_of(case.scenario.transactions):
        yield _with_transactions(case, kept)


def _with_transactions(case: Case, kept: tuple[CommittedTransaction, ...]) -> Case:
    """The scenario with these transactions only; what it says about others is dropped too."""
    parts = {(source, t.name) for t in kept for source in t.parts}
    reporter = {n: s for n, s in case.scenario.reporter.items() if (s, n) in parts}
    late = case.scenario.late & parts
    return replace(
        case, scenario=replace(case.scenario, transactions=kept, reporter=reporter, late=late)
    )


def _fewer_changes(case: Case) -> Iterator[Case]:
    """Row changes one by one; a part or a transaction without any is none."""
    for at, transaction in enumerate(case.scenario.transactions):
        for source, part in transaction.parts.items():
            for relation, rows in part.items():
                for i in range(len(rows)):
                    fewer = {**part, relation: rows[:i] + rows[i + 1 :]}
                    parts = {**transaction.parts, source: {r: c for r, c in fewer.items() if c}}
                    changed = CommittedTransaction(
                        transaction.name, {s: p for s, p in parts.items() if p}
                    )
                    before, after = (
                        case.scenario.transactions[:at],
                        case.scenario.transactions[at + 1 :],
                    )
                    middle = (changed,) if changed.parts else ()
                    yield _with_transactions(case, before + middle + after)


def _fewer_rows(case: Case) -> Iterator[Case]:
    for at, table in enumerate(case.scenario.tables):
        for kept in _sublists_of(tuple(table.rows.items())):
            fewer = replace(table, rows=dict(kept))
            yield _with_tables(
                case, (*case.scenario.tables[:at], fewer, *case.scenario.tables[at + 1 :])
            )


def _with_tables(case: Case, tables: tuple[ScenarioTable, ...]) -> Case:
    return replace(case, scenario=replace(case.scenario, tables=tables))


def _simpler_connections(case: Case) -> Iterator[Case]:
    scenario = case.scenario
    for simpler in (
        replace(scenario, fifo=True, tails=False, late=frozenset()),
        replace(scenario, tails=False),
        replace(scenario, late=frozenset()),
        replace(scenario, reporter={}),
    ):
        if simpler != scenario:
            yield replace(case, scenario=simpler)
    for late in sorted(scenario.late):
        yield replace(case, scenario=replace(scenario, late=scenario.late - {late}))


def _fewer_steps(case: Case) -> Iterator[Case]:
    for kept in _sublists_of(case.steps):
        yield replace(case, steps=kept)


def _fewer_places(case: Case) -> Iterator[Case]:
    """The view without one of its places, with the tables that it still reads."""
    view = case.scenario.view
    for place in reversed(view.places):
        if len(view.places) > 1:
            yield from _with_view(case, _reduced_select(view, {place.index}, None))


def _fewer_conditions(case: Case) -> Iterator[Case]:
    view = case.scenario.view
    for i in range(len(view.predicates)):
        yield from _with_view(case, _reduced_select(view, set(), i))


def _with_view(case: Case, select: str) -> Iterator[Case]:
    fields = {table.relation: table.fields for table in case.scenario.tables}
    try:
        parsed = parse_view(f"CREATE MATERIALIZED VIEW v AS {select}", None)
        view = bind_view(parsed, lambda relation: fields[relation])
    except ViewkeeperError:
        # What is left need not be a view that can be maintained; then it is no candidate.
        return
    used = set(view.relations)
    tables = tuple(table for table in case.scenario.tables if table.relation in used)
    kept = tuple(
        t for each in case.scenario.transactions if (t := _reduce_transaction(each, used)).parts
    )
    smaller = replace(case, scenario=replace(case.scenario, view=view, tables=tables))
    yield _with_transactions(smaller, kept)


def _reduce_transaction(
    transaction: CommittedTransaction, used: set[Relation]
) -> CommittedTransaction:
    parts = {
        source: {relation: rows for relation, rows in part.items() if relation in used}
        for source, part in transaction.parts.items()
    }
    return CommittedTransaction(
        transaction.name, {source: part for source, part in parts.items() if part}
    )


def _reduced_select(view: ViewDefinition, gone: set[int], predicate: int | None) -> str:
    """The view's SELECT without some places and without one of its predicates."""
    places = [place for place in view.places if place.index not in gone]
    joins = [Compare("<=>" if e.null_safe else "=", e.left, e.right) for e in view.equalities]
    others = [p for i, p in enumerate(view.predicates) if i != predicate]
    where = [_expression_text(view, c) for c in [*joins, *others] if not places_of(c) & gone]
    outputs = [
        f"{_expression_text(view, output.expression)} AS {output.name}"
        for output in view.outputs
        if not places_of(output.expression) & gone
    ]
    if not outputs:
        outputs = [f"{places[0].alias}.{places[0].columns[0]} AS c"]
    tables = ", ".join(f"{place.relation} {place.alias}" for place in places)
    return f"SELECT {', '.join(outputs)} FROM {tables}" + (
        f" WHERE {' AND '.join(where)}" if where else ""
    )


def _expression_text(view: ViewDefinition, expression: Expression) -> str:
    """An expression with aliases instead of places."""
    text = spark_sql_of(expression)
    named = re.sub(
        r"`(\d+)\.([^`]+)`", lambda found: f"{view.places[int(found[1])].alias}.{found[2]}", text
    )
    return re.sub(r"\b(\d+)L\b", r"\1", named).removeprefix("(").removesuffix(")")


REDUCTIONS: tuple[Reduce, ...] = (
    _fewer_transactions,
    _fewer_places,
    _fewer_conditions,
    _fewer_changes,
    _fewer_rows,
    _simpler_connections,
    _fewer_steps,
)
