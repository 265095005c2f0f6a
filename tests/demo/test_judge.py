"""The judge can fail: whatever is wrong with a claim or with the evidence, it is found.

Each test takes the true claim of a run and makes one thing wrong with it. A judge that is content
with everything would prove nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.demo.conftest import Run
from viewkeeper.demo.judge.evidence import JudgedClaim, JudgedDatabase, JudgeFinding, read_journals
from viewkeeper.demo.judge.independent_judge import (
    expected_feed,
    judge_evidence,
    judge_final,
    judge_ledgers,
    judge_states,
)
from viewkeeper.demo.shop_world import QUESTION

Rows = list[dict[str, Any]]


def changed(table: pa.Table, change: Callable[[Rows], object]) -> pa.Table:
    rows = sorted(table.to_pylist(), key=lambda row: row.get("_ts", 0))
    change(rows)
    return pa.Table.from_pylist(rows, schema=table.schema)


def drop_a_row(rows: Rows) -> None:
    del rows[len(rows) // 2]


def repeat_a_row(rows: Rows) -> None:
    rows.append(rows[len(rows) // 2])


def double_a_count(rows: Rows) -> None:
    rows[len(rows) // 2]["_count"] *= 2


def shift_a_ts(rows: Rows) -> None:
    rows[-1]["_ts"] -= 1


def alter_a_value(rows: Rows) -> None:
    rows[-1]["cents"] += 1


def add_a_visit(rows: Rows) -> None:
    """A row that comes and goes is in no final state."""
    last = rows[-1]
    rows += [{**last, "_count": 1, "_ts": last["_ts"] - 1}, {**last, "_count": -1}]


@pytest.fixture(scope="module")
def expected(spark: SparkSession, run: Run) -> Iterator[DataFrame]:
    journals = read_journals(run.evidence)
    feed = expected_feed(spark, run.evidence, journals, QUESTION, run.claim).persist()
    yield feed
    feed.unpersist()


def test_the_true_feed_is_accepted(expected: DataFrame, run: Run) -> None:
    finding = judge_states(expected, run.claim)
    assert finding.ok
    assert finding.compared >= run.result.rows > 0


@pytest.mark.parametrize(
    "change", [drop_a_row, repeat_a_row, double_a_count, shift_a_ts, alter_a_value, add_a_visit]
)
def test_a_wrong_feed_is_found(
    spark: SparkSession, expected: DataFrame, run: Run, change: Callable[[Rows], object]
) -> None:
    feed = changed(run.feed, change)
    finding = judge_states(expected, replace(run.claim, feed=spark.createDataFrame(feed)))
    assert 1 <= finding.differing <= 2
    assert str(finding).startswith("The states of the view differ from recomputation, ")
    assert len(finding.examples) == finding.differing


def test_two_transactions_at_each_others_ts_are_wrong_states(spark: SparkSession, run: Run) -> None:
    claim = with_ledger(run, "shop", swap_two_transactions)
    journals = read_journals(run.evidence)
    wrong = expected_feed(spark, run.evidence, journals, QUESTION, claim)
    assert not judge_states(wrong, claim).ok


@pytest.mark.parametrize("change", [drop_a_row, repeat_a_row, alter_a_value])
def test_a_wrong_final_state_is_found(run: Run, change: Callable[[Rows], object]) -> None:
    assert judge_final(run.evidence, QUESTION, run.claim).ok
    wrong = replace(run.claim, state=changed(run.claim.state, change))
    assert not judge_final(run.evidence, QUESTION, wrong).ok


def swap_two_transactions(rows: Rows) -> None:
    rows[0]["_ts"], rows[-1]["_ts"] = rows[-1]["_ts"], rows[0]["_ts"]


def add_an_unknown_transaction(rows: Rows) -> None:
    rows.append({**rows[-1], "n": max(row["n"] for row in rows) + 1})


def take_a_transaction_back(rows: Rows) -> None:
    rows.append({**rows[0], "_count": -1, "_ts": rows[-1]["_ts"]})


def with_ledger(run: Run, database: str, change: Callable[[Rows], object]) -> JudgedClaim:
    ledger = changed(run.claim.ledgers[database], change)
    return replace(run.claim, ledgers={**run.claim.ledgers, database: ledger})


@pytest.mark.parametrize("database", ["crm", "shop", "catalogue"])
@pytest.mark.parametrize(
    "change",
    [
        drop_a_row,
        repeat_a_row,
        double_a_count,
        swap_two_transactions,
        add_an_unknown_transaction,
        take_a_transaction_back,
    ],
)
def test_a_wrong_ledger_is_found(run: Run, database: str, change: Callable[[Rows], object]) -> None:
    journals = read_journals(run.evidence)
    assert judge_ledgers(journals, run.claim).ok
    finding = judge_ledgers(journals, with_ledger(run, database, change))
    assert not finding.ok
    assert database in str(finding)


def lose_a_line(lines: list[str]) -> None:
    del lines[len(lines) // 2]


def repeat_a_line(lines: list[str]) -> None:
    lines.append(lines[-1])


def alter_a_line(lines: list[str]) -> None:
    """The first journalled row gets another key."""
    number = next(number for number, line in enumerate(lines) if json.loads(line)["changes"])
    body = json.loads(lines[number])
    row = body["changes"][0][2]
    row[0] = row[0] + 1_000_000 if isinstance(row[0], int) else f"{row[0]}-other"
    lines[number] = json.dumps(body)


def judged_with_journal(
    run: Run, journal: Path, change: Callable[[list[str]], None]
) -> tuple[JudgeFinding, JudgeFinding]:
    crm = run.evidence["crm"]
    lines = crm.journals[0].read_text().splitlines()
    change(lines)
    journal.write_text("\n".join(lines))
    evidence = {**run.evidence, "crm": JudgedDatabase(crm.copy, crm.final, (journal,))}
    journals = read_journals(evidence)
    return judge_ledgers(journals, run.claim), judge_evidence(evidence, journals, QUESTION)


@pytest.mark.parametrize("change", [lose_a_line, repeat_a_line])
def test_a_journal_that_lost_or_repeats_a_line_is_found(
    run: Run, tmp_path: Path, change: Callable[[list[str]], None]
) -> None:
    ledgers, _ = judged_with_journal(run, tmp_path / "crm.jsonl", change)
    assert not ledgers.ok


def test_a_journal_that_lies_is_found(run: Run, tmp_path: Path) -> None:
    ledgers, evidence = judged_with_journal(run, tmp_path / "crm.jsonl", alter_a_line)
    assert ledgers.ok
    assert not evidence.ok
