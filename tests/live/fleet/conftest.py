"""What the fleet tests share: worlds with SQLite and PostgreSQL bases, and a fleet over them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.live.fleet.bases import Base, PostgresBase, SqliteBase
from tests.live.fleet.fleet import Fleet, MemberPlan
from viewkeeper.testing.private_servers import PrivatePostgres

MakeFleet = Callable[..., Fleet]
_NUMBERS = itertools.count()


@pytest.fixture
def make_fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MakeFleet]:
    """Make a fleet of some members over bases `a=sqlite`, `b=postgres` and the like."""
    with ExitStack() as stack:

        def make(*plans: MemberPlan, registry: str = "../registry.db", **kinds: str) -> Fleet:
            bases: dict[str, Base] = {}
            for name, kind in kinds.items():
                if kind == "sqlite":
                    bases[name] = SqliteBase(name, tmp_path)
                else:
                    server: PrivatePostgres = request.getfixturevalue("postgres_server")
                    bases[name] = PostgresBase(name, server, f"fleet_{next(_NUMBERS)}_{name}")
                bases[name].create()
            fleet = stack.enter_context(Fleet(tmp_path, bases, registry))
            for plan in plans:
                fleet.add(plan)
            return fleet

        yield make
