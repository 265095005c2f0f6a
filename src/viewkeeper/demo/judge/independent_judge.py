"""An independent judge: were all states that a view ever had the right ones?

It believes only what was made without Viewkeeper: a copy of every database from before the first
change, the journals that the writers kept themselves, the databases as they are at the end, and the
view's question in its own words. Each source transaction also put a numbered row into a ledger
table, so the change feed of a view over that table says which ts each transaction was given.

The judge asks, in this order:

1. The ledgers: does every journalled transaction have exactly one ts, no other has one, and do
   these follow each database's own order?
2. The evidence: do the copies with the journals replayed give the databases as they are?
3. The final state: is it what SQLite itself answers on the real databases?
4. Every state: a row of a table lives from the ts of the transaction that brought it until that of
   the one that took it, a row of the view while all the rows live that it was joined from. So one
   join over lifetimes, on Spark, gives every row that the view ever had; what begins and ends there
   must be the view's change feed, per (row, ts), neither more nor less.

Everything but that one join is plain Python, and nothing here is shared with maintenance: only the
journals, the copies and the ledgers' ts go in.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.demo.judge.evidence import (
    SHOWN,
    JournalEntry,
    Journals,
    JudgedClaim,
    JudgedDatabase,
    JudgedQuery,
    JudgeFinding,
    JudgeVerdict,
    Row,
    as_stored,
    ledger_lines,
    open_readonly,
    read_journals,
    rows_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NEVER = 2**62


def expected_feed(
    spark: SparkSession,
    databases: Mapping[str, JudgedDatabase],
    journals: Journals,
    question: JudgedQuery,
    claim: JudgedClaim,
) -> DataFrame:
    """What the view's change feed must be, given the ts of the transactions."""
    for alias, (name, table) in question.tables.items():
        changes = _stamp_changes(name, table, journals, claim)
        alive = _lifetimes_of_rows(databases[name].copy, table, claim.since, changes)
        spark.createDataFrame(alive).createOrReplaceTempView(f"judge_{alias}")
    return spark.sql(_temporal_join(question)).where(f"_ts < {_NEVER}")


def judge_states(expected: DataFrame, claim: JudgedClaim) -> JudgeFinding:
    """Whether the feed is the expected one, per (row, ts)."""
    summed = _feed_differences(expected, claim.feed).persist()
    try:
        compared = summed.count()
        differing = summed.where("_count <> 0")
        wrong = differing.count()
        first = differing.orderBy("_ts").limit(SHOWN).collect() if wrong else []
    finally:
        summed.unpersist()
    states = claim.until - claim.since + 1
    return JudgeFinding(
        f"{states:,} states of the view, every one equal to recomputation: {compared:,} "
        "appearances and disappearances of rows, each at its very ts.",
        "The states of the view differ from recomputation,",
        compared,
        wrong,
        tuple(_explain_difference(*row[:-2], ts=row["_ts"], count=row["_count"]) for row in first),
    )


def _explain_difference(*row: object, ts: int, count: int) -> str:
    word = "missing" if count > 0 else "too much"
    return f"at ts {ts}, {abs(count)} {word}: {tuple(map(as_stored, row))}"


def _stamp_changes(
    name: str, table: str, journals: Journals, claim: JudgedClaim
) -> Iterator[tuple[int, int, Row]]:
    """The journalled changes of a table with the ts that they were given: ts, sign, row.

    Those from before `since` are in the state at `since`; one without a ts never took place.
    """
    stamps = {n: max(claim.since, ts) for n, ts, _ in ledger_lines(claim.ledgers[name])}
    for transaction in journals[name]:
        if transaction.n in stamps:
            for changed, sign, row in transaction.changes:
                if changed == table:
                    yield stamps[transaction.n], sign, row


