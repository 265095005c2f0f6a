"""`viewkeeper changes-feed`: its lines, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import call
from tests.readers.bank import Bank

PATIENCE = 240.0


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    """A bank whose views are loaded, and one transfer later."""
    bank = Bank(tmp_path)
    bank.refresh()
    bank.transfer(0, 2, 5)
    bank.refresh()
    return bank


def lines_of(bank: Bank, *words: str) -> list[dict[str, Any]]:
    result = call("--project", str(bank.folder), "changes-feed", "evens", *words)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_lines_say_what_changed_and_where_to_go_on(bank: Bank) -> None:
    lines = lines_of(bank)
    assert [line["event"] for line in lines[:2]] == ["reset", "columns"]
    assert lines[1]["columns"] == {"id": "int64", "amount": "int64", "note": "string"}
    ends = [line for line in lines if line["event"] == "end"]
    rest = lines_of(bank, "--since", ends[0]["since"])
    changes = [line for line in rest if line["event"] == "change"]
    assert [(c["count"], c["row"]["id"], c["row"]["amount"]) for c in changes] in (
        [(-1, 0, 0), (-1, 2, 0), (1, 0, -5), (1, 2, 5)],
        [(-1, 2, 0), (-1, 0, 0), (1, 2, 5), (1, 0, -5)],
        [(-1, 0, 0), (-1, 2, 0), (1, 2, 5), (1, 0, -5)],
        [(-1, 2, 0), (-1, 0, 0), (1, 0, -5), (1, 2, 5)],
    )
    assert rest[-1] == ends[-1]


def test_debezium_knows_updates_by_a_key_only(bank: Bank) -> None:
    since = next(line for line in lines_of(bank) if line["event"] == "end")["since"]
    plain = lines_of(bank, "--format", "debezium", "--since", since)
    assert [line["op"] for line in plain[:-1]] == ["d", "d", "c", "c"]
    keyed = lines_of(bank, "--format", "debezium", "--since", since, "--key", "id")
    assert [line["op"] for line in keyed[:-1]] == ["u", "u"]
    for line in keyed[:-1]:
        assert line["before"]["id"] == line["after"]["id"]
        assert line["source"]["table"] == "evens"
        assert line["transaction"]["id"] == keyed[-1]["id"]
    assert keyed[-1]["status"] == "END"
    assert keyed[-1]["event_count"] == 2
    first = lines_of(bank, "--format", "debezium")
    assert [line.get("op") for line in first[:7]] == ["t", "r", "r", "r", "r", "r", None]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["evens", "--key", "id"], "--key needs --format debezium"),
        (["evens", "--since", "x"], "no place in a feed"),
        (["evens", "--since", "999"], "begin again from 0"),
        (["evans"], "views in the warehouse: evens, odds"),
        (["evens", "--format", "debezium", "--key", "no"], "columns: id, amount, note"),
    ],
)
def test_what_cannot_be_is_refused(bank: Bank, words: Sequence[str], said: str) -> None:
    result = call("--project", str(bank.folder), "changes-feed", *words)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


@contextmanager
def following(bank: Bank, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A feed in a process of its own, which is gone when the block ends."""
    command = [
        sys.executable,
        "-m",
        "viewkeeper.cli.main",
        "changes-feed",
        "evens",
        "--follow",
        *words,
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=bank.folder, stdout=pipe, stderr=pipe, text=True) as feed:
        try:
            yield feed
        finally:
            feed.kill()


def read_until_end(feed: subprocess.Popen[str]) -> list[dict[str, Any]]:
    assert feed.stdout is not None
    lines: list[dict[str, Any]] = []
    while not lines or lines[-1]["event"] != "end":
        line = feed.stdout.readline()
        assert line, feed.stderr and feed.stderr.read()
        lines.append(json.loads(line))
    return lines


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_without_a_word(bank: Bank, by: signal.Signals) -> None:
    with following(bank) as feed:
        read_until_end(feed)
        feed.send_signal(by)
        _, said = feed.communicate(timeout=PATIENCE)
        assert (feed.returncode, said) == (0, "")


def test_a_closed_pipe_ends_it_although_nothing_is_written(bank: Bank) -> None:
    with following(bank) as feed:
        read_until_end(feed)
        assert feed.stdout is not None
        assert feed.stderr is not None
        feed.stdout.close()
        assert (feed.stderr.read(), feed.wait(PATIENCE)) == ("", 141)


class FeedReader:
    """Somebody who sums up the lines of a feed, and says what must not be."""

    def __init__(self) -> None:
        self.state = Counter[tuple[Any, ...]]()
        self.changes = self.resets = 0
        self._ended = -1

    def take_lines(self, lines: Sequence[dict[str, Any]]) -> None:
        for line in lines:
            match line["event"]:
                case "reset":
                    self.state, self._ended = Counter(), -1
                    self.resets += 1
                case "change":
                    assert line["ts"] > self._ended
                    self.state[tuple(line["row"].values())] += line["count"]
                    self.changes += 1
                case "end":
                    assert set(self.state.values()) <= {0, 1}
                    self._ended = line["ts"]


@contextmanager
def maintaining(bank: Bank, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A maintainer that is killed at the end of the block."""
    command = [sys.executable, "-m", "viewkeeper.cli.main", "run", "--quiet", *words]
    with subprocess.Popen(command, cwd=bank.folder) as maintainer:
        try:
            yield maintainer
        finally:
            maintainer.kill()


def test_it_follows_a_maintainer_that_is_killed_and_a_view_that_is_loaded_again(
    tmp_path: Path,
) -> None:
    bank, reader = Bank(tmp_path), FeedReader()
    bank.refresh()
    with following(bank) as feed:
        with bank.writing(seed=1):
            for words, resets in (((), 1), ((), 1), (("--full-refresh", "evens"), 2)):
                wanted, deadline = reader.changes + 20, time.monotonic() + PATIENCE
                with maintaining(bank, *words):
                    while reader.changes < wanted or reader.resets < resets:
                        assert time.monotonic() < deadline
                        reader.take_lines(read_until_end(feed))
        bank.refresh()
        newest = bank.state_of("evens")
        while +reader.state != newest:
            reader.take_lines(read_until_end(feed))
    assert reader.resets == 2
