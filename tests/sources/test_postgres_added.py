"""A column that is added and written before anybody follows it: its values are not taken for NULL.

A view that says `*` takes such a column in a moment later. Decoding keeps what was written to it;
triggers log it only from when it is followed, and so report that it may have values already.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.sources.postgres_shop import Shop, changed, plus
from viewkeeper.testing.private_servers import PrivatePostgres


@pytest.mark.parametrize("capture", ["decoding", "triggers"])
def test_an_added_column_is_written_before_it_is_followed(
    postgres_server: PrivatePostgres, tmp_path: Path, capture: str
) -> None:
    shop = Shop(postgres_server, tmp_path)
    try:
        shop.table("t (id int primary key, a int)")
        source = shop.source(capture=capture)
        at = source.follow_tables({"t": ["id", "a"]})
        shop.run("INSERT INTO t VALUES (1, 1)")
        first = source.look_for_transactions(at)[-1].position
        shop.run("ALTER TABLE t ADD COLUMN x int", "UPDATE t SET x = 5")
        seen = source.look_for_transactions(first)
        kinds = {change.kind for boundary in seen for change in boundary.reshaped}
        source.follow_tables({"t": ["id", "a", "x"]})
        if capture == "triggers":
            assert kinds == {"add_filled_column"}
        else:
            assert kinds == {"add_column"}
            rows = changed(source, "t", ["id", "a", "x"], first, seen[-1].position)
            assert plus(Counter({(1, 1, None): 1}), rows) == Counter({(1, 1, 5): 1})
        source.close()
    finally:
        shop.close()