def _lifetimes_of_rows(
    copy: Path, table: str, since: int, changes: Iterable[tuple[int, int, Row]]
) -> pa.Table:
    """The rows of a table, each from ts `_from` until before ts `_to`, `_count` times."""
    steps: dict[Row, Counter[int]] = {}
    for row in rows_of(copy, table):
        steps.setdefault(row, Counter())[since] += 1
    for ts, sign, row in changes:
        steps.setdefault(row, Counter())[ts] += sign
    alive: list[Row] = []
    for row, counts in steps.items():
        count, stamps = 0, sorted(counts)
        for begin, end in zip(stamps, [*stamps[1:], _NEVER], strict=True):
            count += counts[begin]
            if count:
                alive.append((*row, begin, end, count))
    kinds = [*_column_types(copy, table), *((n, pa.int64()) for n in ("_from", "_to", "_count"))]
    arrays = zip(*alive, strict=True) if alive else ([] for _ in kinds)
    return pa.table(list(map(list, arrays)), schema=pa.schema(kinds))


def _column_types(copy: Path, table: str) -> list[tuple[str, pa.DataType]]:
    with closing(open_readonly(copy)) as connection:
        declared = connection.execute(f"PRAGMA table_info({table})").fetchall()
    return [(name, pa.int64() if "INT" in kind else pa.string()) for _, name, kind, *_ in declared]


def _temporal_join(question: JudgedQuery) -> str:
    """All rows that the view ever had, as what begins and what ends: columns, `_ts`, `_count`."""
    begin = f"greatest({', '.join(f'{alias}._from' for alias in question.tables)})"
    end = f"least({', '.join(f'{alias}._to' for alias in question.tables)})"
    count = " * ".join(f"{alias}._count" for alias in question.tables)
    outputs = ", ".join(f"{text} AS {name}" for name, text in question.outputs.items())
    tables = ", ".join(f"judge_{alias} {alias}" for alias in question.tables)
    names = ", ".join(question.outputs)
    return (
        f"SELECT {names}, stack(2, _from, _count, _to, -_count) AS (_ts, _count) FROM ("
        f"SELECT {outputs}, {begin} AS _from, {end} AS _to, {count} AS _count FROM {tables} "
        f"WHERE {question.condition} AND {begin} < {end})"
    )


