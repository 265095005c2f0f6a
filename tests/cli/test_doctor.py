"""`viewkeeper doctor` on sources that are well, that lack something, and that are not there."""

from __future__ import annotations

import json
import time
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pymysql
import pytest

from tests.cli.conftest import call
from viewkeeper.engine.compile.report_compiler import KeptAnswer, KeptAnswers
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.settings.project_file import read_settings
from viewkeeper.engine.views.view_catalogue import read_views
from viewkeeper.errors import DefinitionError, ViewkeeperError
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres
from viewkeeper.view.definition import Graph


def test_a_sample_project_is_well(shop: Path) -> None:
    result = call("doctor")
    assert result.exit_code == 0, result.stdout
    assert "source crm" in result.stdout
    assert "BAD" not in result.stdout


def test_what_is_wrong_is_said_with_what_mends_it(
    postgres_server: PrivatePostgres, mariadb_server: PrivateMariadb, tmp_path: Path
) -> None:
    with psycopg.connect(postgres_server.url_of(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE doctor")
    with psycopg.connect(postgres_server.url_of("doctor"), autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, customer int)")
    crm = pymysql.connect(
        host="127.0.0.1", port=mariadb_server.port, user="root", password="secret"
    )
    with crm, crm.cursor() as cursor:
        cursor.execute("CREATE DATABASE doctor")
        cursor.execute("CREATE TABLE doctor.customer (id int PRIMARY KEY) ENGINE = MyISAM")
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text(
        "CREATE MATERIALIZED VIEW v AS SELECT o.id FROM shop.orders o"
        " JOIN crm.customer c ON c.id = o.customer JOIN away.thing t ON t.id = o.id"
    )
    (tmp_path / "viewkeeper.yml").write_text(
        "warehouse: ./warehouse\nsources:\n"
        f"  shop: {{kind: postgres, url: '{postgres_server.url_of('doctor')}'}}\n"
        f"  crm: {{kind: mariadb, url: '{mariadb_server.url_of('doctor')}'}}\n"
        "  away: {kind: postgres, url: 'postgresql://nobody:hidden-word@127.0.0.1:1/nothing'}\n"
    )
    result = call("--project", str(tmp_path), "doctor", "--json")
    assert result.exit_code == 1
    found = {each["name"]: each for each in json.loads(result.stdout)}
    assert not any(found[name]["ok"] for name in ("shop", "crm", "away", "v"))
    mends = {
        name: " ".join(f["mend"] or "" for f in found[name]["findings"] if f["state"] == "bad")
        for name in found
    }
    assert "REPLICA IDENTITY FULL" in mends["shop"]
    assert "ENGINE" in mends["crm"]
    assert "hidden-word" not in result.stdout + result.stderr
    text = call("--project", str(tmp_path), "doctor").stdout
    assert "BAD" in text
    assert "REPLICA IDENTITY FULL" in text


def test_what_only_spark_can_say_is_left_open(shop: Path) -> None:
    text = "SELECT o.customer_id, count(*) AS n FROM shop.orders o GROUP BY o.customer_id"
    plain = "SELECT o.id, soundex(o.placed) AS s FROM shop.orders o"
    (shop / "views" / "customer_totals.sql").unlink()
    (shop / "views" / "counts.sql").write_text(f"CREATE MATERIALIZED VIEW counts AS {text}")
    (shop / "views" / "sounds.sql").write_text(f"CREATE MATERIALIZED VIEW sounds AS {plain}")
    top = "CREATE MATERIALIZED VIEW top AS SELECT c.n FROM counts c"
    (shop / "views" / "top.sql").write_text(top)
    settings = read_settings(shop)
    code, before = examine_views(shop)
    assert code == 0
    assert [before[name] for name in ("counts", "sounds", "top")] == ["unchecked"] * 3
    assert "but Spark has not checked 3 views yet" in call("doctor").stdout
    # What Spark has said of the same text over the same tables is known.
    kept = KeptAnswers(settings)
    with closing(Connections(settings.sources, "me", time.time)) as connections:
        catalogue = read_views(settings)
        catalogue.use_compiler(
            lambda name, text, tables: remember(kept.answer_on(name, text, tables)),
            lambda _, text, tables: remember_check(kept.answer_on_types(text, tables)),
        )
        for name in ("counts", "sounds"):
            with suppress(ViewkeeperError):
                catalogue.bind_view(name, connections)
    code, after = examine_views(shop)
    assert code == 1
    assert [after[name] for name in ("counts", "sounds", "top")] == ["bad", "good", "bad"]
    assert "as Spark said" in call("doctor").stdout


def examine_views(shop: Path) -> tuple[int, dict[str, str]]:
    """The exit code of `doctor`, and the state of the finding of every view."""
    result = call("--project", str(shop), "doctor", "--json")
    found = [each for each in json.loads(result.stdout) if each["what"] == "view"]
    return result.exit_code, {each["name"]: each["findings"][0]["state"] for each in found}


def remember(answer: KeptAnswer) -> Graph:
    """Keep that Spark has refused a query."""
    with answer.keep_refusals():
        raise DefinitionError("as Spark said", line=1, column=8)


def remember_check(answer: KeptAnswer) -> None:
    answer.kept.keep_check(answer.digest)


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_missing_variable_is_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text(
        "CREATE MATERIALIZED VIEW v AS SELECT o.id FROM shop.orders o"
    )
    (tmp_path / "viewkeeper.yml").write_text(
        "warehouse: ./warehouse\nsources:\n"
        f"  shop: {{kind: {kind}, url: '{kind}://me:${{NOT_SET_ANYWHERE}}@127.0.0.1:1/x'}}\n"
    )
    result = call("--project", str(tmp_path), "doctor")
    assert result.exit_code == 1
    assert "NOT_SET_ANYWHERE" in result.stdout
