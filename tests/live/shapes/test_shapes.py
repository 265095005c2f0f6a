"""Live databases change their shape under writers: every view goes on exactly, stops alone, or the
database refuses; as the page says.

One story per database (`tests.live.shapes.world`), in which all cases happen; each case is judged
by itself, with the reports beside its view. What breaks other systems has tests by name.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.live.shapes.case import DOWN, RUNNING, Case, Moment
from tests.live.shapes.cases import CASES
from tests.live.shapes.databases import Database, Mariadb, Postgres, Sqlite
from tests.live.shapes.lived import Lived
from tests.live.shapes.page import PAGE, inserted
from tests.live.shapes.reports import by_turns
from tests.live.shapes.world import World

VERIFIED = ("rename_column", "drop_dispensable")
"""Cases that are verified too; the campaign verifies all."""

# Loading a view costs a Spark job, so the campaign alone has every case in every database. Here
# what adds least is left out, and so are ways that differ only in how they find changes. Every
# other table has one report, another one in each database.
LONG = ("add_column_star", "drop_substituted", "widen_same", "narrow", "lenient")
MOST = tuple(case.name for case in CASES if case.name not in LONG)
HERE = {
    "sqlite": tuple(case.name for case in CASES),
    "postgres": MOST,
    "mariadb": MOST,
}


@pytest.fixture(scope="module", params=HERE)
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    found = database_of(str(request.param), request, tmp_path_factory)
    yield found
    found.drop()


def database_of(
    name: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Database:
    if name == "sqlite":
        return Sqlite(tmp_path_factory.mktemp("shapes") / "db.db")
    if name == "mariadb":
        return Mariadb(request.getfixturevalue("mariadb_server"))
    user = "postgres" if name == "postgres" else "shapes_owner"
    capture = "triggers" if name == "postgres-triggers" else "decoding"
    return Postgres(request.getfixturevalue("postgres_server"), name, user, capture)


@pytest.fixture(scope="module")
def lived(
    database: Database, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Lived:
    cases = [case for case in CASES if case.name in HERE[database.name]]
    kinds = by_turns([*HERE].index(database.name))
    return World(tmp_path_factory.mktemp("shapes"), database, cases, kinds).live(spark, VERIFIED)


@pytest.mark.parametrize("moment", [RUNNING, DOWN], ids=["running", "down"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_change_ends_as_the_page_says(lived: Lived, case: Case, moment: Moment) -> None:
    if case not in lived.cases:
        pytest.skip("the campaign has it")
    check(lived, case, moment)


def check(lived: Lived, case: Case, moment: Moment) -> None:
    wanted = case.ending(lived.database.name, lived.database.family)
    assert (case.name, moment) not in lived.wrong, lived.wrong[case.name, moment]
    assert lived.endings.get((case.name, moment), "none") == wanted, lived.told
    assert ((case.name, moment) in lived.held) == case.approved


def test_dropping_a_used_column_does_not_wedge_the_source(lived: Lived) -> None:
    ended = lived.endings["drop_used", RUNNING]
    assert ended == ("refused" if lived.database.family == "sqlite" else "stops")
    assert lived.stayed == [], "other views of the source go on while writers do"


def test_schema_changes_while_nobody_maintains_kill_no_maintainer(lived: Lived) -> None:
    assert lived.died == []
    changed = {case.name for case in lived.cases if case.statements(lived.database.family)}
    assert {name for name, moment in lived.endings if moment == DOWN} == changed


def test_changes_of_an_unrelated_table_do_not_matter(lived: Lived) -> None:
    assert lived.versions["of_unused"] == 1
    assert not [line for line in lived.told if "other_" in line]


def test_no_statement_of_a_writer_fails_because_of_us(lived: Lived) -> None:
    assert lived.failures == []


def test_recomputation_from_the_sources_agrees(lived: Lived) -> None:
    assert lived.verified
    assert not any(lived.verified.values()), lived.verified


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == inserted(page), "write it anew: python -m tests.live.shapes.page"
