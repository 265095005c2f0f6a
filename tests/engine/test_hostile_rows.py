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
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.cli.query_samples import FORBIDDEN
from tests.engine.shop import Shop, rows_of
from tests.engine.test_parsed_plan import SECOND
from viewkeeper.engine.compile.query_compiler import QueryCompiler
from viewkeeper.engine.compile.query_table import QueryTable
from viewkeeper.errors import DefinitionError
from viewkeeper.view.definition import Relation
from viewkeeper.view.sql.view_statement import parse_view

# Which would only be the name of another view, or numbers that the text itself gives.
PLAIN_IN_A_VIEW = ("SELECT * FROM others", "SELECT * FROM default.lines", "SELECT * FROM range(10)")

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


CASTS = """SELECT c.id % 2 AS odd, sum(CAST(c.city AS INT)) AS total, count(*) AS n
FROM crm.customer c WHERE c.id < 10 OR c.id = {} GROUP BY c.id % 2"""


def test_a_value_that_fails_in_a_report_is_only_a_value(
    tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    planted = tmp_path / "planted"
    values = list(hostile_values(planted).values())
    views = {f"totals_{number}": CASTS.format(10 + number) for number in range(len(values))}
    shop = Shop(tmp_path, {**views, "names": "SELECT max(name) AS most FROM crm.customer"})
    shop.execute("crm", "INSERT INTO customer VALUES (9, 'a', '7')")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert project.refresh().waiting == {}
        with shop.database("crm") as database:
            rows = [(10 + number, "b", value) for number, value in enumerate(values)]
            database.executemany("INSERT INTO customer VALUES (?, ?, ?)", rows)
        waiting = project.refresh().waiting
        assert rows_of(project.view("names")) == {("b",): 1}
    assert waiting.keys() == views.keys()
    for reason in waiting.values():
        assert len(reason) < 600
    assert not planted.exists()
    assert FILE not in linecache.cache
    assert SECRET not in "".join(capfd.readouterr())


HIDING = """SELECT c.city, '${env:HOME}' AS home, count(*) AS n FROM crm.customer c
WHERE c.id > 0 -- as in C:\\exports\\ {}
AND c.name = 'x'
GROUP BY c.city"""


def test_a_report_means_what_was_checked(tmp_path: Path, spark: SparkSession) -> None:
    given = spark.newSession()
    given.conf.set("spark.sql.variable.substitute", "true")
    with pytest.raises(DefinitionError, match="a backslash continues on the next line"):
        parse_view(f"CREATE MATERIALIZED VIEW hiding AS {HIDING.replace(' {}', '')}")
    shop = Shop(tmp_path, {"hiding": HIDING})
    shop.execute("crm", "INSERT INTO customer VALUES (1, 'x', 'p'), (2, 'y', 'p'), (3, 'x', 'q')")
    with viewkeeper.open(shop.folder, spark=given) as project:
        project.refresh()
        assert rows_of(project.view("hiding")) == shop.recomputed(HIDING)
        shop.execute("crm", "INSERT INTO customer VALUES (4, 'x', 'p'), (5, 'z', 'p')")
        project.refresh()
        assert rows_of(project.view("hiding")) == shop.recomputed(HIDING)
        assert all(found.ok for found in project.verify())


DISGUISED = (
    "SELECT count(reflect('a', 'b')) AS n FROM lines",
    "SELECT a, count(*) AS n FROM lines GROUP BY a, java_method('a', 'b')",
    "SELECT a FROM lines GROUP BY a HAVING max(reflect('a', 'b')) > ''",
    "WITH x AS (SELECT reflect('a', 'b') AS r) SELECT count(r) AS n FROM x",
    "SELECT a FROM lines WHERE EXISTS (SELECT 1 FROM csv.`/etc/passwd`)",
    "SELECT a FROM lines WHERE a IN (SELECT TRANSFORM(a) USING 'id' FROM lines)",
    "SELECT a FROM lines UNION SELECT value FROM text.`/etc/passwd`",
    "SELECT x FROM VALUES (reflect('a', 'b')) AS t(x)",
    "SELECT * FROM (SELECT a, reflect('a', 'b') AS r FROM lines) PIVOT (max(r) FOR a IN (1))",
    "SELECT count(*) FILTER (WHERE reflect('a', 'b') = '') AS n FROM lines",
    "SELECT DISTINCT input_file_name() AS f FROM lines",
)


def test_a_report_calls_and_reads_only_what_is_listed(spark: SparkSession) -> None:
    """By both readers, each alone: our own before Spark sees the text, and what Spark parsed."""
    columns: dict[str, pa.DataType] = {"a": pa.int64(), "b": pa.string()}
    tables = [QueryTable(Relation("shop", "lines"), pa.schema(columns))]
    compiler, through = QueryCompiler(spark), []
    never = [text for text in FORBIDDEN if text not in PLAIN_IN_A_VIEW]
    for text in (*never, *DISGUISED):
        with suppress(DefinitionError):
            view = f"CREATE MATERIALIZED VIEW v AS {text.replace('lines', 'shop.lines')}"
            # A file that is named as a table is one of a source that the project does not have.
            if {read.source for read in parse_view(view).relations} <= {"", "shop"}:
                through.append(("our own", text))
    for text in (text for text in (*SECOND, *DISGUISED) if text not in PLAIN_IN_A_VIEW):
        with suppress(DefinitionError):
            compiler.compile_text(text.replace("lines", "__place_0"), tables)
            through.append(("Spark's", text))
    assert not through


def test_a_session_that_we_make_asks_for_a_secret(spark: SparkSession) -> None:
    settings = dict(spark.sparkContext.getConf().getAll())
    assert settings["spark.authenticate"] == "true"
    assert len(settings["spark.authenticate.secret"]) == 64
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert spark.conf.get("spark.sql.variable.substitute") == "false"
