"""The server of single passes, as the campaigns use it (`tests.faults.single_pass`)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.shop import ROOT

LIMIT_SECONDS = 600.0
"""A pass that takes longer hangs; for how long it is stopped does not count."""

JOURNAL, TABLES = "journal", "tables"
"""How passes commit: small commits in the journal, or every one with its tables."""

PATIENCE_SECONDS = 86_400.0
"""A pass waits for its sources so long: a campaign stops it many times in one look."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a pass ended: 0, 2 for an error of ours, 1 for a traceback, 124 for a hang."""

    code: int
    said: str
    met: bool


@dataclass(frozen=True, slots=True)
class Outlived:
    """How a pass ended that was stopped while others went on: what they met, and their records."""

    ended: Ended
    shut_out: Ended
    second: Ended
    record: int


class Passes:
    """Asks the server."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self._server = server

    def run(self, project: Path, trace: Sequence[str] = ()) -> Ended:
        """One pass, perhaps under strace with these arguments."""
        return _ended(self._ask("pass", project, trace))

    def settle(self, project: Path) -> int:
        """Judge, go on, judge again; the newest record then."""
        ended = _ended(self._ask("settle", project))
        assert ended.code == 0, ended.said
        return int(ended.said.split()[0])

    def outlive(self, project: Path, trace: Sequence[str]) -> Outlived | None:
        """A pass that is stopped at a call, others, and its waking; None if nothing stopped it."""
        answer = self._ask("outlive", project, trace)
        if not answer["met"]:
            return None
        others = _ended(answer["shut_out"]), _ended(answer["second"])
        return Outlived(_ended(answer), *others, answer["after"])

    def cut(self, project: Path, trace: Sequence[str], image: Path) -> tuple[int, list[str]]:
        """A pass, with power cuts wherever strace stops it: how many, and what went wrong."""
        answer = self._ask("cut", project, trace, str(image))
        assert answer["code"] == 0, answer["said"]
        return answer["cuts"], answer["failures"]

    def _ask(
        self, work: str, project: Path, trace: Sequence[str] = (), image: str = ""
    ) -> dict[str, Any]:
        asked = {"work": work, "project": str(project), "trace": [*trace], "image": image}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(asked), file=self._server.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer


def _ended(answer: dict[str, Any]) -> Ended:
    return Ended(answer["code"], answer["said"], answer["met"])


@contextmanager
def pass_server(way: str) -> Iterator[Passes]:
    """A server for as long as the block lasts."""
    command = [sys.executable, "-m", "tests.faults.single_pass", way]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            yield Passes(server)
        finally:
            assert server.stdin is not None
            server.stdin.close()
            server.wait(LIMIT_SECONDS)
