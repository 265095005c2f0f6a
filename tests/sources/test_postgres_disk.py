"""A disk that is full under what was read of PostgreSQL's change stream."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.postgres_shop import Shop, changed
from viewkeeper.errors import WarehouseError
from viewkeeper.sources.stream.spool import Spool
from viewkeeper.testing.private_servers import PrivatePostgres

T = {"t": ["id", "v"]}
COLUMNS = ["id", "v"]


@pytest.fixture
def shop(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(postgres_server, tmp_path)
    opened.table("t (id int, v text)")
    yield opened
    opened.close()


def test_what_cannot_be_kept_is_read_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk under the spool: nothing of what was half kept counts."""
    source = shop.source()
    start = source.follow_tables(T)
    shop.run("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
    with monkeypatch.context() as patched:
        patched.setattr(Spool, "write_batch", full)
        with pytest.raises(WarehouseError, match="cannot be kept"):
            source.look_for_transactions(start)
    first, second = source.look_for_transactions(start)
    assert (first.changes, second.changes) == (1, 1)
    found = changed(source, "t", COLUMNS, start, second.position)
    assert found == [(1, "a", 1), (2, "b", 1)]


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no space left")
