"""All statements of both corpora in one project, through one history, judged at every ts.

    python -m tests.sql.corpora.corpus_run [NAME ...]

maintains all statements, or some and those that they read, and writes what became of them into
`results.json`, from which the page is made. Statements that are refused are taken out with their
reasons; the others must be exact at every ts.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tests.sql.corpora.corpus_statement import CorpusStatement
from tests.sql.corpora.corpus_tables import CORPUS_TABLES, CorpusHistory
from tests.sql.corpora.project_statements import PROJECT_STATEMENTS
from tests.sql.corpora.warehouse_statements import WAREHOUSE_STATEMENTS
from tests.sql.moved_clock import MovedClock
from tests.sql.random_case import Verdict, case_folder, judge_project
from tests.sql.random_history import START
from tests.sql.relation_history import RelationHistory, empty_tables
from tests.sql.report_project import ReportProject
from tests.sql.spark_judge import SparkJudge
from viewkeeper.engine.operations.view_explanation import explain_view

STATEMENTS = (*WAREHOUSE_STATEMENTS, *PROJECT_STATEMENTS)
RESULTS = Path(__file__).parent / "results.json"
SAMPLE = frozenset(
    {
        *("ds01", "ds05", "ds35", "ds95", "ds97", "stg_orders", "payments_by_method"),
        *("mart_orders", "subscription_months", "monthly_revenue", "event_tags"),
    }
)
"""Statements that `make test` tries."""
ROWS, BATCHES, TRANSACTIONS, SEED = 6, 3, 8, 7


@dataclass(frozen=True, slots=True)
class StatementResult:
    """What became of a statement: why it is refused, or how it is maintained."""

    refused: str | None
    states: int = 0
    stages: int = 0
    stored: tuple[str, ...] = ()
    lookups: int = 0
    spark: bool = False


@dataclass(frozen=True, slots=True)
class CorpusRun:
    """What a run found: the judge's verdict, and a result for each statement."""

    verdict: Verdict
    results: dict[str, StatementResult]


def run_corpus(spark: SparkSession, folder: Path, names: Collection[str]) -> CorpusRun:
    """Maintain statements of these names through the history, and judge them."""
    views = {each.name: each.text for each in STATEMENTS if each.name in names}
    history, writer = RelationHistory(folder, CORPUS_TABLES), CorpusHistory(SEED)
    # A day that does not end while this runs.
    project = ReportProject(folder, views, spark, clock=MovedClock(START))
    for transaction in writer.fill_tables(ROWS):
        history.apply_transaction(transaction)
    project.load_views()
    for _ in range(BATCHES):
        batch = writer.make_batch(TRANSACTIONS)
        project.maintain_batch(history, batch, [True] * len(batch))
    judge = SparkJudge(spark, empty_tables(CORPUS_TABLES))
    verdict = judge_project(project, history, judge, random.Random(SEED))
    return CorpusRun(verdict, _results_of(project, verdict))


def _results_of(project: ReportProject, verdict: Verdict) -> dict[str, StatementResult]:
    found = {name: StatementResult(reason) for name, reason in verdict.refused.items()}
    with project.open_project() as opened:
        connections = opened.open_connections()
        for name in project.views:
            view = opened.catalogue.bind_view(name, connections)
            shown = explain_view(view, connections, opened.settings.algorithm_of(name))
            kept = [stage.kind for stage in shown.stages[:-1] if stage.stored]
            found[name] = StatementResult(
                None,
                verdict.compared.get(name, 0),
                len(shown.stages) or 1,
                tuple(kept),
                shown.lookups_max,
                shown.runs.startswith("every batch"),
            )
        connections.close()
    return found


def write_results(results: Mapping[str, StatementResult]) -> None:
    """Keep what a run found, besides what is known of other statements."""
    known = {**(read_results() if RESULTS.exists() else {}), **results}
    ordered = {each.name: asdict(known[each.name]) for each in STATEMENTS if each.name in known}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")


def read_results() -> dict[str, StatementResult]:
    """What the last whole run found."""
    content = json.loads(RESULTS.read_text())
    return {
        name: StatementResult(**{**fields, "stored": tuple(fields["stored"])})
        for name, fields in content.items()
    }


def parents_of(statement: CorpusStatement) -> set[str]:
    """The statements that a statement reads."""
    names = {each.name for each in STATEMENTS} - {statement.name}
    return {name for name in names if re.search(rf"\b{name}\b", statement.text)}


def with_parents(names: Collection[str]) -> set[str]:
    """These statements, and all that they read."""
    by_name = {each.name: each for each in STATEMENTS}
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(parents_of(by_name[name]))
    return found


def main() -> None:
    """Run statements, say what is wrong, and write the results."""
    from tests.conftest import SPARK
    from viewkeeper.engine.spark.spark_session import start_session

    names = with_parents(sys.argv[1:] or [each.name for each in STATEMENTS])
    with tempfile.TemporaryDirectory() as staging, case_folder() as folder:
        spark = start_session(SPARK, Path(staging))
        run = run_corpus(spark, folder, names)
        spark.stop()
    for name, wrong in run.verdict.wrong.items():
        print(f"WRONG {name}: {wrong}")
    print(f"{len(run.verdict.exact)} exact in {run.verdict.states} states,", end=" ")
    print(f"{len(run.verdict.refused)} refused, {len(run.verdict.wrong)} wrong")
    if not run.verdict.wrong:
        write_results(run.results)


if __name__ == "__main__":
    main()
