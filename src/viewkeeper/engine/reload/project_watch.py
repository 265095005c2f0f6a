"""Watching the files of a project, cheaply, until a change of them has come to rest.

Twice a second the names, times and sizes of `viewkeeper.yml` and `views/*.sql` are looked at: no
file is opened. A change counts when nothing more has changed for half a second, so that a file
that is being written is not taken by halves; for two seconds where a file has vanished, because
editors and version control put files away for a moment, and a view without a file is dropped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

WATCH_SECONDS = 0.5
"""How often the files are looked at."""

REST_SECONDS = 0.5
VANISHED_SECONDS = 2.0
"""For so long nothing may change before a change is taken: without and with a file that is gone."""

FileFacts = Mapping[str, tuple[int, int, int]]
"""By path: when a file was written, its size and its number on the disk."""


class ProjectWatch:
    """The files of one project; used by one thread."""

    def __init__(
        self, project_file: Path, views: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = project_file
        self._views = views
        self._clock = clock
        self._taken: FileFacts | None = None
        self._seen: FileFacts = {}
        self._seen_at = 0.0
        self._looked_at = -WATCH_SECONDS

    def has_come_to_rest(self) -> bool:
        """Whether the files are others than when they were taken, and nobody writes them now."""
        now = self._clock()
        if now - self._looked_at < WATCH_SECONDS:
            return False
        self._looked_at = now
        seen = self._look()
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        if seen == self._taken:
            return False
        vanished = self._taken is not None and not self._taken.keys() <= seen.keys()
        return now - self._seen_at >= (VANISHED_SECONDS if vanished else REST_SECONDS)

    def take_files(self) -> None:
        """The files are about to be read: what changes from now on is another change."""
        self._taken = self._look()

    def _look(self) -> FileFacts:
        found = {}
        try:
            with os.scandir(self._views) as entries:
                files = [entry.path for entry in entries if entry.name.endswith(".sql")]
        except OSError:
            # That there are no views is said by who reads them.
            files = []
        for path in (str(self._file), *files):
            try:
                facts = os.stat(path)
            except OSError:
                continue
            found[path] = facts.st_mtime_ns, facts.st_size, facts.st_ino
        return found
