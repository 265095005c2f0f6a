"""What the project's files, as they are now, would change in the warehouse; nothing is touched.

`viewkeeper run` and `viewkeeper reload` do what is planned here: views that are new are loaded,
edited SQL that shows the same rows is taken as it is, other edits wait for a full refresh, views
without a file are dropped, and what is wrong is refused. For what is to be loaded it says about how
much is read of each table, as far as the sources can tell without reading, and what they must still
grant, which is what `doctor` would say of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from viewkeeper.engine.connections.open_sources import Connections, tables_by_source
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.views.algorithm_choice import choose_algorithm, refuse_dependent
from viewkeeper.engine.views.edited_sql import find_same_meaning
from viewkeeper.engine.views.view_catalogue import ViewCatalogue
from viewkeeper.engine.views.written_views import edit_refusal
from viewkeeper.errors import SourceAwayError, ViewkeeperError
from viewkeeper.updates.source_protocol import Finding
from viewkeeper.view.definition import Relation, ViewDefinition
from viewkeeper.warehouse.metadata.head import Head, ViewHead

Fate = Literal["added", "edited", "dropped", "refused", "unchanged"]
Work = Literal["load", "adapt", "full refresh", "drop", "wait", "none"]


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """A table that a load reads, and about how large it is; `source` is empty for a view."""

    source: str
    table: str
    rows: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class PlannedView:
    """A view, what its file says of it, and what is done for that.

    `load`: all its rows are computed. `adapt`: the new SQL is taken, and its rows stay as they are.
    `full refresh`: other rows are needed, which somebody has to ask for; until then it goes on by
    its stored SQL. `wait`: a source is away that has to say what its SQL means.
    """

    name: str
    fate: Fate
    work: Work = "none"
    reads: tuple[PlannedRead, ...] = ()
    rows: int | None = None
    """The rows that are stored of it."""
    reason: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class SourceNeed:
    """What a source must still grant, or warns of, for the tables that are to be read of it."""

    source: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class ProjectPlan:
    """Everything that the files would change."""

    views: tuple[PlannedView, ...]
    needs: tuple[SourceNeed, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do, and nothing is refused."""
        return all(view.fate == "unchanged" for view in self.views)


def plan_project(
    settings: Settings, catalogue: ViewCatalogue, head: Head, connections: Connections
) -> ProjectPlan:
    """Compare the files of a project with its warehouse."""
    planner = _Planner(settings, catalogue, head, connections)
    views = [planner.plan_view(name) for name in catalogue]
    views += [
        _refused_view(name, each.error, head.views.get(name))
        for name, each in catalogue.written.refused.items()
        if name not in catalogue
    ]
    views += [
        PlannedView(name, "dropped", "drop", rows=stored.rows)
        for name, stored in head.shown_views.items()
        if catalogue.written.is_dropped(name)
    ]
    needs = tuple(planner.list_needs())
    return ProjectPlan(tuple(sorted(views, key=lambda view: view.name)), needs)


def _refused_view(name: str, error: ViewkeeperError, stored: ViewHead | None) -> PlannedView:
    reason = error.message if error.detail is None else f"{error.message}: {error.detail}"
    rows = None if stored is None else stored.rows
    return PlannedView(name, "refused", rows=rows, reason=reason, hint=error.hint)


class _Planner:
    """Finds out what is to be done for views, and remembers what is to be read for that."""

    def __init__(
        self, settings: Settings, catalogue: ViewCatalogue, head: Head, connections: Connections
    ) -> None:
        self._settings = settings
        self._catalogue = catalogue
        self._head = head
        self._connections = connections
        self._read: list[ViewDefinition] = []

    def plan_view(self, name: str) -> PlannedView:
        stored = self._head.shown_views.get(name)
        if name in self._catalogue.written.refused:
            return _refused_view(name, self._catalogue.written.refused[name].error, stored)
        is_same = stored is not None and self._catalogue.text_of(name) == stored.definition
        if stored is not None and is_same:
            return PlannedView(name, "unchanged", rows=stored.rows)
        try:
            planned = self._plan_written(name, stored)
        except SourceAwayError as error:
            fate: Fate = "added" if stored is None else "edited"
            return PlannedView(name, fate, "wait", reason=error.message, hint=error.hint)
        except ViewkeeperError as error:
            return _refused_view(name, error, stored)
        return planned if stored is None else replace(planned, rows=stored.rows)

    def _plan_written(self, name: str, stored: ViewHead | None) -> PlannedView:
        """A view as its file has it, which is not stored so."""
        if stored is not None and find_same_meaning(self._catalogue, self._connections, stored):
            reason = "its new SQL shows the same rows"
            return PlannedView(name, "edited", "adapt", reason=reason)
        view = (
            self._catalogue.bind_view(name, self._connections)
            if stored is None
            else self._catalogue.as_written(name, self._connections).view
        )
        refuse_dependent(view, self._settings, self._connections)
        choose_algorithm(view, self._settings.algorithm_of(name), self._connections)
        self._read.append(view)
        reads = tuple(self._planned_read(relation) for relation in view.relations)
        if stored is None:
            return PlannedView(name, "added", "load", reads)
        refusal = edit_refusal(name)
        return PlannedView(
            name, "edited", "full refresh", reads, reason=refusal.message, hint=refusal.hint
        )

    def _planned_read(self, relation: Relation) -> PlannedRead:
        if relation.is_own:
            stored = self._head.views.get(relation.table)
            return PlannedRead("", relation.table, None if stored is None else stored.rows, None)
        source = self._connections.get_source(relation.source)
        table = source.describe_table(relation.table).names.table
        size = source.estimate_size(table)
        return PlannedRead(relation.source, table, size.rows, size.bytes)

    def list_needs(self) -> Iterable[SourceNeed]:
        """What sources must grant for what is to be loaded."""
        for name, tables in tables_by_source(self._read).items():
            try:
                found = self._connections.get_source(name).diagnose_source(tables)
            except ViewkeeperError as error:
                found = [Finding("reachable", "bad", error.message, error.hint)]
            wrong = tuple(finding for finding in found if finding.state != "good")
            if wrong:
                yield SourceNeed(name, wrong)
