"""Operations on objects have a known outcome, whatever becomes of requests and answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.objects.faulty_requests import Fate, Faults
from tests.objects.s3_server import PrivateS3, root_at
from viewkeeper.errors import RequestTroubleError, WarehouseError
from viewkeeper.storage.objects.object_client import ObjectClient


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


@pytest.fixture
def client(s3: PrivateS3, tmp_path: Path, faults: Faults) -> ObjectClient:
    return root_at(s3, s3.new_url(), tmp_path).storage.client


def once(fate: Fate, faults: Faults) -> None:
    """Let this happen to the next request only."""
    fates = [fate]
    faults.chance = lambda _: fates.pop() if fates else "fine"


@pytest.mark.parametrize("fate", ["fine", "refused", "lost"])
def test_an_object_is_created_once(client: ObjectClient, faults: Faults, fate: Fate) -> None:
    once(fate, faults)
    tag = client.create("a", b"mine")
    assert client.read_tagged("a") == (b"mine", tag)
    once(fate, faults)
    with pytest.raises(FileExistsError):
        client.create("a", b"another")
    assert client.read("a") == b"mine"


@pytest.mark.parametrize("fate", ["fine", "refused", "lost"])
def test_an_object_is_replaced_by_who_saw_it_last(
    client: ObjectClient, faults: Faults, fate: Fate
) -> None:
    first = client.create("a", b"first")
    once(fate, faults)
    second = client.replace("a", b"second", first)
    assert client.read_tagged("a") == (b"second", second)
    once(fate, faults)
    assert client.replace("a", b"late", first) is None
    assert client.read("a") == b"second"


def test_without_any_answer_nothing_is_claimed(client: ObjectClient, faults: Faults) -> None:
    faults.chance = lambda kind: "lost"
    with pytest.raises(RequestTroubleError):
        client.create("a", b"mine")
    faults.end()
    assert client.read("a") == b"mine"
    assert client.create("a", b"mine")


def test_a_bucket_that_is_gone_is_named(s3: PrivateS3, tmp_path: Path) -> None:
    """Whatever is asked: it is no request without an answer, which would be sent again."""
    client = root_at(s3, "s3://nosuchbucket/w", tmp_path).storage.client
    asked: list[Callable[[], object]] = [
        lambda: client.read("a"),
        lambda: client.create("a", b""),
        lambda: client.put("a", b""),
        lambda: client.list_keys(""),
        lambda: client.list_folder(""),
    ]
    for ask in asked:
        with pytest.raises(WarehouseError, match="there is no such bucket"):
            ask()


def test_of_many_writers_one_wins_each_round(client: ObjectClient, faults: Faults) -> None:
    """A register by compare and swap, seeded: each value that was acknowledged is seen once."""
    generator = random.Random(7)
    tag, value = client.create("register", b"0"), 0
    faults.seed(generator, 0.4)
    for _ in range(60):
        stale = generator.random() < 0.3
        try:
            found = client.replace("register", str(value + 1).encode(), "stale" if stale else tag)
        except RequestTroubleError:
            faults.end()
            data, tag = client.read_tagged("register")
            assert int(data) in (value, value + 1)
            value = int(data)
            faults.seed(generator, 0.4)
            continue
        if found is not None:
            tag, value = found, value + 1
        else:
            assert stale
    faults.end()
    assert client.read("register") == str(value).encode()


def put_large_file(client: ObjectClient, folder: Path) -> tuple[Path, str]:
    """A file that goes in parts, and the tag of the object, which has all of it."""
    path = folder / "large"
    path.write_bytes(random.Random(3).randbytes(20 << 20))
    client.put("large", path)
    facts = client.find_facts("large")
    assert facts is not None
    assert facts.size == 20 << 20
    assert client.read("large") == path.read_bytes()
    return path, facts.tag


def test_a_large_file_goes_in_parts(client: ObjectClient, tmp_path: Path) -> None:
    path, tag = put_large_file(client, tmp_path)
    assert tag.endswith('-2"'), "two parts"
    assert client.read_range("large", 100, 200) == path.read_bytes()[100:200]
