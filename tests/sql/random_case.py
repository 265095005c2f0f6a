"""One random case: queries, a history, batches with restarts, and the verdict on every state.

    python -m tests.sql.random_case SEED [--only v3] [--shrink]

replays a case and prints what is wrong; with `--shrink` it tries to make the history smaller first.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from tests.conftest import SPARK
from tests.sql.random_history import RandomHistory
from tests.sql.random_queries import QueryWriter
from tests.sql.relation_history import RelationHistory, Transaction, empty_tables
from tests.sql.report_project import LEDGERS, PARENT_REFUSED, ReportProject
from tests.sql.spark_judge import SparkJudge, compare_rows, compare_types, sum_changes
from viewkeeper.engine.spark.spark_session import start_session

VERDICT = "sql verdict"
"""The property of a test's report that has the counts of its verdict."""
VIEWS = 10
"""How many views a case has."""
_MEMORY = Path("/dev/shm")
ON_SPARK = "batch: {inline_rows: 0}\n"


@dataclass(frozen=True, slots=True)
class RandomCase:
    """What a seed makes: views, and what is committed, batch by batch.

    The first batch is what is there when the views are loaded. `looks` says after which
    transactions somebody looks; what is committed between two looks has one ts.
    """

    seed: int
    views: dict[str, str]
    batches: tuple[tuple[Transaction, ...], ...]
    looks: tuple[tuple[bool, ...], ...]
    settings: str = ""


@dataclass(slots=True)
class Verdict:
    """What became of the views of a case."""

    states: int = 0
    exact: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    """By view: a state that is not what Spark says, or an error."""
    compared: dict[str, int] = field(default_factory=dict)
    """By view: in how many states it was compared."""

    def count_queries(self) -> dict[str, dict[str, int]]:
        """How many were exact, refused and wrong, and the reasons of the refused."""
        reasons = Counter(reason for reason in self.refused.values() if reason != PARENT_REFUSED)
        sums = {
            "queries exact": len(self.exact),
            "states compared": self.states,
            "refused": reasons.total(),
            "wrong": len(self.wrong),
        }
        return {"sums": sums, "reasons": dict(reasons)}


def make_case(seed: int, count: int, judge: SparkJudge) -> RandomCase:
    """The case of a seed."""
    rng = random.Random(seed)
    history = RandomHistory(rng)
    batches = [tuple(history.first_transactions())]
    for _ in range(2):
        batches.append(tuple(history.next_transaction() for _ in range(rng.randint(2, 3))))
    looks = tuple(tuple(rng.random() < 0.8 for _ in batch) for batch in batches)
    views = QueryWriter(rng).write_case(count, judge.is_valid)
    settings = ON_SPARK if rng.random() < 0.1 else ""
    return RandomCase(seed, views, tuple(batches), looks, settings)


def run_case(case: RandomCase, spark: SparkSession, judge: SparkJudge) -> Verdict:
    """Load, maintain and judge; an error of the whole run is laid at the views that cause it."""
    try:
        return _run_together(case, spark, judge)
    except Exception as error:  # noqa: BLE001 - it is part of the verdict
        if len(case.views) == 1:
            (name,) = case.views
            return Verdict(wrong={name: f"{type(error).__name__}: {error}"})
    verdict = Verdict()
    for name in case.views:
        alone = run_case(replace(case, views=views_for(case, name)), spark, judge)
        _add_verdict(verdict, alone, name)
    return verdict


def views_for(case: RandomCase, name: str) -> dict[str, str]:
    """A view, and the text of those that it reads in their places, so that it can be alone."""
    names = list(case.views)
    text = case.views[name]
    for parent in reversed(names[: names.index(name)]):
        text = text.replace(f"{parent} AS t", f"({case.views[parent]}) AS t")
    return {name: text}


def _add_verdict(verdict: Verdict, other: Verdict, name: str) -> None:
    verdict.states += other.states
    verdict.exact += other.exact
    verdict.refused.update(other.refused)
    verdict.wrong.update(other.wrong)
    assert name in {*other.exact, *other.refused, *other.wrong}


def _run_together(case: RandomCase, spark: SparkSession, judge: SparkJudge) -> Verdict:
    with case_folder() as folder:
        history = RelationHistory(folder)
        project = ReportProject(folder, case.views, spark, case.settings)
        for transaction in case.batches[0]:
            history.apply_transaction(transaction)
        project.load_views()
        for batch, looks in zip(case.batches[1:], case.looks[1:], strict=True):
            project.maintain_batch(history, batch, looks)
        return judge_project(project, history, judge, random.Random(case.seed))


