"""Taking up what a project's files say while it is maintained.

The maintaining thread asks between two batches whether a reload is due. Files that have changed
and come to rest are read then. What is wrong with `viewkeeper.yml` is said, and everything stays
as it is; a file that is only refused is noted, and nothing else is disturbed. For everything else
the session of the maintainer ends, as at a stop, and the next one begins with the new files, as at
a start: what is right then is right now, under the same lock and with the same Spark.

Loads of other views do not begin from nothing for that. No new ones begin while a reload waits. One
whose finished parts are kept is given some seconds to end, and otherwise goes on from its parts;
one that would be lost is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.reload.project_difference import (
    ProjectDifference,
    ReloadOutcome,
    changed_keys,
    compare_texts,
    keep_fixed,
    restart_changes,
)
from viewkeeper.engine.reload.project_watch import ProjectWatch
from viewkeeper.engine.reload.reload_desk import ReloadDesk, ReloadRequest
from viewkeeper.engine.report import Observer, StateChange
from viewkeeper.engine.settings.project_file import Settings, read_settings
from viewkeeper.engine.views.view_catalogue import ViewCatalogue, read_views
from viewkeeper.engine.views.view_files import FOLDER
from viewkeeper.errors import ViewkeeperError

LOAD_SECONDS = 10.0
"""For so long a reload waits for loads that could go on from their parts."""


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """A project as its files say it: the settings, and the views."""

    settings: Settings
    catalogue: ViewCatalogue


class ReloadedProject(Protocol):
    """A project whose files are taken up."""

    @property
    def files(self) -> ProjectFiles:
        """The files that it was opened by, or has taken up since."""
        ...

    def use_files(self, files: ProjectFiles) -> None:
        """Go by these files from now on."""
        ...


@dataclass(frozen=True, slots=True)
class _NextFiles:
    """Files that are to be taken up, and by what they differ."""

    files: ProjectFiles
    difference: ProjectDifference
    since: float
    read: Settings
    """The settings as the file has them."""


class ProjectReload:
    """The reloads of one run; all but its desk is used by the thread that maintains."""

    def __init__(
        self,
        project: ReloadedProject,
        adjust: Callable[[Settings], Settings],
        observer: Observer,
    ) -> None:
        """`adjust` makes of the file's settings those of this run, as its options ask for."""
        self.desk = ReloadDesk()
        settings = project.files.settings
        self._watch = ProjectWatch(settings.project_file, settings.folder / FOLDER)
        self._project = project
        self._adjust = adjust
        self._observer = observer
        self._requests: list[ReloadRequest] = []
        self._next: _NextFiles | None = None
        self._before: ProjectFiles | None = None
        self._said_restart: tuple[str, ...] = ()
        self._at_start = self._known = self._read_first(settings)
        """The settings as the file had them at the start, and when they were last taken: a program
        may have given others, which stay until the file changes."""

    def _read_first(self, settings: Settings) -> Settings:
        try:
            return self._adjust(read_settings(settings.project_file))
        except ViewkeeperError:
            return settings

    def is_due(self, maintainer: Maintainer) -> bool:
        """Whether the session should end now, so that the next one begins with other files."""
        asked = self.desk.take_requests()
        self._requests += asked
        if asked or self._watch.has_come_to_rest():
            self._read_files(maintainer)
        if self._next is None:
            maintainer.loader.hold_back(False)
            return False
        reason = self._waits_for(maintainer, self._next)
        maintainer.loader.hold_back(reason is not None)
        if reason is not None:
            self.desk.say_waiting(reason)
        return reason is None

    @property
    def is_pending(self) -> bool:
        """Whether there are files that the next session takes."""
        return self._next is not None

    def take_up(self) -> None:
        """Go by the files that were read."""
        assert self._next is not None, "whoever takes files up knows that there are some"
        self._before = self._project.files
        self._project.use_files(self._next.files)

    def note_start(self, maintainer: Maintainer) -> None:
        """A session has begun: say what became of each view, if it is for other files."""
        if self._next is None:
            return
        found, self._next, self._before = self._next, None, None
        outcome = ReloadOutcome(found.difference, maintainer.choices.refused_views())
        for change in outcome.state_changes():
            self._observer.on_state_change(change)
        self._said_restart, self._known = found.difference.needs_restart, found.read
        self._answer(outcome)

    def take_back(self, error: ViewkeeperError) -> bool:
        """The files could not be taken up after all: go by those from before; whether there are
        some."""
        if self._before is None:
            return False
        self._project.use_files(self._before)
        self._next, self._before = None, None
        self._refuse(error)
        return True

    def _read_files(self, maintainer: Maintainer) -> None:
        """Read the files, and find out whether the session has to end for them."""
        self._watch.take_files()
        before, self._next = self._project.files, None
        settings, fixed = before.settings, tuple[str, ...]()
        try:
            read = self._adjust(read_settings(before.settings.project_file))
            if read != self._at_start or read != self._known:
                settings, fixed = keep_fixed(before.settings, read)
            catalogue = read_views(settings, maintainer.store.head, may_be_empty=True)
        except (ViewkeeperError, OSError) as error:
            self._refuse(error)
            return
        keys = changed_keys(before.settings, settings)
        was, written = before.catalogue.written, catalogue.written
        found = compare_texts(was.file_texts, written.file_texts)
        found = replace(found, settings=keys, needs_restart=fixed)
        unbound = maintainer.choices.refused_views().keys() - written.refused.keys()
        retried = bool(self._requests and unbound)
        if keys or retried or not written.has_same_views(was):
            files = ProjectFiles(settings, catalogue)
            self._next = _NextFiles(files, found, time.monotonic(), read)
        else:
            self._known = read
            self._note_refused(maintainer, catalogue, found)

    def _note_refused(
        self, maintainer: Maintainer, catalogue: ViewCatalogue, found: ProjectDifference
    ) -> None:
        """Nothing is to be maintained otherwise: only what is refused may be other files."""
        self._project.files.catalogue.written.take_refused(catalogue.written)
        maintainer.states.compare_refused()
        for change in restart_changes(found) if found.needs_restart != self._said_restart else ():
            self._observer.on_state_change(change)
        self._said_restart = found.needs_restart
        self._answer(ReloadOutcome(found, maintainer.choices.refused_views()))

    def _waits_for(self, maintainer: Maintainer, found: _NextFiles) -> str | None:
        """The load that a reload waits for, in words."""
        concerned = found.difference.concerned
        is_late = time.monotonic() - found.since > LOAD_SECONDS
        lasting = maintainer.loader.lasting_names if is_late else maintainer.loader.names
        waits = sorted(lasting - concerned)
        return f'the load of view "{waits[0]}"' if waits else None

    def _refuse(self, error: Exception) -> None:
        """What was read cannot be taken up: say so, once for each change of the files."""
        message = getattr(error, "message", str(error))
        detail, hint = getattr(error, "detail", None), getattr(error, "hint", None)
        text = f"the project's files are refused, and it goes on as it was: {message}"
        self._observer.on_state_change(
            StateChange("project_refused", text, hint, reason=f"{message}\n{detail or ''}")
        )
        for request in self._requests:
            request.give_answer({"error": message, "detail": detail, "hint": hint})
        self._requests = []

    def _answer(self, outcome: ReloadOutcome) -> None:
        for request in self._requests:
            request.give_answer(outcome.as_answer())
        self._requests = []

    def close(self) -> None:
        """The run ends."""
        self._requests, left = [], self._requests
        self.desk.close(left)
