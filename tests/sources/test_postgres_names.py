"""Names that break out of quoting where it is not done right, in both ways of capture.

Schemas, tables and columns have them, and all that is done to a followed table is done to these:
rows are captured, looked up, shapes changed, and everything is taken away again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sources.postgres_shop import Shop, as_of, ask, changed, plus
from viewkeeper.errors import SchemaError
from viewkeeper.sources.postgres.types import quote_name
from viewkeeper.testing.private_servers import PrivatePostgres

COLUMNS = (
    *("$viewkeeper$", "a $viewkeeper$ b", "$$", "$1", "$body$", "it's", "''", 'say "so"', '""'),
    *("back\\slash", "\\'; SELECT 1/0; --", "\\", "E'\\''", "new\nline", "tab\tbed", "\r\n", " "),
    *("%", "%s", "%(a)s", "%1$I", "100%%", "{0}", "{log}", "{}", "}{", "-- not", "/* not", "*/"),
    *("; DROP TABLE t; --", "select", "SELECT", "a.b", "Ünïcödé", "名前", "😀", "\u202eright", "?"),
    *("x" * 63, "é" * 31, "........pg.dropped.99........", "........pg.dropped.x", ":name", "a#2"),
)
TABLES = (
    ("public", "t $viewkeeper$ x"),
    ("$viewkeeper$", "it's; DROP TABLE t; --"),
    ('a "quoted" one', 'say "so" \\ %s'),
    ("it's\\", "\\'; SELECT 1/0; --"),
    ("new\nline", "dots.and.dots"),
    ("%s", "名" * 21),
)


@pytest.fixture
def shop(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(postgres_server, tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("capture", ["decoding", "triggers"])
def test_columns_of_any_name_are_followed(shop: Shop, capture: str) -> None:
    listed = ", ".join(f"{quote_name(name)} text" for name in COLUMNS)
    shop.table(f"t (id int PRIMARY KEY, {listed})")
    count = len(COLUMNS)

    def insert(number: int) -> str:
        return f"INSERT INTO t VALUES ({number}{f', $$v{number}$$' * count})"

    shop.run(insert(1))
    wanted = ["id", *COLUMNS]
    source = shop.source(capture=capture)
    start, before = source.follow_tables({"t": wanted}), shop.rows("t", ["id"])
    odd = quote_name(COLUMNS[10])
    shop.run(insert(2), f"UPDATE t SET {odd} = 'new' WHERE id = 1", "DELETE FROM t WHERE id = 2")
    end = source.look_for_transactions(start)[-1].position
    found = changed(source, "t", wanted, start, end)
    assert all(None not in row for row in found)
    assert plus(before, [(row[0], row[-1]) for row in found]) == shop.rows("t", ["id"])
    assert {row[11] for row in found} == {"v1", "v2", "new"}
    with source.prepare_snapshots(end, {"t": wanted}) as opener, closing(opener()) as snapshot:
        for name in COLUMNS:
            keys = pa.table({name: pa.array(["v1", "it's \\ so"])})
            answer = ask(snapshot, "t", ("id", name), keys, end)
            assert answer.rows["id"].to_pylist() == ([] if name == COLUMNS[10] else [1])
    # A writer may read backslashes in another way than we do.
    shop.run("SET standard_conforming_strings = off", insert(3))
    (last,) = source.look_for_transactions(end)
    assert [row[-1] for row in changed(source, "t", wanted, end, last.position)] == [1]
    shop.run("SET standard_conforming_strings = on")
    for name in COLUMNS:
        shop.run(f"ALTER TABLE t RENAME {quote_name(name)} TO {quote_name(name[:20] + '$x$')}")
        shop.run(f"ALTER TABLE t RENAME {quote_name(name[:20] + '$x$')} TO {quote_name(name)}")
    shop.run(f"ALTER TABLE t RENAME {odd} TO {quote_name('$viewkeeper$ 2')}", insert(4))
    after = last.position
    boundaries = source.look_for_transactions(after)
    changes = [each for boundary in boundaries for each in boundary.reshaped]
    assert {each.kind for each in changes if each.column == COLUMNS[10]} == {"rename_column"}
    rows = changed(source, "t", ["id", COLUMNS[10]], after, boundaries[-1].position)
    assert rows == [(4, "v4", 1)]
    assert source.detach_source().capture_dropped
    shop.run(insert(5))


@pytest.mark.parametrize("capture", ["decoding", "triggers"])
@pytest.mark.parametrize(("schema", "name"), TABLES)
def test_tables_of_any_name_are_followed(shop: Shop, schema: str, name: str, capture: str) -> None:
    called, handle = f"{quote_name(schema)}.{quote_name(name)}", f"{schema}.{name}"
    shop.run(f"CREATE SCHEMA IF NOT EXISTS {quote_name(schema)}")
    shop.table(f"{called} (id int PRIMARY KEY, {quote_name(name)} text)")
    shop.run(f"INSERT INTO {called} VALUES (1, 'a')")
    source = shop.source(capture=capture, publication=name[:20])
    columns = ["id", name]
    start = source.follow_tables({handle: columns})
    shop.run(f"INSERT INTO {called} VALUES (2, 'b')", f"UPDATE {called} SET id = 3 WHERE id = 1")
    end = source.look_for_transactions(start)[-1].position
    with source.prepare_snapshots(start, {handle: columns}) as opener:
        assert as_of(opener, handle, columns, start) == Counter({(1, "a"): 1})
    found = changed(source, handle, columns, start, end)
    assert plus(Counter({(1, "a"): 1}), found) == Counter({(2, "b"): 1, (3, "a"): 1})
    shop.run(f"TRUNCATE {called}")
    (emptied,) = source.look_for_transactions(end)
    assert emptied.emptied == (handle,)
    shop.run(f"ALTER TABLE {called} RENAME TO {quote_name('other $viewkeeper$')}")
    renamed = source.look_for_transactions(emptied.position)
    assert [each.kind for each in renamed[-1].reshaped] == ["rename_table"]
    assert source.detach_source().left == ()
    left = "SELECT pubname FROM pg_publication UNION SELECT tgname FROM pg_trigger"
    assert shop.writer.execute(f"{left} WHERE NOT tgisinternal".encode()).fetchall() == []


def test_a_source_with_a_long_name_has_both_event_triggers(shop: Shop) -> None:
    shop.table("t (id int PRIMARY KEY)")
    source = shop.source(name="a very long name of a source, longer than what PostgreSQL keeps")
    start = source.follow_tables({"t": ["id"]})
    assert "event triggers tell" in source.describe_source()
    shop.run("ALTER TABLE t RENAME id TO number")
    assert [each.kind for each in source.look_for_transactions(start)[-1].reshaped] == [
        "rename_column"
    ]
    assert source.detach_source().left == ()
    assert shop.writer.execute("SELECT evtname FROM pg_event_trigger").fetchall() == []


def test_a_publication_whose_name_would_be_cut_off_is_refused(shop: Shop) -> None:
    with pytest.raises(SchemaError, match="too long"):
        shop.source(publication="é" * 32)
