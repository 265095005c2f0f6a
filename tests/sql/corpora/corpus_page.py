"""The page of the corpora, made from what the last whole run found.

    python -m tests.sql.corpora.corpus_page

writes the part of `docs/sql-corpora.md` between its two markers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.sql.construct_page import END
from tests.sql.corpora.corpus_run import StatementResult, read_results
from tests.sql.corpora.corpus_statement import CorpusStatement
from tests.sql.corpora.project_statements import PROJECT_STATEMENTS
from tests.sql.corpora.warehouse_statements import WAREHOUSE_STATEMENTS

PAGE = Path(__file__).parents[3] / "docs" / "sql-corpora.md"
BEGIN = "<!-- begin: made by `python -m tests.sql.corpora.corpus_page` -->"
HEAD = (
    "| statement | what it shows | becomes | states compared |",
    "| --- | --- | --- | --- |",
)


def write_tables(results: Mapping[str, StatementResult]) -> str:
    """Both tables, and a line that counts."""
    accepted = [result for result in results.values() if result.refused is None]
    states = sum(result.states for result in accepted)
    first = (
        f"{len(accepted)} of {len(results)} statements are maintained incrementally, and were "
        f"equal to Spark in all of {states:,} states that were compared; "
        f"refused: {len(results) - len(accepted)}."
    )
    parts = [
        first,
        "\n".join(_table_lines("In the manner of TPC-DS", WAREHOUSE_STATEMENTS, results)),
        "\n".join(_table_lines("In the manner of dbt projects", PROJECT_STATEMENTS, results)),
    ]
    return "\n\n".join(parts)


def _table_lines(
    title: str, statements: Sequence[CorpusStatement], results: Mapping[str, StatementResult]
) -> Iterator[str]:
    yield f"### {title}\n"
    yield from HEAD
    for statement in statements:
        result = results[statement.name]
        shown = (str(result.states) if result.states else "not run") if not result.refused else ""
        yield f"| `{statement.name}` | {statement.construct} | {_outcome(result)} | {shown} |"


def _outcome(result: StatementResult) -> str:
    if result.refused is not None:
        return f"refused: {result.refused}"
    stages = f"{result.stages} stage{'' if result.stages == 1 else 's'}"
    kinds = Counter(result.stored)
    kept = ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in kinds.items())
    spark = "; a Spark job per batch" if result.spark else ""
    asks = f"at most {result.lookups} lookups" if result.lookups else "no lookup"
    return f"{stages}; besides it {kept or 'nothing'} stored; {asks}{spark}"


def put_tables(page: str, results: Mapping[str, StatementResult]) -> str:
    """A page with the tables of now between its markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE} has lost its first marker"
    assert end, f"{PAGE} has lost its second marker"
    return f"{before}{begin}\n\n{write_tables(results)}\n\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(put_tables(PAGE.read_text(), read_results()))