def _feed_differences(expected: DataFrame, feed: DataFrame) -> DataFrame:
    """Per (row, ts) how often more was expected than found; zero where both agree."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

    kinds = [(f.name, f.dataType) for f in expected.schema if f.name != "_count"]
    moments = {name for name, kind in feed.dtypes if kind.startswith("timestamp")}
    columns = (
        # Six digits, as in the evidence: a cast would leave zeros at the end out.
        F.date_format(name, "yyyy-MM-dd HH:mm:ss.SSSSSS").alias(name)
        if name in moments
        else F.col(name).cast(kind)
        for name, kind in kinds
    )
    found = feed.select(*columns, (-F.col("_count")).alias("_count"))
    per_row = expected.select(found.columns).unionAll(found).groupBy(*(name for name, _ in kinds))
    return per_row.agg(F.sum("_count").alias("_count"))


def judge_claim(
    spark: SparkSession,
    databases: Mapping[str, JudgedDatabase],
    question: JudgedQuery,
    claim: JudgedClaim,
) -> JudgeVerdict:
    """Compare a claim with the evidence."""
    journals = read_journals(databases)
    noted = [transaction for journal in journals.values() for transaction in journal]
    findings = (
        judge_ledgers(journals, claim),
        judge_evidence(databases, journals, question),
        judge_final(databases, question, claim),
        judge_states(expected_feed(spark, databases, journals, question, claim), claim),
    )
    changes = sum(len(transaction.changes) for transaction in noted)
    return JudgeVerdict(claim.until - claim.since + 1, len(noted), changes, findings)


def judge_ledgers(journals: Journals, claim: JudgedClaim) -> JudgeFinding:
    """Whether every transaction has exactly one ts, in the order of the commits."""
    wrong = [
        problem
        for name, journal in journals.items()
        for problem in _ledger_problems(name, journal, ledger_lines(claim.ledgers[name]))
    ]
    total = sum(len(journal) for journal in journals.values())
    return JudgeFinding(
        f"The ledgers have each of the {total:,} journalled transactions exactly once, without a "
        "gap, in each database's own order.",
        "The ledgers do not fit the journals,",
        total,
        len(wrong),
        tuple(wrong[:SHOWN]),
    )


def _ledger_problems(
    name: str, journal: Sequence[JournalEntry], lines: Sequence[tuple[int, int, int]]
) -> Iterator[str]:
    noted = Counter(transaction.n for transaction in journal)
    listed: Counter[int] = Counter()
    for n, _, count in lines:
        listed[n] += count
    for n in sorted(noted.keys() | listed.keys() | set(range(1, max(noted, default=0)))):
        if noted[n] != 1 or listed[n] != 1:
            counts = f"{noted[n]} times in the journals, {listed[n]} times in the ledger"
            yield f"transaction {n} of {name} is {counts}"
    for (n, ts, _), (later, later_ts, _) in pairwise(lines):
        if later_ts < ts:
            yield f"{name} committed {n} before {later}, but they have ts {ts} and {later_ts}"


def judge_evidence(
    databases: Mapping[str, JudgedDatabase], journals: Journals, question: JudgedQuery
) -> JudgeFinding:
    """Whether what the journals say led from the copies to the databases."""
    compared, wrong = 0, []
    for name, table in sorted(set(question.tables.values())):
        replayed = Counter(rows_of(databases[name].copy, table))
        for transaction in journals[name]:
            for changed, sign, row in transaction.changes:
                if changed == table:
                    replayed[row] += sign
        real = Counter(rows_of(databases[name].final, table))
        compared += real.total()
        wrong += [f"{name}.{table}: {line}" for line in _bag_differences(replayed, real)]
    return JudgeFinding(
        f"The copies with the journals replayed are the real databases, {compared:,} rows.",
        "The copies with the journals replayed differ from the real databases,",
        compared,
        len(wrong),
        tuple(wrong[:SHOWN]),
    )


def judge_final(
    databases: Mapping[str, JudgedDatabase], question: JudgedQuery, claim: JudgedClaim
) -> JudgeFinding:
    """Whether the newest state is SQLite's own answer."""
    real = Counter(_sqlite_answer(databases, question))
    columns = (claim.state[name].to_pylist() for name in question.outputs)
    shown = Counter(tuple(map(as_stored, row)) for row in zip(*columns, strict=True))
    wrong = _bag_differences(real, shown)
    return JudgeFinding(
        f"The final state, {shown.total():,} rows, is what SQLite computes from the databases.",
        "The final state differs from what SQLite computes from the databases,",
        real.total(),
        len(wrong),
        tuple(wrong[:SHOWN]),
    )


def _bag_differences(expected: Counter[Row], found: Counter[Row]) -> list[str]:
    return [
        f"{found[row]} times instead of {expected[row]}: {row}"
        for row in expected.keys() | found.keys()
        if expected[row] != found[row]
    ]


def _sqlite_answer(databases: Mapping[str, JudgedDatabase], question: JudgedQuery) -> list[Row]:
    """SQLite's own answer to the question, now."""
    outputs = ", ".join(question.outputs.values())
    tables = ", ".join(f"{db}.{table} {alias}" for alias, (db, table) in question.tables.items())
    with closing(sqlite3.connect(":memory:", uri=True)) as connection:
        for name, database in databases.items():
            uri = f"{database.final.absolute().as_uri()}?mode=ro"
            connection.execute(f"ATTACH ? AS {name}", (uri,))
        query = f"SELECT {outputs} FROM {tables} WHERE {question.condition}"
        return connection.execute(query).fetchall()
