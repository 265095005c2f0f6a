"""The matrix: every construct through every event, judged by Spark on its text.

All constructs are views of one project, so that they also meet each other: shared lookups, shared
parents, one record for all. The events are batches of a single history; between some of them the
process is killed while it commits. Answers come in pages of three rows. A failure names the
construct, the event and the difference. `make fuzz` judges every construct at every ts.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.borrowed_spark import gateway_environment
from tests.faults.deaths import step
from tests.faults.processes import maintainer
from tests.sql.construct_events import BATCHES, CRASHES, EMPTIED, FIRST, Event
from tests.sql.construct_forms import NOTHING, Construct, RefusedConstruct, slug_of
from tests.sql.constructs import CONSTRUCTS
from tests.sql.random_case import IN_PAGES, Verdict, case_folder, judge_project
from tests.sql.refused_constructs import REFUSED
from tests.sql.relation_history import RelationHistory, empty_tables
from tests.sql.report_project import ReportProject
from tests.sql.spark_judge import SparkJudge
from viewkeeper.errors import DefinitionError
from viewkeeper.warehouse.metadata.head import ViewHead, read_head

EVERY_STATE = float(os.environ.get("VIEWKEEPER_MATRIX_STATES", "0.3"))
"""Of this share of the constructs every state is judged, of the others the last one and another;
what changes at the wrong ts is noticed in all of them."""
DEATHS = (("plan", "after"), ("record", "before"), ("record", "after"))


@dataclass(frozen=True, slots=True)
class MatrixRun:
    """What became of all constructs, and which event each ts was."""

    verdict: Verdict
    events: dict[int, str]
    views: Mapping[str, ViewHead]
    """What the warehouse has at the end: views and, as `view#3`, their internal views."""


def matrix_views() -> dict[str, str]:
    """Every construct and the views that it reads, by name."""
    parents = {name: text for each in CONSTRUCTS for name, text in each.parents}
    return {**parents, **{slug_of(each): each.text for each in CONSTRUCTS}}


@pytest.fixture(scope="module")
def run(spark: SparkSession) -> Iterator[MatrixRun]:
    with case_folder() as folder:
        yield run_matrix(spark, folder)


def run_matrix(spark: SparkSession, folder: Path) -> MatrixRun:
    """All constructs through all events."""
    history = RelationHistory(folder)
    project = ReportProject(folder, matrix_views(), spark, IN_PAGES)
    for transaction in FIRST:
        history.apply_transaction(transaction)
    project.load_views()
    names = ["before the load"] * len(FIRST)
    for batch in (*BATCHES, *EMPTIED):
        names += [name for name, _ in batch]
        project.maintain_batch(history, [each for _, each in batch], [True] * len(batch))
    for batch, death in zip(CRASHES, DEATHS, strict=True):
        names += [name for name, _ in batch]
        die_while_maintaining(project, history, batch, death, gateway_environment(spark))
    project.maintain_batch(history, [], [])
    events: dict[int, str] = {}
    for name, ts in zip(names, project.stamps_of(history), strict=True):
        events[ts] = f"{events[ts]}; {name}" if ts in events else name
    judge = SparkJudge(spark, empty_tables())
    verdict = judge_project(project, history, judge, random.Random(0), EVERY_STATE)
    return MatrixRun(verdict, events, read_head(folder / "warehouse").views)


def die_while_maintaining(
    project: ReportProject,
    history: RelationHistory,
    batch: tuple[Event, ...],
    death: tuple[str, str],
    environment: Mapping[str, str],
) -> None:
    """Commit, and let a process that maintains it die at a step."""
    for _, transaction in batch:
        history.apply_transaction(transaction)
    at = step(death[0], 1, death[1])
    with maintainer(project.folder, at, environment=environment) as process:
        code = process.ended()
        assert code == -signal.SIGKILL, f"exit code {code}:\n{process.output}"


@pytest.mark.parametrize("construct", CONSTRUCTS, ids=slug_of)
def test_a_construct_is_exact_at_every_event(construct: Construct, run: MatrixRun) -> None:
    name = slug_of(construct)
    assert name not in run.verdict.refused, f"refused: {run.verdict.refused[name]}"
    wrong = run.verdict.wrong.get(name)
    assert wrong is None, f"{construct.name}\n{construct.text}\n{wrong}\nevents: {run.events}"
    assert name in run.verdict.exact


@pytest.mark.parametrize("construct", CONSTRUCTS, ids=slug_of)
def test_the_page_says_what_is_stored(construct: Construct, run: MatrixRun) -> None:
    name = slug_of(construct)
    besides = [each for each in run.views if each.startswith(f"{name}#")]
    assert len(besides) == len(construct.besides), f"stored besides: {besides}"
    assert bool(run.views[name].hidden) == (construct.stored != NOTHING)


@pytest.mark.parametrize("construct", REFUSED, ids=slug_of)
def test_what_is_refused_says_why(
    construct: RefusedConstruct, spark: SparkSession, memory: Path
) -> None:
    RelationHistory(memory)
    ReportProject(memory, {"refused": construct.text}, spark)
    with pytest.raises(DefinitionError) as caught, viewkeeper.open(memory, spark) as project:
        project.refresh()
    error = caught.value
    assert construct.reason
    assert construct.reason.lower() in str(error).lower()
    assert error.hint == construct.way_out
    # The text begins in the second line of the view's file.
    assert error.line == 2
    assert error.column is not None
    assert construct.text[error.column - 1 :].startswith(construct.place)
