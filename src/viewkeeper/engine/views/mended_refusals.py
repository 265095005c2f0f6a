"""Views that were refused when they were bound, and are bound again once a source says otherwise.

A table that is not there yet, a column that a migration still has to add, a grant without which
the server hides a table: to binding these are errors like a wrong name, but people mend them at the
source. So the sources of a refused view are asked for its tables again, after 1, 2, 4 ... seconds,
up to a minute; that is a question to a catalogue and starts no Spark. Only if the answer is another
one than that by which the view was refused is it bound again. What is wrong with the text alone is
refused by the same tables forever, and waits for its file to change.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from viewkeeper.engine.report import StateChange
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoices
from viewkeeper.engine.views.bound_view import parse_as_kept, tables_now
from viewkeeper.engine.views.trouble_retries import TroubleRetries
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import (
    DamagedSourceError,
    SourceAwayError,
    SourceError,
    UnexpectedSourceError,
    ViewkeeperError,
)


class MendedRefusals:
    """The refused views of one run; used by its thread."""

    def __init__(
        self,
        workspace: Workspace,
        choices: AlgorithmChoices,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workspace = workspace
        self._choices = choices
        self._retries = TroubleRetries(now)

    def retry_refused(self) -> None:
        """Bind the views again whose time has come, and whose tables are others than before."""
        for name in self._choices.refused:
            self._retries.note_failure(name)
        for name in self._retries.take_due():
            if name in self._choices.refused and self._has_other_tables(name):
                self._choices.bind_refused(name)
                self._say_if_mended(name)

    def _has_other_tables(self, name: str) -> bool:
        """Whether the sources have other tables for a view than those by which it was refused."""
        catalogue, connections = self._workspace.catalogue, self._workspace.connections
        if name not in catalogue:
            return False
        sources = catalogue.sources_of(name)
        connections.greet_sources(sources)
        if not connections.can_ask(sources) or not catalogue.can_bind(name):
            return False
        try:
            parsed = parse_as_kept(catalogue.written.parsed[name], connections, catalogue)
            tables = tables_now(parsed, connections, catalogue)
        except (SourceAwayError, DamagedSourceError, UnexpectedSourceError) as error:
            connections.note_error(error)
            return False
        except ViewkeeperError as error:
            self._choices.refuse_view(name, error)
            return False
        if isinstance(self._choices.refused[name], SourceError):
            return True
        # A view that was not bound by its file is refused for what is stored of it.
        met = catalogue.tables_met.get(name)
        return met is not None and tables != met

    def _say_if_mended(self, name: str) -> None:
        if name in self._choices:
            text = f'view "{name}" is not refused any more'
            change = StateChange("view_resumed", text, view=name)
            self._workspace.observer.on_state_change(change)
