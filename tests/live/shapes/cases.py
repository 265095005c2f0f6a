"""The cases: every kind of schema change that databases allow, in their own words.

One line of the page for each (`tests.live.shapes.page`), and one table in every database. The
statements between two lines of `BEGIN` and `COMMIT` are one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.live.shapes.case import SHOWN, Case, Ending, ReportKind

STAR = "SELECT t.*, g.name"
ALL = {name: name for name in ("id", "k", "v", "a", "b", "u", "w")}
AGAIN = "CREATE TABLE {was} (id INTEGER PRIMARY KEY, k INTEGER, v INTEGER, {columns})"
ROWS = "INSERT INTO {was} (id, k, v, a, b) VALUES (1, 1, 10, {n}, 5), (90, 2, 20, 7, {n})"
TOGETHER = (
    "UPDATE {was} SET {c} = 70 WHERE id < 3",
    "ALTER TABLE {was} RENAME COLUMN {c} TO {c}_now",
    "UPDATE {was} SET {c}_now = {c}_now + id WHERE id < 4",
    "ALTER TABLE {was} ADD COLUMN x{n} INTEGER",
    "UPDATE {was} SET x{n} = id, v = v + 1 WHERE id > 2",
    "INSERT INTO {was} (id, k, v, {c}_now, x{n}) VALUES (9{n}, 1, 1, 1, 1)",
)
UNUSED = "a INTEGER DEFAULT 0, b INTEGER DEFAULT 0, u INTEGER, w INTEGER"
STOPPED_REPORTS: Mapping[ReportKind, Ending] = {"fold": "stops", "window": "stops"}
"""Preferences and substitutes are for plain views alone."""
FULL = "ALTER TABLE {was} REPLICA IDENTITY FULL"

ADDED = (
    Case(
        "add_column",
        "column added, the view lists its columns",
        {
            "any": (
                "ALTER TABLE {was} ADD COLUMN x{n} INTEGER",
                "UPDATE {was} SET x{n} = 1, v = v + 1 WHERE id < 3",
            )
        },
        table="unused",
        columns=UNUSED,
    ),
    Case(
        "add_column_star",
        "column added, `SELECT *`",
        {
            "any": (
                "ALTER TABLE {was} ADD COLUMN x{n} INTEGER",
                "UPDATE {was} SET x{n} = 1, v = v + 1 WHERE id < 3",
            )
        },
        view=STAR,
        shown=ALL,
        shows={1: {"x1": "x1"}, 2: {"x2": "x2"}},
    ),
    Case(
        "add_default_star",
        "column added with a default, `SELECT *`",
        {"any": ("ALTER TABLE {was} ADD COLUMN x{n} INTEGER DEFAULT 5",)},
        view=STAR,
        shown=ALL,
        shows={1: {"x1": "x1"}, 2: {"x2": "x2"}},
    ),
)

RENAMED = (
    Case(
        "rename_column",
        "column renamed",
        {
            "any": (
                "ALTER TABLE {was} RENAME COLUMN {c} TO {c}_now",
                "UPDATE {was} SET {c}_now = {c}_now + 1 WHERE id < 3",
            )
        },
        shows={1: {"a": "a_now"}, 2: {"b": "b_now"}},
    ),
    Case(
        "rename_table",
        "table renamed",
        {"any": ("ALTER TABLE {was} RENAME TO {now}",)},
        names=("{t}", "{t}_1", "{t}_2"),
    ),
    Case(
        "swap_one",
        "two tables swap their names",
        {
            "any": (
                "BEGIN",
                "ALTER TABLE {was} RENAME TO between_both",
                "ALTER TABLE {now} RENAME TO {was}",
                "ALTER TABLE between_both RENAME TO {now}",
                "COMMIT",
            ),
            "mariadb": (
                "RENAME TABLE {was} TO between_both, {now} TO {was}, between_both TO {now}",
            ),
        },
        other="swap_two",
    ),
)

DROPPED = (
    Case(
        "drop_unused",
        "unused column dropped",
        {"any": ("ALTER TABLE {was} DROP COLUMN {u}",)},
        table="unused",
        columns=UNUSED,
    ),
    Case(
        "drop_used",
        "used column dropped",
        {"any": ("ALTER TABLE {was} DROP COLUMN {c}",)},
        endings={"sqlite": "refused", "postgres": "stops", "mariadb": "stops"},
        causes=r"column [ab] was dropped",
        note="SQLite refuses it until `viewkeeper detach`",
    ),
    Case(
        "drop_dispensable",
        "used column dropped that the view can do without",
        {"any": ("ALTER TABLE {was} DROP COLUMN {c}",)},
        view="SELECT t.v, t.a, t.b, g.name",
        shown={name: name for name in ("v", "a", "b")},
        shows={1: {"a": None}, 2: {"b": None}},
        evolution="dispensable: {columns: [a, b]}",
        reports={**STOPPED_REPORTS, "above": "stops"},
        cause_of_reports=r"[ab]` cannot be resolved",
        endings={"sqlite": "refused"},
    ),
    Case(
        "drop_table",
        "table dropped",
        {"any": ("DROP TABLE {was}",)},
        endings={"sqlite": "stops", "postgres": "stops", "mariadb": "stops"},
        causes=r"drop_table_\d was dropped",
    ),
    Case(
        "drop_substituted",
        "table dropped that has a substitute",
        {
            "any": (
                AGAIN.replace("{was}", "{now}"),
                ROWS.replace("{was}", "{now}"),
                "DROP TABLE {was}",
            ),
            "postgres": (
                AGAIN.replace("{was}", "{now}"),
                FULL.replace("{was}", "{now}"),
                ROWS.replace("{was}", "{now}"),
                "DROP TABLE {was}",
            ),
        },
        names=("{t}", "{t}_1", "{t}_2"),
        substitutes=(
            "{{for: db.{t}, use: db.{t}_1, columns: {{}}, extent: equal}}",
            "{{for: db.{t}_1, use: db.{t}_2, columns: {{}}, extent: equal}}",
        ),
        reports=STOPPED_REPORTS,
        cause_of_reports="drop_substituted was dropped",
    ),
    Case(
        "drop_recreate",
        "table dropped and made again",
        {
            "any": ("BEGIN", "DROP TABLE {was}", AGAIN, ROWS, "COMMIT"),
            "postgres": ("BEGIN", "DROP TABLE {was}", AGAIN, FULL, ROWS, "COMMIT"),
            "mariadb": ("DROP TABLE {was}", AGAIN, ROWS),
        },
    ),
)

RETYPED = (
    Case(
        "widen_same",
        "type widened: int to bigint, varchar to text",
        {
            "postgres": (
                "ALTER TABLE {was} ALTER COLUMN {c} TYPE bigint, ALTER COLUMN {c}_text TYPE text",
                "UPDATE {was} SET {c} = 3000000000 WHERE id = 1",
            ),
            "mariadb": (
                "ALTER TABLE {was} MODIFY {c} bigint, MODIFY {c}_text text",
                "UPDATE {was} SET {c} = 3000000000 WHERE id = 1",
            ),
        },
        columns="a INTEGER, b INTEGER, a_text VARCHAR(20), b_text VARCHAR(20)",
        fill=("a", "b", "a_text", "b_text"),
        view="SELECT t.id, t.v, t.a, t.b, t.a_text, t.b_text, g.name",
        shown={**SHOWN, "a_text": "a_text", "b_text": "b_text"},
    ),
    Case(
        "widen_other",
        "type widened: decimal(10,2) to decimal(14,2)",
        {
            "postgres": (
                "ALTER TABLE {was} ALTER COLUMN {c} TYPE decimal(14,2)",
                "UPDATE {was} SET {c} = 123456789012.34 WHERE id = 1",
            ),
            "mariadb": (
                "ALTER TABLE {was} MODIFY {c} decimal(14,2)",
                "UPDATE {was} SET {c} = 123456789012.34 WHERE id = 1",
            ),
        },
        columns="a DECIMAL(10,2), b DECIMAL(10,2)",
    ),
    Case(
        "narrow",
        "type narrowed: decimal(14,2) to decimal(10,1)",
        {
            "postgres": ("ALTER TABLE {was} ALTER COLUMN {c} TYPE decimal(10,1)",),
            "mariadb": ("ALTER TABLE {was} MODIFY {c} decimal(10,1)",),
        },
        columns="a DECIMAL(14,2), b DECIMAL(14,2)",
    ),
    Case(
        "change_type",
        "type changed: text to int, int to text",
        {
            "postgres": (
                "ALTER TABLE {was} ALTER COLUMN {c} TYPE text USING {c}::text,"
                " ALTER COLUMN {c}_text TYPE integer USING {c}_text::integer",
            ),
            "mariadb": ("ALTER TABLE {was} MODIFY {c} text, MODIFY {c}_text int",),
        },
        columns="a INTEGER, b INTEGER, a_text VARCHAR(20), b_text VARCHAR(20)",
        fill=("a", "b", "a_text", "b_text"),
        view="SELECT t.id, t.v, t.a, t.b, t.a_text, t.b_text, g.name",
        shown={**SHOWN, "a_text": "a_text", "b_text": "b_text"},
    ),
    Case(
        "rewrite",
        "values rewritten by the statement itself",
        {
            "postgres": ("ALTER TABLE {was} ALTER COLUMN {c} TYPE integer USING {c} * 2",),
            "mariadb": ("ALTER TABLE {was} MODIFY made_{c} int AS (v * 2{n}) STORED",),
        },
        view="SELECT t.id, t.v, t.a, t.b, t.made_a, t.made_b, g.name",
        columns="a INTEGER, b INTEGER, made_a INTEGER, made_b INTEGER",
        shown={**SHOWN, "made_a": "made_a", "made_b": "made_b"},
        created={
            "mariadb": "a INTEGER, b INTEGER, made_a INTEGER AS (v * 10) STORED,"
            " made_b INTEGER AS (v * 10) STORED"
        },
    ),
)

CONSTRAINED = (
    Case(
        "not_null",
        "NOT NULL set and dropped",
        {
            "postgres": (
                "ALTER TABLE {was} ALTER COLUMN {c} SET NOT NULL",
                "UPDATE {was} SET {c} = 70 WHERE id = 1",
                "ALTER TABLE {was} ALTER COLUMN {c} DROP NOT NULL",
                "UPDATE {was} SET {c} = NULL WHERE id = 2",
            ),
            "mariadb": (
                "ALTER TABLE {was} MODIFY {c} int NOT NULL DEFAULT 0",
                "UPDATE {was} SET {c} = 70 WHERE id = 1",
                "ALTER TABLE {was} MODIFY {c} int NULL",
                "UPDATE {was} SET {c} = NULL WHERE id = 2",
            ),
        },
        table="unused",
        columns=UNUSED,
    ),
    Case(
        "primary_key",
        "primary key dropped and added",
        {
            "postgres": (
                "ALTER TABLE {was} DROP CONSTRAINT {was}_pkey",
                "UPDATE {was} SET a = 70 + {n} WHERE id = 1",
                "ALTER TABLE {was} ADD PRIMARY KEY (id)",
            ),
            "mariadb": (
                "ALTER TABLE {was} DROP PRIMARY KEY",
                "UPDATE {was} SET a = 70 + {n} WHERE id = 1",
                "ALTER TABLE {was} ADD PRIMARY KEY (id)",
            ),
        },
        table="unused",
        columns=UNUSED,
    ),
)

MIXED = (
    Case(
        "unrelated",
        "a table that no view reads is made, changed, renamed and dropped",
        {
            "any": (
                "CREATE TABLE other_{n} (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER)",
                "INSERT INTO other_{n} VALUES (1, 2, 3)",
                "ALTER TABLE other_{n} RENAME COLUMN a TO c",
                "ALTER TABLE other_{n} DROP COLUMN b",
                "ALTER TABLE other_{n} RENAME TO another_{n}",
                "UPDATE {was} SET a = 70 + {n} WHERE id = 1",
                "DROP TABLE another_{n}",
            )
        },
        table="unused",
        columns=UNUSED,
    ),
    Case(
        "one_transaction",
        "several changes and rows in one transaction",
        {
            "sqlite": ("BEGIN", *TOGETHER, "COMMIT"),
            # Else it may wait for a writer that waits for it.
            "postgres": ("BEGIN", "LOCK TABLE {was}", *TOGETHER, "COMMIT"),
        },
        view=STAR,
        shown=ALL,
        shows={1: {"a": "a_now", "x1": "x1"}, 2: {"b": "b_now", "x2": "x2"}},
        # Where a column below a star was renamed, the star is written out: it takes in no more.
        apart=True,
        note="MariaDB commits before and after each such statement",
    ),
    Case(
        "rebuild",
        "the table is built anew, as SQLite's tools do it",
        {
            "sqlite": (
                "BEGIN",
                "CREATE TABLE rebuilt (id INTEGER PRIMARY KEY, k INTEGER, v INTEGER,"
                " a INTEGER, b INTEGER, u TEXT, more_{n} TEXT)",
                "INSERT INTO rebuilt (id, k, v, a, b) SELECT id, k, v, a, b FROM {was}",
                "DROP TABLE {was}",
                "ALTER TABLE rebuilt RENAME TO {was}",
                "COMMIT",
            )
        },
    ),
    Case(
        "ghost",
        "a copy takes the table's place, as MariaDB's tools do it",
        {
            "mariadb": (
                "CREATE TABLE {was}_gho LIKE {was}",
                "ALTER TABLE {was}_gho ADD COLUMN more_{n} INTEGER",
                "INSERT INTO {was}_gho (id, k, v, a, b) SELECT id, k, v, a, b FROM {was}",
                "RENAME TABLE {was} TO {was}_del, {was}_gho TO {was}",
                "DROP TABLE {was}_del",
            )
        },
    ),
)

POLICIES = (
    Case(
        "lenient",
        "used column lost, policy `lenient`: it is NULL from then on",
        {
            "any": ("ALTER TABLE {was} DROP COLUMN {c}",),
            "sqlite": (
                "BEGIN",
                "ALTER TABLE {was} RENAME TO lenient_old",
                "CREATE TABLE {was} AS SELECT * FROM lenient_old",
                "ALTER TABLE {was} DROP COLUMN {c}",
                "DROP TABLE lenient_old",
                "COMMIT",
            ),
        },
        shows={1: {"a": "NULL"}, 2: {"b": "NULL"}},
        evolution="policy: lenient",
        reports=STOPPED_REPORTS,
        cause_of_reports=r"[ab]` cannot be resolved",
    ),
    Case(
        "approve",
        "column renamed, policy `approve`: held, then approved",
        {
            "any": (
                "ALTER TABLE {was} RENAME COLUMN {c} TO {c}_now",
                "UPDATE {was} SET {c}_now = {c}_now + 1 WHERE id < 3",
            )
        },
        shows={1: {"a": "a_now"}, 2: {"b": "b_now"}},
        evolution="policy: approve",
        approved=True,
    ),
)

CASES: tuple[Case, ...] = (
    *ADDED,
    *RENAMED,
    *DROPPED,
    *RETYPED,
    *CONSTRAINED,
    *MIXED,
    *POLICIES,
)
