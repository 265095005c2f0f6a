"""Whether an algorithm needs quiescence: does the view move while updates keep coming?

The measurement is one run, the same for all algorithms. Every update is a row that joins, so each
needs questions. In every round the next update is delivered first, and then exactly those questions
are answered that were outstanding before it. So the updates never stop, yet every question is
answered within a round: an algorithm that handles updates one after the other gets its turn, and
one that waits for a moment without unanswered questions never has it. What is measured is whether
the view changed between the first question and the last update.
"""

from __future__ import annotations

from viewkeeper.check.history.recorded_history import CommittedTransaction
from viewkeeper.errors import SimulationError
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.simulate.campaigns.workload import FIELDS, define_view
from viewkeeper.simulate.scenario import (
    AlgorithmSubject,
    CommitStep,
    DeliverStep,
    EvaluateStep,
    Scenario,
    ScenarioTable,
)
from viewkeeper.simulate.simulated_world import SimulatedWorld
from viewkeeper.simulate.step_choice import BUDGET, drain_world
from viewkeeper.view.definition import Relation

UPDATES = 20
"""Enough for bounds on nested work to be reached; the view grows with their square."""


def is_standstill(subject: AlgorithmSubject, transactions: Transactions) -> bool:
    """Whether the view did not change for as long as updates kept coming."""
    world = SimulatedWorld(_steady_scenario(KINDS[subject.name].one_source, transactions), subject)
    for transaction in world.scenario.transactions:
        before = world.outstanding_asks
        world.make_step(CommitStep(transaction.name))
        _deliver_all(world)
        if transaction is not world.scenario.transactions[-1]:
            for source, count in before.items():
                for _ in range(count):
                    world.make_step(EvaluateStep(source))
                    _deliver_all(world)
    asked = next(e.step for e in world.trace.entries if e.what == "ask")
    moved = any(e.what == "store" and e.step > asked for e in world.trace.entries)
    drain_world(world)
    return not moved


def _deliver_all(world: SimulatedWorld) -> None:
    for _ in range(BUDGET):
        waiting = [step for step in world.enabled_steps() if isinstance(step, DeliverStep)]
        if not waiting:
            return
        world.make_step(waiting[0])
    raise SimulationError("messages do not end")


def _steady_scenario(one_source: bool, transactions: Transactions) -> Scenario:
    """Three relations in a chain; every row of each joins every row of the others."""
    names = ("x", "x", "x") if one_source else ("x", "y", "z")
    relations = [Relation(source, f"r{i + 1}") for i, source in enumerate(names)]
    tables = tuple(
        ScenarioTable(relation, FIELDS, ("k",), {(0, 0, 0, 0): 1}) for relation in relations
    )
    froms = ", ".join(f"{relation} p{i}" for i, relation in enumerate(relations))
    view = define_view(
        f"SELECT p0.k AS a, p1.k AS b, p2.k AS c FROM {froms} WHERE p0.b = p1.a AND p1.b = p2.a"
    )
    made = [_steady_update(relations, number, transactions) for number in range(1, UPDATES + 1)]
    return Scenario(view, tables, tuple(made))


def _steady_update(
    relations: list[Relation], number: int, transactions: Transactions
) -> CommittedTransaction:
    """One insert, at either end in turns; two at its source; or one at both ends."""
    ends = (relations[0], relations[2])
    first = ends[number % 2]
    chosen = [(first, number)]
    if transactions is Transactions.LOCAL:
        chosen.append((first, number + UPDATES))
    if transactions is Transactions.GLOBAL:
        chosen.append((ends[(number + 1) % 2], number + UPDATES))
    parts: dict[str, dict[Relation, tuple[tuple[tuple[int, ...], int], ...]]] = {}
    for relation, key in chosen:
        part = parts.setdefault(relation.source, {})
        part[relation] = (*part.get(relation, ()), ((key, 0, 0, 0), 1))
    return CommittedTransaction(f"T{number}", parts)