@contextmanager
def case_folder() -> Iterator[Path]:
    """A folder in memory, where the system has that: what a disk waits for is not tried here."""
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="viewkeeper-case-", dir=where) as folder:
        yield Path(folder)


def judge_project(
    project: ReportProject, history: RelationHistory, judge: SparkJudge, rng: random.Random
) -> Verdict:
    """Compare every view at every ts with Spark on its text."""
    broken = [name for name in LEDGERS.values() if name in project.stopped]
    assert not broken, project.stopped
    with project.reading():
        return _judge_views(project, history, judge, rng)


def _judge_views(
    project: ReportProject, history: RelationHistory, judge: SparkJudge, rng: random.Random
) -> Verdict:
    verdict = Verdict(refused=project.refused, wrong=dict(project.stopped))
    times = project.stamps_of(history)
    judge.show_relations(history.as_tables(times), project.views)
    for name in project.views:
        if name not in verdict.wrong:
            read = judge.relations_of(project.views[name])
            used = [
                ts for ts, changed in zip(times, history.touched, strict=True) if read & changed
            ]
            states, wrong = judge_view(project, name, used, judge, rng)
            verdict.states += states
            verdict.compared[name] = states
            if wrong is None:
                verdict.exact.append(name)
            else:
                verdict.wrong[name] = wrong
    return verdict


def judge_view(
    project: ReportProject, name: str, times: Sequence[int], judge: SparkJudge, rng: random.Random
) -> tuple[int, str | None]:
    """How many states of a view were compared, and what is wrong first.

    `times` are the ts at which something changed that it reads; at others it must stay as it is.
    """
    created, changes, schema = project.feed_of(name)
    moments = sorted({created, *(ts for ts in times if ts > created)})
    if strange := sorted(changes.keys() - {*moments}):
        return 0, f"changes at ts {strange}, at which nothing was committed"
    wanted, types = judge.states_of(project.views[name], moments)
    if wrong := compare_types(schema, types):
        return 0, wrong
    found = sum_changes(changes, moments)
    for ts in moments:
        if wrong := compare_rows(found[ts], wanted[ts]):
            return 0, f"ts {ts} of {moments}: {wrong}"
    for ts in (moments[-1], rng.choice(moments)):
        if wrong := compare_rows(project.rows_at(name, ts), wanted[ts]):
            return 0, f"read as of ts {ts}: {wrong}"
    return len(moments), None


def shrink_case(
    case: RandomCase, name: str, spark: SparkSession, judge: SparkJudge
) -> tuple[RandomCase, str]:
    """A smaller case in which this view is still wrong, and what is then wrong with it."""
    found = replace(case, views=views_for(case, name))
    wrong = run_case(found, spark, judge).wrong.get(name)
    if wrong is None:
        found = case
        wrong = run_case(found, spark, judge).wrong[name]
    smaller = True
    while smaller:
        smaller = False
        for each in _smaller_cases(found):
            now = run_case(each, spark, judge).wrong.get(name)
            if now is not None:
                found, wrong, smaller = each, now, True
                break
    return found, wrong


def _smaller_cases(case: RandomCase) -> Iterator[RandomCase]:
    """The case without a batch, a transaction or a change."""
    for at, batch in enumerate(case.batches):
        for number, transaction in enumerate(batch):
            for gone in [range(len(transaction)), *([n] for n in range(len(transaction)))]:
                left = tuple(c for n, c in enumerate(transaction) if n not in gone)
                now = (*batch[:number], *((left,) if left else ()), *batch[number + 1 :])
                if now != batch and (now or at):
                    looks = list(case.looks)
                    looks[at] = (True,) * len(now)
                    batches = (*case.batches[:at], now, *case.batches[at + 1 :])
                    yield replace(case, batches=batches, looks=tuple(looks))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("--queries", type=int, default=VIEWS)
    parser.add_argument("--only")
    parser.add_argument("--shrink", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        spark = start_session(SPARK, Path(scratch))
        judge = SparkJudge(spark, empty_tables())
        case = make_case(options.seed, options.queries, judge)
        if options.only:
            case = replace(case, views=views_for(case, options.only))
        verdict = run_case(case, spark, judge)
        print(verdict)
        for name in verdict.wrong:
            small, wrong = (
                shrink_case(case, name, spark, judge)
                if options.shrink
                else (case, verdict.wrong[name])
            )
            print(f"{name}: {small.views[name]}\n{wrong}")
            for batch in small.batches if options.shrink else ():
                print("batch", *batch, sep="\n  ")
        spark.stop()


if __name__ == "__main__":
    main()
