"""What sources remember in a bucket: takeovers, zombies, lost answers, and what it costs."""

from __future__ import annotations

import itertools
import pickle
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.objects.faulty_requests import DeathError, Faults
from tests.objects.s3_server import PrivateS3, root_at
from viewkeeper.engine.reload.project_difference import changed_keys, keep_fixed
from viewkeeper.engine.settings.project_file import read_settings
from viewkeeper.errors import LockedError, SourceError, WarehouseError
from viewkeeper.sources.bucket_state import BucketStateFiles
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.state_files import FolderStateFiles
from viewkeeper.storage.stored_files import storage_of

Opened = Callable[[int], BucketStateFiles]


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


@pytest.fixture
def open_at(s3: PrivateS3, tmp_path: Path, faults: Faults) -> Opened:
    """The files of one source as another process sees them, which has the lock by an epoch."""
    url, numbers = s3.new_url(), itertools.count()

    def open_files(epoch: int) -> BucketStateFiles:
        local = tmp_path / f"machine{next(numbers)}"
        root = root_at(s3, url, local)
        root.storage.begin_epoch(epoch)  # type: ignore[attr-defined]  # the lock does it
        return BucketStateFiles(root / "sources" / "shop", local / "sources" / "shop")

    return open_files


def text_of(files: BucketStateFiles, name: str) -> str | None:
    return files.read_file(name, "state", lambda body: str(body["text"]))


def write(files: BucketStateFiles, name: str, text: str) -> None:
    files.write_file(name, "state", {"text": text})


def test_another_machine_reads_what_was_written(open_at: Opened) -> None:
    first = open_at(1)
    SourceHandles(first).add_target("orders", "17", {"id": "1"})
    write(first, "state.json", "one")
    write(first, "states/5.json", "five")
    second = open_at(2)
    assert text_of(second, "state.json") == "one"
    assert second.list_files("states") == ["5.json"]
    assert [*SourceHandles(second)] == ["orders"]
    assert second.remove_files(["states/5.json", "states/6.json"])
    assert not second.remove_files(["states/5.json"])
    assert text_of(open_at(0), "states/5.json") is None
    assert text_of(pickle.loads(pickle.dumps(second)), "state.json") == "one"


def test_a_zombie_cannot_write(open_at: Opened) -> None:
    """Neither where the new holder has only read, nor where there was nothing to read."""
    zombie, fresh = open_at(1), open_at(1)
    write(zombie, "state.json", "one")
    holder = open_at(2)
    assert text_of(holder, "state.json") == "one"
    with pytest.raises(LockedError, match="another process has taken the warehouse over"):
        write(zombie, "state.json", "two")
    zombie.note_file("state.json", "state", {"text": "three"}, durable=True)
    with pytest.raises(LockedError):
        zombie.save_noted()
    with pytest.raises(LockedError):
        write(fresh, "names.json", "other")
    assert text_of(holder, "state.json") == text_of(open_at(0), "state.json") == "one"
    write(holder, "state.json", "four")
    assert text_of(open_at(3), "state.json") == "four"


def test_a_zombie_cannot_make_what_was_not_there(open_at: Opened) -> None:
    zombie, holder = open_at(1), open_at(2)
    assert text_of(holder, "state.json") is None
    with pytest.raises(LockedError):
        write(zombie, "state.json", "zombie")
    write(holder, "state.json", "holder")
    assert text_of(open_at(0), "state.json") == "holder"


def test_what_a_process_wrote_before_it_lost_the_lock_counts(open_at: Opened) -> None:
    """It is written between the holder's reading and its seal, so the holder reads it again."""
    before, holder = open_at(1), open_at(2)
    write(before, "state.json", "one")
    client = holder.place.storage.client
    reading = client.read_tagged

    def read_and_wait(key: str) -> tuple[bytes, str]:
        found = reading(key)
        client.read_tagged = reading  # type: ignore[method-assign]  # a stand-in for one call
        write(before, "state.json", "two")
        return found

    client.read_tagged = read_and_wait  # type: ignore[method-assign]  # a stand-in for one call
    assert text_of(holder, "state.json") == "two"
    with pytest.raises(LockedError):
        write(before, "state.json", "three")


def test_two_of_one_holder_seal_at_once(open_at: Opened) -> None:
    """A source that was opened again while the one before hangs: what that one wrote counts."""
    write(open_at(1), "state.json", "one")
    hanging, again = open_at(2), open_at(2)
    client = again.place.storage.client
    replacing = client.replace

    def replace_late(key: str, data: bytes, expected: str) -> str | None:
        client.replace = replacing  # type: ignore[method-assign]  # a stand-in for one call
        write(hanging, "state.json", "two")
        return replacing(key, data, expected)

    client.replace = replace_late  # type: ignore[method-assign]  # a stand-in for one call
    assert text_of(again, "state.json") == "two"


