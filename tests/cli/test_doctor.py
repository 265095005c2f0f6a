"""`viewkeeper doctor` on sources that are well, that lack something, and that are not there."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pymysql
import pytest

from tests.cli.conftest import call
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres


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
