"""Every state of a view at once, as its judge sees it: rows with lifetimes, joined once.

A row of a table lives from the ts of the transaction that brought it until that of the one that
took it. A row of the view lives while all the rows live that it was joined from. So one join over
lifetimes, on Spark, gives every row that the view ever had, and what begins and ends there is what
its change feed must be. Nothing but the journals, the copies and the ledgers' ts goes in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.demo.judge.evidence import (
    SHOWN,
    Journals,
    JudgedClaim,
    JudgedDatabase,
    JudgedQuery,
    JudgeFinding,
    Row,
    as_stored,
    ledger_lines,
    open_readonly,
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
