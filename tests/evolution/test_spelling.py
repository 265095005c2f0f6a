"""Names in statements that we print: somebody copies them into a database, so they are quoted."""

from __future__ import annotations

import pyarrow as pa

from viewkeeper.evolution.synchronization.parts_of_sql import (
    add_column_sql,
    create_table_sql,
    quote_source_table,
)
from viewkeeper.sources.postgres.errors import no_old_row_error
from viewkeeper.view.definition import Field

HOSTILE = 'x"; DROP TABLE y; --'


def test_a_name_cannot_leave_its_quotes() -> None:
    field = Field(HOSTILE, pa.int64())
    quoted = '"x""; DROP TABLE y; --"'
    assert add_column_sql("s.t", field) == f"ALTER TABLE s.t ADD COLUMN {quoted} BIGINT"
    assert create_table_sql(HOSTILE, (field,)) == f"CREATE TABLE {quoted} ({quoted} BIGINT)"
    assert quote_source_table("a`b.order", "`") == "`a``b`.`order`"


def test_the_hint_of_a_table_without_old_rows_is_quoted() -> None:
    hint = no_old_row_error("shop", f"public.{HOSTILE}").hint
    assert hint is not None
    assert hint.startswith('ALTER TABLE "public"."x""; DROP TABLE y; --" REPLICA IDENTITY FULL')
