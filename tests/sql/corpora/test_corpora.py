"""Statements in the manner of TPC-DS and of dbt projects: exact at every ts, or refused."""

from __future__ import annotations

import os

import pytest
from pyspark.sql import SparkSession

from tests.sql.corpora.corpus_page import PAGE, put_tables
from tests.sql.corpora.corpus_run import (
    SAMPLE,
    STATEMENTS,
    parents_of,
    read_results,
    run_corpus,
    write_results,
)
from tests.sql.random_case import case_folder

NAMES = [statement.name for statement in STATEMENTS]


def test_every_statement_has_a_name_of_its_own_and_a_result() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert sorted(read_results()) == sorted(NAMES)
    assert not [name for name in SAMPLE if read_results()[name].refused is not None]
    assert len([name for name in NAMES if name.startswith("ds")]) >= 30
    assert len([name for name in NAMES if not name.startswith("ds")]) >= 40


def test_the_page_shows_the_results() -> None:
    page = PAGE.read_text()
    assert put_tables(page, read_results()) == page


def test_a_sample_reads_only_statements_of_the_sample() -> None:
    for statement in STATEMENTS:
        if statement.name in SAMPLE:
            assert parents_of(statement) <= SAMPLE


def test_a_sample_is_exact_at_every_ts(spark: SparkSession) -> None:
    with case_folder() as folder:
        run = run_corpus(spark, folder, SAMPLE)
    assert not run.verdict.wrong
    assert {*run.verdict.exact} == SAMPLE


@pytest.mark.campaign
def test_every_statement_is_exact_at_every_ts_or_refused(spark: SparkSession) -> None:
    with case_folder() as folder:
        run = run_corpus(spark, folder, NAMES)
    assert not run.verdict.wrong
    if os.environ.get("VIEWKEEPER_CORPUS_WRITE"):
        write_results(run.results)
    refused = {name for name, result in read_results().items() if result.refused is not None}
    assert {*run.verdict.refused} <= refused, "what was accepted stays accepted"
