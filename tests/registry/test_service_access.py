"""Who may do what at a service: members by their secrets, the administrator by a token.

Everything that one caller might do in the name of another is tried.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import call
from tests.registry.order_places import (
    FOREVER,
    GROUP,
    Place,
    claimed,
    gather,
    ids,
    reading,
    whole_order,
)
from viewkeeper.errors import AccessError, CorruptError, OrderError, RegistryError
from viewkeeper.order.member_secret import FILE, member_secret
from viewkeeper.order.registry_address import open_store
from viewkeeper.order.registry_protocol import MemberFacts, Registry
from viewkeeper.order.service.http_registry import HttpRegistry
from viewkeeper.order.service.http_server import ServiceAccess
from viewkeeper.order.service.registry_service import RegistryService
from viewkeeper.order.store.group_rows import FORMAT
from viewkeeper.order.store.stored_registry import StoredRegistry

SHOP = MemberFacts({"shop": ("t",)})
TOKEN, ADMINISTRATOR = "token-of-all-members", "token-of-the-administrator"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoredRegistry]:
    with closing(open_store(str(tmp_path / "registry.db"))) as opened:
        yield opened


@pytest.fixture
def service(store: StoredRegistry) -> Iterator[RegistryService]:
    made = RegistryService(store, ("127.0.0.1", 0), ServiceAccess(TOKEN, ADMINISTRATOR))
    made.start()
    yield made
    made.stop()


def client(service: RegistryService, secret: str | None, token: str = TOKEN) -> HttpRegistry:
    return HttpRegistry(service.url, token, secret=secret)


def test_nobody_speaks_for_another_member(service: RegistryService) -> None:
    north, other = client(service, "of-north"), client(service, "of-another")
    group = north.join_registry("north", SHOP).group
    other.join_registry("south", SHOP)
    reporter = claimed(north, "shop", "north", group)
    tries: tuple[Callable[[Registry], object], ...] = (
        lambda who: who.join_registry("north", MemberFacts({"crm": ()})),
        lambda who: who.leave_registry("north"),
        lambda who: who.claim_source(group, "shop", "north", FOREVER),
        lambda who: who.register_ids(group, ids("shop", 1), reporter),
        lambda who: who.release_claim(reporter),
        lambda who: who.note_reached(group, "north", 0),
    )
    for attempt in tries:
        for stranger in (other, client(service, None), client(service, "of-north ".strip() + "x")):
            with pytest.raises(AccessError) as refused:
                attempt(stranger)
            assert refused.value.hint
            assert "of-north" not in str(refused.value)
    assert north.register_ids(group, ids("shop", 1), reporter) == 1
    assert [m.name for g in north.fetch_status().groups for m in g.members] == ["north", "south"]


def test_administration_is_for_the_administrator(service: RegistryService) -> None:
    north, administrator = client(service, "of-north"), client(service, None, ADMINISTRATOR)
    north.join_registry("north", SHOP)
    north.register_ids(GROUP, ids("shop", 4), claimed(north, "shop", "north"))
    tries: tuple[Callable[[Registry], object], ...] = (
        lambda who: who.take_back(GROUP, "shop", 4),
        lambda who: who.forget_secret("north"),
    )
    for attempt in tries:
        with pytest.raises(AccessError, match="for the administrator") as refused:
            attempt(north)
        assert "--admin-token-env" in (refused.value.hint or "")
    assert administrator.take_back(GROUP, "shop", 4) == 1
    administrator.leave_registry("north")
    assert all(group.closed for group in north.fetch_status().groups)


def test_a_lost_secret_is_given_up_by_the_administrator(service: RegistryService) -> None:
    first, second = client(service, "first"), client(service, "second")
    group = first.join_registry("north", SHOP)
    with pytest.raises(AccessError, match="another secret") as refused:
        second.join_registry("north", SHOP, group.identity)
    assert "viewkeeper registry forget URL north" in (refused.value.hint or "")
    client(service, None, ADMINISTRATOR).forget_secret("north")
    again = second.join_registry("north", SHOP, group.identity)
    assert again.identity == second.join_registry("north", SHOP).identity
    with pytest.raises(AccessError):
        first.note_reached(group.group, "north", 0)


def test_commands_of_the_administrator(
    service: RegistryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    north = client(service, "of-north")
    north.join_registry("north", SHOP)
    north.register_ids(GROUP, ids("shop", 4), claimed(north, "shop", "north"))
    monkeypatch.setenv("MEMBERS", TOKEN)
    monkeypatch.setenv("ADMIN", ADMINISTRATOR)
    denied = call("registry", "leave", service.url, "north", "--yes", "--token-env", "MEMBERS")
    assert (denied.exit_code, "--admin-token-env" in denied.stderr) == (2, True)
    assert TOKEN not in denied.output
    words = [GROUP, "shop", "4", "--yes"]
    done = call("registry", "take-back", service.url, *words, "--token-env", "ADMIN")
    assert (done.exit_code, done.stdout) == (0, "north: 1 id of shop taken back\n")
    done = call("registry", "forget", service.url, "north", "--token-env", "ADMIN")
    assert (done.exit_code, done.stdout) == (0, "north: joins with a new secret\n")
    done = call("registry", "leave", service.url, "north", "--yes", "--token-env", "ADMIN")
    assert (done.exit_code, done.stdout) == (0, "north: is no member any more\n")


def test_members_may_not_have_the_token_of_the_administrator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAME", TOKEN)
    words = ["--store", str(tmp_path / "r.db"), "--token-env", "SAME", "--admin-token-env", "SAME"]
    assert "would have the administrator's token" in call("registry", "serve", *words).stderr


@pytest.mark.parametrize("token", ["a b", "a\nb", "é", "a\r\nX-Admin: 1"])
def test_a_token_that_no_header_carries_is_in_no_error(token: str) -> None:
    with pytest.raises(RegistryError, match="its token cannot be sent") as refused:
        HttpRegistry("http://127.0.0.1:1", token)
    assert token not in str(refused.value)


# What is reported


def test_a_member_reports_only_what_it_reads(place: Place) -> None:
    registry = place.open()
    group = gather(registry, {"north": reading("shop"), "mart": reading(parents=("north",))})
    with pytest.raises(OrderError, match='"mart" cannot report source "shop"') as refused:
        registry.claim_source(group, "shop", "mart", FOREVER)
    assert "it says that it reads north" in (refused.value.detail or "")
    registry.register_ids(group, ids("shop", 1), claimed(registry, "shop", "north", group))


def test_a_position_that_never_was_is_taken_back(place: Place) -> None:
    """The greatest there is would block the source for good."""
    registry, administrator = place.open(), place.open_administration()
    both = {
        name: MemberFacts({"shop": (), f"own of {name}": ()}, together="x") for name in ("a", "b")
    }
    group = gather(registry, both)
    shop = claimed(registry, "shop", "a", group)
    registry.register_ids(group, ids("shop", 1, 2), shop)
    registry.register_ids(group, ids("shop", (1 << 63) - 1), shop)
    own = claimed(registry, "own of b", "b", group)
    registry.register_ids(group, ids("own of b", 7), own)
    with pytest.raises(OrderError, match="take-back"):
        registry.register_ids(group, ids("shop", 3), shop)
    for member in both:
        registry.note_reached(group, member, 2)
    assert administrator.take_back(group, "shop", 3) == 1
    assert administrator.take_back(group, "shop", 3) == 0
    again = claimed(registry, "shop", "b", group)
    assert again.position == 2
    registry.register_ids(group, ids("shop", 3), again)
    numbers = [(1, "shop@1"), (2, "shop@2"), (3, "@3"), (4, "own of b@7"), (5, "shop@3")]
    assert whole_order(registry, group) == numbers


def test_what_a_reader_has_committed_is_not_taken_back(place: Place) -> None:
    registry = place.open()
    members = {"a": SHOP, "b": MemberFacts({"crm": (), "shop": ()}, parents=("a",))}
    group = gather(registry, members)
    registry.register_ids(group, ids("shop", 1, 2, 3), claimed(registry, "shop", "a", group))
    registry.note_reached(group, "b", 2)
    with pytest.raises(OrderError, match='"b" has committed it'):
        place.open_administration().take_back(group, "shop", 2)
    assert place.open_administration().take_back(group, "shop", 3) == 1


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2J", "e\u0301", "\u202efdp", "\u200b"])
def test_names_that_cannot_be_told_apart_are_refused(place: Place, name: str) -> None:
    registry = place.open()
    for member, facts in (
        (name, SHOP),
        ("north", MemberFacts({name: ()})),
        ("x", MemberFacts({}, (name,))),
    ):
        with pytest.raises(RegistryError, match="cannot be called") as refused:
            registry.join_registry(member, facts)
        assert name not in str(refused.value)


# What was there before


def old_store(path: Path) -> str:
    """A store as the version before made it, with a member; its group's identity."""
    with closing(open_store(str(path))) as made:
        identity = made.join_registry("north", SHOP).identity
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "DROP TABLE registry_secret; DROP TABLE registry_place;"
            "ALTER TABLE registry_group DROP COLUMN trimmed; UPDATE registry SET format = 2"
        )
    return identity


