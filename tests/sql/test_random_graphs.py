"""Random graphs without Spark: exact at every ts, judged by SQLite.

Each seed makes a project of many reports from random plans (`random_plans`), which read each other
and two databases with random histories. It is loaded, maintained by a life of the project that ends
while its batch is committed, and by another one, which finishes that and goes on. Every report is
compared at every ts with SQLite on a text of the same meaning; nothing may change at other ts.

`VIEWKEEPER_FUZZ_GRAPHS` says how many graphs, `VIEWKEEPER_FUZZ_SEED` where the seeds begin. What
Spark says of a query's text is judged by `test_random_queries`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sql.random_case import IN_PAGES, case_folder
from tests.sql.random_history import RANDOM_TABLES, RandomHistory
from tests.sql.random_plans import PlanWriter, RandomReport
from tests.sql.relation_history import RelationHistory, Row
from tests.sql.report_project import ReportProject
from tests.sql.spark_judge import compare_rows, sum_changes
from tests.sql.sqlite_judge import states_at
from viewkeeper.engine.batch import staged_run
from viewkeeper.engine.batch.own_relations import OwnRelations, changes_of_rows
from viewkeeper.stages import scalar_side
from viewkeeper.stages.key_recompute import touched_keys
from viewkeeper.view.definition import Graph, Union
from viewkeeper.warehouse.metadata.definition_version import DefinitionTable
from viewkeeper.warehouse.store import Store

REPORTS = 50
"""How many reports a project has."""
GRAPHS = int(os.environ.get("VIEWKEEPER_FUZZ_GRAPHS", "200"))
FIRST = int(os.environ.get("VIEWKEEPER_FUZZ_SEED", "1"))
SEEDS = range(FIRST, FIRST + -(-GRAPHS // REPORTS))


class Death(BaseException):
    """A life of the project ends here."""


class GraphCase:
    """The reports of a seed, maintained in several lives and compared with SQLite."""

    def __init__(self, seed: int, reports: int, folder: Path) -> None:
        rng = random.Random(seed)
        self._writer = RandomHistory(rng)
        self._reports = PlanWriter(rng).write_case(reports)
        self._rng = rng
        self.history = RelationHistory(folder, RANDOM_TABLES)
        texts = {name: report.text for name, report in self._reports.items()}
        settings = IN_PAGES if seed % 2 else ""
        self.project = ReportProject(folder, texts, None, settings, None, self._compile_report)

    def _compile_report(self, name: str, _: str, tables: Sequence[DefinitionTable]) -> Graph:
        return self._reports[name].compile_graph(tables)

    def run_lives(self) -> None:
        """Load, maintain a batch by a life that dies, and by the next one what is left and more."""
        for transaction in self._writer.first_transactions():
            self.history.apply_transaction(transaction)
        self._commit_some(8)
        self.project.load_views()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Store, "commit", die_around(Store.commit, self._rng.random() < 0.5))
            with pytest.raises(Death):
                self._maintain_some(5)
        self._maintain_some(4)

    def _commit_some(self, count: int) -> None:
        for _ in range(count):
            self.history.apply_transaction(self._writer.next_transaction())

    def _maintain_some(self, count: int) -> None:
        batch = [self._writer.next_transaction() for _ in range(count)]
        self.project.maintain_batch(self.history, batch, [True] * count)

    def find_differences(self) -> tuple[int, list[str]]:
        """How many states were compared, and what is wrong with reports."""
        with self.project.reading():
            stamps = self.project.stamps_of(self.history)
            feeds = {name: self.project.feed_of(name) for name in self.project.views}
        first = max(created for created, _ in feeds.values())
        moments = sorted({first, *(ts for ts in stamps if ts > first)})
        texts = {name: report.query.text for name, report in self._reports.items()}
        wanted = states_at(texts, self.history.lifetimes(), stamps, moments)
        wrong = [f"{name}: {error}" for name, error in self.project.stopped.items()]
        wrong += [f"{name} is refused: {why}" for name, why in self.project.refused.items()]
        for name, (_, changes) in feeds.items():
            if name not in self.project.stopped:
                states = ((ts, wanted[ts][name]) for ts in moments)
                wrong += find_difference(name, self._reports[name], changes, states)
        return len(moments) * len(feeds), wrong


def find_difference(
    name: str, report: RandomReport, changes: Any, states: Iterable[tuple[int, list[Row]]]
) -> list[str]:
    """What is wrong first with a report, if something is."""
    wanted = dict(states)
    if strange := sorted(ts for ts in changes if ts > min(wanted) and ts not in wanted):
        return [f"{name} changes at ts {strange}, at which nothing was committed"]
    try:
        found = sum_changes(changes, [*wanted])
    except AssertionError as error:
        return [f"{name}: {error}\n  {report.query.text}"]
    for ts, rows in wanted.items():
        if difference := compare_rows(found[ts], rows):
            return [f"{name}, ts {ts} of {[*wanted]}: {difference}\n  {report.query.text}"]
    return []


def die_around(commit: Callable[..., Any], is_before: bool) -> Callable[..., Any]:
    """A commit before or after which the life ends."""

    def dying(*given: Any, **named: Any) -> Any:
        if not is_before:
            commit(*given, **named)
        raise Death

    return dying


# -- deliberate mistakes ---------------------------------------------------------------------------


def forget_stored_rows(patch: pytest.MonkeyPatch) -> None:
    """What a view or fold was before the batch is asked for in vain."""
    right = OwnRelations._stored_rows
    patch.setattr(OwnRelations, "_stored_rows", lambda *given: right(*given).slice(0, 0))


def leave_a_side_where_it_is(patch: pytest.MonkeyPatch) -> None:
    """A new value of a scalar moves no rows."""
    patch.setattr(scalar_side._Side, "show_moved_rows", lambda side: [])
    patch.setattr(scalar_side._Side, "show_all_rows", lambda side: [])


def forget_a_touched_key(patch: pytest.MonkeyPatch) -> None:
    """A window is computed again from the changes alone for one of the touched keys."""
    patch.setattr(staged_run, "touched_keys", lambda *given: touched_keys(*given).slice(1))


def unite_fewer_parts(patch: pytest.MonkeyPatch) -> None:
    """A part of a union is not asked for what it was."""

    def wrong(own: Any, node: Union, *given: Any) -> pa.Table:
        return right(own, replace(node, inputs=node.inputs[:1], columns=node.columns[:1]), *given)

    right = OwnRelations._union_rows
    patch.setattr(OwnRelations, "_union_rows", wrong)


def lose_the_last_stage(patch: pytest.MonkeyPatch) -> None:
    """What a stage leaves for later ones lacks a row."""
    patch.setattr(staged_run, "changes_of_rows", lambda rows: changes_of_rows(rows.slice(1)))


MISTAKES = (
    forget_stored_rows,
    *(
        pytest.param(mistake, marks=pytest.mark.campaign)
        for mistake in (
            leave_a_side_where_it_is,
            forget_a_touched_key,
            unite_fewer_parts,
            lose_the_last_stage,
        )
    ),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_found(mistake: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mistake(patch)
        found = next((seed for seed in range(12) if find_wrong(seed, 12)), None)
    assert found is not None, "12 seeds do not find it"
    assert not find_wrong(found, 12), f"seed {found} fails without the mistake too"


def find_wrong(seed: int, reports: int) -> list[str]:
    with case_folder() as folder:
        case = GraphCase(seed, reports, folder)
        case.run_lives()
        return case.find_differences()[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_state_is_what_sqlite_says(seed: int) -> None:
    with case_folder() as folder:
        case = GraphCase(seed, REPORTS, folder)
        case.run_lives()
        states, wrong = case.find_differences()
    assert not wrong, "\n".join(wrong)
    assert states >= 8 * REPORTS, "few states were compared"
