"""One random case: queries, a history, batches with restarts, and the verdict on every state.

    python -m tests.sql.random_case SEED [--only v3] [--shrink]

replays a case and prints what is wrong; with `--shrink` it tries to make the history smaller first.

    python -m tests.sql.random_case SEED --cases 400 [--minutes 60]

tries the cases of so many seeds, as long as there is time to begin one, and prints the sums of all
after each: queries, states, refusals by reason, and the commands that replay what is wrong.

Many views share a project, its history and its restarts. Each view is compared with Spark on its
text as of its last ts, every other one also as of another, which the seed picks, and one view of
ten at every ts. One case of fifty is maintained on Spark, the others where the engine would do it
by itself.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from tests.conftest import SPARK
from tests.sql.moved_clock import MovedClock
from tests.sql.random_history import RANDOM_TABLES, START, RandomHistory
from tests.sql.random_queries import QueryWriter
from tests.sql.relation_history import RelationHistory, Step, empty_tables
from tests.sql.report_project import LEDGERS, PARENT_REFUSED, ReportProject
from tests.sql.spark_judge import CHEAP, SparkJudge, compare_rows, compare_types, sum_changes
from viewkeeper.engine.spark.spark_session import start_session

VERDICT = "sql verdict"
"""The property of a test's report that has the counts of its verdict."""
VIEWS = 25
"""How many views a case has."""
SPARK_VIEWS = 5
"""How many it has at most if all is maintained on Spark, which takes seconds for each."""
EVERY_STATE = 0.1
"""The share of views that are compared at every ts."""
OTHER_STATE = 0.5
"""The share of the others that are compared not only at the last one."""
_MEMORY = Path("/dev/shm")
ON_SPARK = "batch: {inline_rows: 0}\n"
IN_PAGES = "batch: {page_rows: 3}\n"
"""Every answer with more than a few rows is worked on in pieces."""


@dataclass(frozen=True, slots=True)
class RandomCase:
    """What a seed makes: views, and what is committed, batch by batch.

    The first batch is what is there when the views are loaded. `looks` says after which
    transactions somebody looks; what is committed between two looks has one ts.
    """

    seed: int
    views: dict[str, str]
    batches: tuple[tuple[Step, ...], ...]
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
    batches: list[tuple[Step, ...]] = [tuple(history.first_transactions())]
    for _ in range(2):
        batches.append(tuple(history.next_step() for _ in range(rng.randint(2, 4))))
    looks = tuple(tuple(rng.random() < 0.8 for _ in batch) for batch in batches)
    on_spark = rng.random() < 0.02
    settings = ON_SPARK if on_spark else IN_PAGES if seed % 3 == 0 else ""
    number = min(count, SPARK_VIEWS) if on_spark else count
    judge.show_relations(empty_tables(RANDOM_TABLES), {})
    views = QueryWriter(rng).write_case(number, judge.is_valid)
    return RandomCase(seed, views, tuple(batches), looks, settings)


def start_cheaply(scratch: Path) -> tuple[SparkSession, SparkJudge]:
    """A session whose jobs are as cheap as jobs over a few rows can be, and the judge in it.

    It runs for an hour, so that the second compiler of Java pays.
    """
    options = "-XX:+ExitOnOutOfMemoryError -XX:+UseSerialGC"
    config = {**SPARK.config, "spark.driver.extraJavaOptions": options}
    spark = cheap_session(start_session(replace(SPARK, config=config), scratch))
    return spark, SparkJudge(spark, empty_tables(RANDOM_TABLES))


def cheap_session(spark: SparkSession) -> SparkSession:
    """A session beside another one in which nothing is compiled to bytecode or planned twice."""
    found = spark.newSession()
    for key, value in CHEAP.items():
        found.conf.set(key, value)
    return found


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
        history = RelationHistory(folder, RANDOM_TABLES)
        clock = MovedClock(START)
        project = ReportProject(folder, case.views, spark, case.settings, clock)
        for transaction in case.batches[0]:
            assert isinstance(transaction, tuple), "time passes when there is somebody to see it"
            history.apply_transaction(transaction)
        project.load_views()
        for batch, looks in zip(case.batches[1:], case.looks[1:], strict=True):
            project.maintain_batch(history, batch, looks)
        return judge_project(project, history, judge, random.Random(case.seed), EVERY_STATE)


@contextmanager
def case_folder() -> Iterator[Path]:
    """A folder in memory, where the system has that: what a disk waits for is not tried here."""
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="viewkeeper-case-", dir=where) as folder:
        yield Path(folder)


def judge_project(
    project: ReportProject,
    history: RelationHistory,
    judge: SparkJudge,
    rng: random.Random,
    every_state: float = 1.0,
) -> Verdict:
    """Compare every view with Spark on its text: this share at every ts, the others at two."""
    broken = [name for name in LEDGERS.values() if name in project.stopped]
    assert not broken, project.stopped
    moments, ticks = project.moments_of_clock()
    with project.reading():
        times = project.stamps_of(history)
        judge.show_relations(history.as_tables(times), project.views)
        judge.show_clock(moments)
        changed = [*zip(times, history.touched, strict=True)]
        return _judge_views(project, changed, ticks, judge, rng, every_state)