def test_a_change_without_the_lock_is_not_lost(open_at: Opened) -> None:
    """A lease that a verification writes, while the holder writes its own files."""
    holder, reader = open_at(1), open_at(0)
    write(holder, "state.json", "one")
    write(reader, "leases/verify.json", "mine")
    write(holder, "state.json", "two")
    assert text_of(reader, "state.json") == "two"
    holder.reload_files()
    assert holder.list_files("leases") == ["verify.json"]


def test_looks_cost_nothing_and_acknowledging_one_put(open_at: Opened, faults: Faults) -> None:
    files = open_at(1)
    assert text_of(files, "log.json") is None
    assert faults.counts == Counter({"get": 1, "put": 1}), "read and sealed"
    before = faults.counts
    for number in range(100):
        files.note_file("log.json", "state", {"text": str(number)}, durable=True)
        assert text_of(files, "log.json") == str(number)
    assert faults.counts == before
    files.save_noted()
    files.save_noted()
    assert faults.counts - before == Counter({"put": 1})
    write(files, "log.json", "99")
    assert faults.counts - before == Counter({"put": 1}), "nothing has changed"
    assert text_of(open_at(0), "log.json") == "99"


def test_a_lock_taken_again_needs_no_seal(open_at: Opened, faults: Faults) -> None:
    files = open_at(1)
    write(files, "state.json", "one")
    before = faults.counts
    for epoch in (2, 3):
        files.place.storage.begin_epoch(epoch)  # type: ignore[attr-defined]  # the lock does it
        assert text_of(files, "state.json") == "one"
    assert faults.counts - before == Counter({"head": 2})
    write(open_at(4), "state.json", "two")
    files.place.storage.begin_epoch(5)  # type: ignore[attr-defined]  # the lock does it
    assert text_of(files, "state.json") == "two"
    # As `detach` does, between two refreshes of a session that is kept.
    files.note_file("state.json", "state", {"text": "three"}, durable=True)
    open_at(0).forget_all()
    files.place.storage.begin_epoch(6)  # type: ignore[attr-defined]  # the lock does it
    assert text_of(files, "state.json") is None


@pytest.mark.parametrize("seed", range(10))
def test_requests_that_fail_lose_nothing(open_at: Opened, faults: Faults, seed: int) -> None:
    """Refused, answered too late, or the death of the process: what was written is there."""
    generator, wanted = random.Random(seed), "0"
    files, epoch = open_at(1), 1
    write(files, "state.json", wanted)
    for number in range(1, 25):
        if generator.random() < 0.2:
            faults.die_after(generator.randrange(2))
        else:
            faults.seed(generator, 0.4)
        may_be = str(number)
        try:
            write(files, "state.json", may_be)
            wanted = may_be
        except (WarehouseError, DeathError):
            faults.end()
            epoch += 1
            files = open_at(epoch)
            found = text_of(files, "state.json")
            assert found in (wanted, may_be)
            wanted = found or ""
        faults.end()
        assert text_of(open_at(0), "state.json") == wanted


def test_damage_is_an_error_of_the_source(open_at: Opened) -> None:
    files = open_at(1)
    write(files, "state.json", "one")
    client, key = files.place.storage.client, f"{files.place.key}/state.json"
    client.put(key, client.read(key).replace(b"one", b"two"))
    with pytest.raises(SourceError, match="cannot be believed") as caught:
        text_of(open_at(2), "state.json")
    assert str(files.place / "state.json") in str(caught.value)


def test_files_of_an_earlier_version_are_taken_up(open_at: Opened) -> None:
    files = open_at(1)
    earlier = FolderStateFiles(files.local)
    earlier.write_file("state.json", "state", {"text": "one"})
    earlier.write_file("states/7.json", "state", {"text": "seven"})
    (files.local / "copies").mkdir()
    (files.local / "copies" / "ab-1.parquet").write_bytes(b"rows")
    SourceHandles(earlier).add_target("orders", "17", {"id": "1"})
    assert text_of(files, "state.json") == "one"
    assert not [*files.local.rglob("*.json")], "they have moved"
    other = open_at(2)
    assert text_of(other, "states/7.json") == "seven"
    assert [*SourceHandles(other)] == ["orders"]
    assert (other.place / "copies" / "ab-1.parquet").read_bytes() == b"rows"


def test_settings_that_are_read_again_write_under_the_lock(tmp_path: Path, s3: PrivateS3) -> None:
    """A reload while views are maintained; a warehouse that is opened anew would have no epoch."""
    file = tmp_path / "viewkeeper.yml"
    text = f"warehouse: {s3.new_url()}\n{s3.yaml}sources: {{shop: {{kind: sqlite, path: s.db}}}}\n"
    file.write_text(text)
    before = read_settings(file)
    file.write_text(f"{text}freshness: 5s\n")
    settings, fixed = keep_fixed(before, read_settings(file))
    kept = settings.sources["shop"].kept
    assert kept is not None
    assert not fixed
    assert storage_of(kept) is storage_of(before.warehouse)
    assert changed_keys(before, settings) == ("freshness",)
