"""What people mend at a source is noticed by a run that goes on: nobody has to start it again."""

from __future__ import annotations

import time

import psycopg
import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.cli.conftest import call
from tests.engine.running_project import running, wait_until
from tests.live.judge import arrow_rows
from tests.live.test_cases import Case, case
from viewkeeper.engine.operations.project_status import ProjectStatus, gather_status
from viewkeeper.engine.project import Project
from viewkeeper.testing.private_servers import PrivatePostgres

__all__ = ["case"]


def status_of(project: Project) -> ProjectStatus:
    return gather_status(project.settings, time.time())


def problem_of(project: Project, view: str) -> str:
    return next(v.problem or "" for v in status_of(project).views if v.name == view)


def is_exact(project: Project, case: Case) -> bool:
    views = project.newest_head().views
    return "v" in views and arrow_rows(project.view("v").arrow()) == case.expected()


def test_a_table_that_can_be_followed_now_is(case: Case, spark: SparkSession) -> None:
    case.execute("INSERT INTO notes VALUES (1, 'a', 1)")
    case.execute("ALTER TABLE notes REPLICA IDENTITY DEFAULT")
    with running(case.folder, spark) as project:
        wait_until(lambda: "REPLICA IDENTITY FULL" in problem_of(project, "v"))
        wait_until(lambda: "names" in project.newest_head().views)
        case.execute("ALTER TABLE notes REPLICA IDENTITY FULL")
        wait_until(lambda: is_exact(project, case))
        case.execute("INSERT INTO notes VALUES (2, 'b', 2)")
        wait_until(lambda: is_exact(project, case))
        wait_until(lambda: status_of(project).ok)


def test_a_grant_that_is_given_back_lets_the_view_go_on(
    case: Case, postgres_server: PrivatePostgres, spark: SparkSession
) -> None:
    name = case.url.rsplit("/", 1)[-1].partition("?")[0]
    role = f"{name}_owner"
    with psycopg.connect(postgres_server.url_of(), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'secret'")
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO {role}")
    case.execute(f"GRANT CREATE, USAGE ON SCHEMA public TO {role}")
    case.execute(f"ALTER TABLE notes OWNER TO {role}")
    file = case.folder / "viewkeeper.yml"
    url = postgres_server.url_of(name, role)
    file.write_text(file.read_text().replace(case.url, url))
    case.execute("INSERT INTO notes VALUES (1, 'a', 1)")
    with running(case.folder, spark) as project:
        wait_until(lambda: is_exact(project, case))
        case.execute(f"REVOKE SELECT ON notes FROM {role}")
        case.rename(1, "while it may not be read")
        wait_until(lambda: "permission denied" in problem_of(project, "v"))
        assert not status_of(project).ok
        case.rename(2, "still")
        wait_until(lambda: ("still",) in arrow_rows(project.view("names").arrow()))
        case.execute(f"GRANT SELECT ON notes TO {role}")
        wait_until(lambda: is_exact(project, case))
        wait_until(lambda: status_of(project).ok)
        case.execute("DELETE FROM notes", "INSERT INTO notes VALUES (7, 'z', 2)")
        wait_until(lambda: is_exact(project, case))


def test_what_a_source_has_lost_is_not_tried_again(case: Case, spark: SparkSession) -> None:
    case.execute("INSERT INTO notes VALUES (1, 'a', 1)")
    with viewkeeper.open(case.folder, spark=spark) as project:
        assert not project.refresh().waiting
    (slot,) = case.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    )[0]
    case.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    with running(case.folder, spark) as project:
        wait_until(lambda: "viewkeeper refresh v" in problem_of(project, "v"))
        wait_until(lambda: project.newest_head().views["v"].stopped)
        record = project.newest_head().record
        # Long enough for three attempts, of which there must be none.
        time.sleep(5)
        assert project.newest_head().record == record
        assert "viewkeeper refresh v" in problem_of(project, "v")


@pytest.mark.parametrize("source", ["shop", "crm"])
def test_a_detached_source_is_said_by_status(case: Case, spark: SparkSession, source: str) -> None:
    with viewkeeper.open(case.folder, spark=spark) as project:
        assert not project.refresh().waiting
    words = ("-p", str(case.folder))
    assert call(*words, "status").exit_code == 0
    assert call(*words, "detach", source, "--yes").exit_code == 0
    found = call(*words, "status")
    assert found.exit_code == 1
    assert f'source "{source}" is detached' in found.output
