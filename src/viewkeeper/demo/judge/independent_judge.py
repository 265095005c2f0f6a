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
4. Every state: a row of a table lives from one ts until another. One join over these lifetimes
   gives all rows that the view ever had, with theirs; what begins and ends there must be the
   view's change feed, per (row, ts), neither more nor less.

Everything but that one join is plain Python, and nothing here is shared with maintenance.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING

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
    read_journals,
    rows_of,
)
from viewkeeper.demo.judge.state_lifetimes import expected_feed, judge_states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


# -- the ledgers -------------------------------------------------------------------------------


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


# -- the evidence, and the final state ---------------------------------------------------------


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
