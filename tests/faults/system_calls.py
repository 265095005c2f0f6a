"""System calls of a pass that change something, and how strace makes each of them fail or kill.

The calls of the main thread come in the same order every time, so they are met by number. Those of
other threads do not; but the files that they touch have the same names in every traced pass, so
they are met by path. strace counts for each thread, so the second thread that does the same to a
file cannot be met apart from the first. A recording says what there is to meet.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

KINDS = {
    "write": ("write", "writev"),
    "pwrite": ("pwrite64",),
    "fsync": ("fsync", "fdatasync"),
    "rename": ("rename", "renameat", "renameat2"),
    "link": ("link", "linkat"),
    "unlink": ("unlink", "unlinkat", "rmdir"),
    "mkdir": ("mkdir", "mkdirat"),
    "truncate": ("truncate", "ftruncate", "fallocate"),
}
"""Everything that changes a file system, as far as a pass uses it; opening comes on top."""

_CALL = re.compile(r"(?P<thread>\d+) +(?P<name>\w+)\((?P<arguments>.*)")
_PATH = re.compile(r'[<"](?P<path>/[^">]*)[">]')


@dataclass(frozen=True, slots=True)
class Call:
    """One call to be met: the k-th of its name in the main thread, or in others on its path."""

    name: str
    k: int
    path: str
    is_main: bool

    def arguments(self, harm: str) -> list[str]:
        """What strace needs to do harm (`signal=KILL`, `error=EIO`) at this call."""
        where = [] if self.is_main else ["-f", "-P", self.path]
        filtered = [*where, "-e", f"trace={self.name}"]
        return [*filtered, "-e", f"inject={self.name}:{harm}:when={self.k}"]

    def __str__(self) -> str:
        return f"{self.name} {self.k} ({self.path})"


def recording(log: Path) -> list[str]:
    """What strace needs to record every call that changes something."""
    names = ",".join(name for names in KINDS.values() for name in names)
    return ["-f", "-y", "-s", "0", "-o", str(log), "-e", f"trace={names}"]


def recorded_calls(log: Path, kind: str, project: Path) -> list[Call]:
    """The calls of one kind by which a recorded pass changed something in the project."""
    calls = _calls(log.read_text().splitlines(), str(project))
    found = [*dict.fromkeys(call for call in calls if call.name in KINDS[kind] and call.path)]
    if kind != "write":
        return found
    # Between the first and the last write of a file that nobody sees yet, nothing else happens.
    files: dict[str, list[Call]] = {}
    for call in found:
        files.setdefault(call.path, []).append(call)
    return [call for calls in files.values() for call in dict.fromkeys((calls[0], calls[-1]))]


def _calls(lines: Sequence[str], project: str) -> Iterator[Call]:
    found = [match for line in lines if (match := _CALL.match(line))]
    main = found[0]["thread"]
    mine: Counter[str] = Counter()
    theirs: Counter[tuple[str, str, str]] = Counter()
    for each in found:
        name = each["name"]
        paths = [path for path in _PATH.findall(each["arguments"]) if path.startswith(project)]
        path = paths[0] if paths else ""
        if each["thread"] == main:
            mine[name] += 1
            yield Call(name, mine[name], path, True)
        else:
            theirs[each["thread"], name, path] += 1
            yield Call(name, theirs[each["thread"], name, path], path, False)
