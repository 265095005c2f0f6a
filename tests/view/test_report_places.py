"""An error in the text that Spark gets points at the place in the text that the user wrote."""

from __future__ import annotations

import pyarrow as pa
import pytest

from viewkeeper.errors import DefinitionError, UnsupportedError
from viewkeeper.view.definition import Field
from viewkeeper.view.sql.bind import bind_view, locate_error, report_text
from viewkeeper.view.sql.view_statement import parse_view

TEXT = """-- a report
CREATE MATERIALIZED VIEW v AS
SELECT shop.orders.kind, wrong AS w
FROM shop.orders LEFT JOIN crm.customers c
  ON c.id = shop.orders.customer AND c.odd GROUP BY 1"""


@pytest.mark.parametrize("word", ["wrong", "odd", "GROUP", "LEFT", "c.id", "SELECT"])
def test_a_place_is_found_again(word: str) -> None:
    parsed = parse_view(TEXT, "views/v.sql")
    shown = report_text(parsed)
    assert "__place_0 AS `orders`" in shown
    before = shown[: shown.index(word)]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    error = UnsupportedError("it cannot be maintained", line=line, column=column, hint="h")
    found = locate_error(parsed, error)
    written = TEXT[: TEXT.index(word)]
    place = (written.count("\n") + 1, len(written) - (written.rfind("\n") + 1) + 1)
    assert (found.line, found.column) == place
    assert isinstance(found, UnsupportedError)
    assert found.message.endswith('view "v": it cannot be maintained')
    assert (found.path, found.hint) == ("views/v.sql", "h")


def test_an_error_without_a_place_points_at_the_query() -> None:
    parsed = parse_view(TEXT, None)
    found = locate_error(parsed, DefinitionError("wrong"))
    assert (found.line, found.column) == (3, 1)


@pytest.mark.parametrize("tail", ["", " GROUP BY o.id"])
def test_a_place_is_a_word_of_its_own(tail: str) -> None:
    """Words may touch the backticks of a name; without them the words became one."""
    parsed = parse_view(f"CREATE MATERIALIZED VIEW v AS SELECT o.id FROM`shop`.`orders`o{tail}")
    if parsed.report is not None:
        assert report_text(parsed) == f"SELECT o.id FROM __place_0 o{tail}"
    else:
        fields = (Field("id", pa.int64()),)
        assert bind_view(parsed, lambda _: fields).query == "SELECT o.id FROM __place_0 o"
