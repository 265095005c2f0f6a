"""Rows and SQL that attack the maintainer through Spark: nothing runs, nothing leaks, all is right.

Spark's errors quote values, so a value can try to be taken for something of ours, to make PySpark
do work, or to get into a log. Spark's reading of SQL has corners that can hide a condition or put
in a secret. Each attack here went through before it was refused.
"""

from __future__ import annotations

import base64
import linecache
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import Shop, rows_of

NUMBERS = "SELECT c.id, CAST(c.city AS INT) AS number FROM crm.customer c WHERE c.id ="
SECRET = "q8-secret-of-a-row"
FILE = "named-by-a-row.py"


class _Payload:
    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self._target,)


def hostile_values(planted: Path) -> dict[str, str]:
    packed = base64.b64encode(pickle.dumps(_Payload(planted))).decode()
    # PySpark turns what looks like a traceback back into one, with a list as long as the number.
    frame = f'  File "{FILE}", line 5000, in y\n    code\nValueError: {SECRET}'
    return {
        "pickle": f"viewkeeper-error:{packed}: {SECRET}",
        "traceback": f"\nTraceback (most recent call last):\n{frame}",
        "long": SECRET * 1000,
    }


def test_a_value_that_fails_is_only_a_value(
    tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    planted = tmp_path / "planted"
    values = list(hostile_values(planted).values())
    views = {f"numbers_{number}": f"{NUMBERS} {number}" for number in range(len(values))}
    shop = Shop(tmp_path, views, "batch: {inline_rows: 0}\n")
    shop.execute("crm", "INSERT INTO customer VALUES (9, 'a', '7')")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        with shop.database("crm") as database:
            rows = [(number, "b", value) for number, value in enumerate(values)]
            database.executemany("INSERT INTO customer VALUES (?, ?, ?)", rows)
        waiting = project.refresh().waiting
    assert waiting.keys() == views.keys()
    for reason in waiting.values():
        assert "CAST_INVALID_INPUT" in reason
        assert len(reason) < 600
    assert not planted.exists()
    assert FILE not in linecache.cache
    printed = "".join(capfd.readouterr())
    assert SECRET not in printed
    assert "CAST_INVALID_INPUT" not in printed


def test_a_text_with_a_variable_is_that_text(tmp_path: Path, spark: SparkSession) -> None:
    """In a session that is given to us, and that replaces variables, as Spark does by default."""
    given = spark.newSession()
    given.conf.set("spark.sql.variable.substitute", "true")
    given.conf.set("spark.sql.ansi.enabled", "false")
    text = "'${env:HOME} ${spark.app.name}'"
    loud = f"replace(upper({text}), '#', '#')"
    sql = f"SELECT upper(c.name) AS name, {text} AS a, {loud} AS b FROM crm.customer c"
    where = f"{sql} WHERE replace(c.city, '#', {text}) = {text} OR upper(c.name) = 'X'"
    shop = Shop(tmp_path, {"literal": where}, "batch: {inline_rows: 0}\n")
    shop.execute("crm", "INSERT INTO customer VALUES (1, 'x', 'y')")
    with viewkeeper.open(shop.folder, spark=given) as project:
        project.refresh()
        with shop.database("crm") as database:
            row = (2, "z", text.strip("'"))
            database.execute("INSERT INTO customer VALUES (?, ?, ?)", row)
        project.refresh()
        plain = text.strip("'")
        found = {(name, plain, plain.upper()): 1 for name in ("X", "Z")}
        assert rows_of(project.view("literal")) == found
        project.view("literal").df().createOrReplaceTempView("handed_out")
        assert given.sql("SELECT name FROM handed_out").count() == 2
    assert given.conf.get("spark.sql.variable.substitute") == "true"
    assert given.conf.get("spark.sql.ansi.enabled") == "false"


def test_a_session_that_we_make_asks_for_a_secret(spark: SparkSession) -> None:
    settings = dict(spark.sparkContext.getConf().getAll())
    assert settings["spark.authenticate"] == "true"
    assert len(settings["spark.authenticate.secret"]) == 64
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert spark.conf.get("spark.sql.variable.substitute") == "false"
