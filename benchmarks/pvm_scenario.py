"""The PVM paper's experiment as a scenario: the view of figure 20, and updates that all interfere.

Citation: Zhang, Ding, Rundensteiner: Parallel multisource view maintenance, 2003, sections 7.1 and
7.4.

Source j has one relation R_j (A, B); the view joins them in a chain. In the beginning every
relation has one row (v, v) for each of some values v, and the k-th update of a source adds another
copy of its k-th row. So every lookup finds rows, as the paper demands, and the answer is wrong
wherever the same value was updated meanwhile at the asked source: what is not compensated shows in
the view. In the end a value has as many rows in the view as the product of its copies.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from benchmarks.pvm_cost import source_of
from viewkeeper.check.history.recorded_history import CommittedTransaction
from viewkeeper.simulate.scenario import Scenario, ScenarioTable
from viewkeeper.view.definition import Field, Relation, ViewDefinition
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import parse_view

FIELDS = (Field("A", pa.int64()), Field("B", pa.int64()))


def relation_of(source: int) -> Relation:
    """R_j, the only relation of source j."""
    return Relation(f"IS{source}", f"R{source}")


def experiment_scenario(sources: int, updates: int, run: int = 1) -> Scenario:
    """m sources, n updates, of which `run` consecutive ones come from the same source (c)."""
    numbers = range(1, sources + 1)
    nth: Counter[int] = Counter()
    transactions = []
    for update in range(1, updates + 1):
        source = source_of(update, sources, run)
        nth[source] += 1
        change = (((nth[source], nth[source]), 1),)
        relation = relation_of(source)
        transactions.append(
            CommittedTransaction(f"DU{update}", {relation.source: {relation: change}})
        )
    rows = {(value, value): 1 for value in range(1, max(nth.values()) + 1)}
    tables = tuple(ScenarioTable(relation_of(number), FIELDS, (), rows) for number in numbers)
    return Scenario(figure_20(sources), tables, tuple(transactions))


def figure_20(sources: int) -> ViewDefinition:
    """The view: R_1.A = R_2.B and so on, and every A is shown."""
    numbers = range(1, sources + 1)
    shown = ", ".join(f"r{j}.A AS a{j}" for j in numbers)
    relations = ", ".join(f"{relation_of(j)} r{j}" for j in numbers)
    joined = " AND ".join(f"r{j}.A = r{j + 1}.B" for j in numbers[:-1])
    text = f"CREATE MATERIALIZED VIEW v AS SELECT {shown} FROM {relations} WHERE {joined}"
    return bind_view(parse_view(text, None), lambda _: FIELDS)