def _judge_views(
    project: ReportProject,
    changed: Sequence[tuple[int, frozenset[str]]],
    ticks: frozenset[int],
    judge: SparkJudge,
    rng: random.Random,
    every_state: float,
) -> Verdict:
    verdict = Verdict(refused=project.refused, wrong=dict(project.stopped))
    for name in project.views:
        if name not in verdict.wrong:
            read = judge.relations_of(project.views[name])
            used = {ts for ts, relations in changed if read & relations}
            if judge.reads_clock(project.views[name]):
                used |= ticks
            few = rng.random() >= every_state
            states, wrong = judge_view(project, name, used, judge, rng, few)
            verdict.states += states
            verdict.compared[name] = states
            if wrong is None:
                verdict.exact.append(name)
            else:
                verdict.wrong[name] = wrong
    return verdict


def judge_view(
    project: ReportProject,
    name: str,
    times: Collection[int],
    judge: SparkJudge,
    rng: random.Random,
    few: bool = False,
) -> tuple[int, str | None]:
    """How many states of a view were compared, and what is wrong first.

    `times` are the ts at which something changed that it reads; at others it must stay as it is.
    With `few` only the last of them is compared, or that and one other.
    """
    created, changes = project.feed_of(name)
    moments = sorted({created, *(ts for ts in times if ts > created)})
    if strange := sorted(changes.keys() - {*moments}):
        return 0, f"changes at ts {strange}, at which nothing was committed"
    other = rng.choice(moments) if rng.random() < OTHER_STATE else moments[-1]
    chosen = sorted({other, moments[-1]}) if few else moments
    wanted, types = judge.states_of(project.views[name], chosen)
    found = sum_changes(changes, moments)
    for ts in chosen:
        if wrong := compare_rows(found[ts], wanted[ts]):
            return 0, f"ts {ts} of {moments}: {wrong}"
    for ts in {rng.choice(chosen)} if few else {moments[-1], rng.choice(moments)}:
        table = project.table_at(name, ts)
        if wrong := compare_types(table.schema, types):
            return 0, wrong
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        if wrong := compare_rows(rows, wanted[ts]):
            return 0, f"read as of ts {ts}: {wrong}"
    return len(chosen), None


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
    """The case without a batch, a step or a change."""
    for at, batch in enumerate(case.batches):
        for number, step in enumerate(batch):
            for left in ((), *_smaller_steps(step)):
                now = (*batch[:number], *((left,) if left else ()), *batch[number + 1 :])
                if now or at:
                    looks = list(case.looks)
                    looks[at] = (True,) * len(now)
                    batches = (*case.batches[:at], now, *case.batches[at + 1 :])
                    yield replace(case, batches=batches, looks=tuple(looks))


def _smaller_steps(step: Step) -> Iterator[Step]:
    """A transaction without one of its changes."""
    if isinstance(step, tuple) and len(step) > 1:
        for gone in range(len(step)):
            yield step[:gone] + step[gone + 1 :]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("--queries", type=int, default=VIEWS)
    parser.add_argument("--only")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--cases", type=int)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        spark, judge = start_cheaply(Path(scratch))
        if options.cases:
            seeds = range(options.seed, options.seed + options.cases)
            try_cases(seeds, options.queries, options.minutes, spark, judge)
        else:
            case = make_case(options.seed, options.queries, judge)
            if options.only:
                case = replace(case, views=views_for(case, options.only))
            replay_case(case, spark, judge, options.shrink)
        spark.stop()


def replay_case(case: RandomCase, spark: SparkSession, judge: SparkJudge, shrink: bool) -> None:
    """Run a case and print what is wrong with it."""
    verdict = run_case(case, spark, judge)
    print(verdict)
    for name, wrong in verdict.wrong.items():
        small, wrong = shrink_case(case, name, spark, judge) if shrink else (case, wrong)
        print(f"{name}: {small.views[name]}\n{wrong}")
        for batch in small.batches if shrink else ():
            print("batch", *batch, sep="\n  ")


def try_cases(
    seeds: Sequence[int], count: int, minutes: float, spark: SparkSession, judge: SparkJudge
) -> None:
    """Try a case of each seed, and print the sums so far after each; the reasons at the end, which
    Ctrl-C may be."""
    started, sums, reasons = time.monotonic(), Counter[str](), Counter[str]()
    try:
        for seed in seeds:
            if time.monotonic() - started > 60 * minutes:
                break
            begun = time.monotonic()
            verdict = run_case(make_case(seed, count, judge), spark, judge)
            counts = verdict.count_queries()
            sums.update(counts["sums"])
            reasons.update(counts["reasons"])
            took, passed = time.monotonic() - begun, round(time.monotonic() - started)
            shown = ", ".join(f"{number:,} {what}" for what, number in sums.items())
            print(f"seed {seed}: {took:.1f} s; after {passed:,} s: {shown}", flush=True)
            for name, wrong in verdict.wrong.items():
                print(f"wrong: {replay_command(seed, name)}\n  {wrong}", flush=True)
    finally:
        print(*refusal_lines(sums, reasons), sep="\n", flush=True)


def refusal_lines(sums: Mapping[str, int], reasons: Counter[str]) -> list[str]:
    """The share of queries that were refused, and the reasons."""
    tried = sums["queries exact"] + sums["refused"] + sums["wrong"]
    lines = [f"  refused: {sums['refused'] / max(tried, 1):.1%} of {tried:,}"]
    return lines + [f"  refused {number} x {reason}" for reason, number in reasons.most_common()]


def replay_command(seed: int, name: str) -> str:
    """The command that shows again what is wrong with a view."""
    return f"python -m tests.sql.random_case {seed} --only {name} --shrink"


if __name__ == "__main__":
    main()