def test_a_store_of_before_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    identity = old_store(path)
    with closing(open_store(str(path))) as store:
        assert store.fetch_status().groups[0].identity == identity
        made = RegistryService(store, ("127.0.0.1", 0))
        made.start()
        try:
            # Its members have no secrets yet; each gives one with its next join.
            north = HttpRegistry(made.url, secret="of-north")
            assert north.join_registry("north", SHOP, identity).identity == identity
            with pytest.raises(AccessError, match="another secret"):
                HttpRegistry(made.url, secret="of-another").join_registry("north", SHOP, identity)
        finally:
            made.stop()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT format FROM registry").fetchone() == (FORMAT,)


def test_a_member_of_before_is_told_what_is_missing(service: RegistryService) -> None:
    with pytest.raises(AccessError, match="must join with a secret of its own") as refused:
        client(service, None).join_registry("north", SHOP)
    assert "install the same one" in (refused.value.hint or "")


def test_a_secret_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        secret = member_secret(tmp_path)
    finally:
        os.umask(before)
    assert member_secret(tmp_path) == secret
    assert len(secret) == 64
    file = tmp_path / FILE
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    assert member_secret(tmp_path) == secret
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [FILE]
    for damaged in (b"", b"x", secret.encode()[:-1], b"\xff" * 64, b"\0" * 64):
        file.write_bytes(damaged)
        with pytest.raises(CorruptError, match="not the secret of a member") as refused:
            member_secret(tmp_path)
        assert "registry forget" in (refused.value.hint or "")


def test_what_is_stored_of_a_secret_does_not_tell_it(
    service: RegistryService, tmp_path: Path
) -> None:
    client(service, "a-secret-to-be-found").join_registry("north", SHOP)
    assert b"a-secret-to-be-found" not in (tmp_path / "registry.db").read_bytes()
