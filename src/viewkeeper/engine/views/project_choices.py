"""The views of a project with their algorithms, fixed for one run.

A view is bound and its algorithm chosen as soon as its sources answer. An algorithm or SQL that is
refused is an error at once, before anything is dropped; a source that is away only delays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.views.algorithm_choice import (
    AlgorithmChoice,
    check_in_group,
    choose_algorithm,
)
from viewkeeper.engine.views.shared_bases import refuse_dependent
from viewkeeper.engine.views.view_binding import Binding
from viewkeeper.engine.views.view_catalogue import ViewCatalogue
from viewkeeper.errors import (
    DamagedSourceError,
    ProjectError,
    SchemaError,
    SourceAwayError,
    UnexpectedSourceError,
)
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.warehouse.store import Store


class AlgorithmChoices(Mapping[str, AlgorithmChoice]):
    """The choice of every view that could be bound."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        catalogue: ViewCatalogue,
        connections: Connections,
    ) -> None:
        self.settings = settings
        self.store = store
        self.catalogue = catalogue
        self.connections = connections
        self._made: dict[str, AlgorithmChoice] = {}
        self.again: frozenset[str] = frozenset()
        """Views that are about to be loaded again, so that it does not matter what is stored."""
        self.provisional: set[str] = set()
        """Views that can only be maintained once they have followed a schema change."""

    def __getitem__(self, name: str) -> AlgorithmChoice:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def bind_views(self) -> None:
        """Bind every view whose sources answer; wrong SQL or tables are an error here."""
        for name in self.catalogue:
            if name not in self._made:
                self._bind_view(name)

    def _bind_view(self, name: str) -> None:
        sources = self.catalogue.sources_of(name)
        self.connections.greet_sources(sources)
        if not self.connections.can_ask(sources):
            return
        try:
            view = self.catalogue.bind_view(name, self.connections)
            try:
                self._fix_choice(name, self.choice_of(name, view))
            except SchemaError:
                if name in self.again or name not in self.store.head.views:
                    raise
                # Its keys went with a schema change that the next look reports.
                kind = self.settings.algorithm_of(name).kind
                self._made[name] = AlgorithmChoice(kind, {}, view, None)
                self.catalogue.stored[name] = view
                self.provisional.add(name)
        except (SourceAwayError, DamagedSourceError, UnexpectedSourceError) as error:
            self.connections.note_error(error)

    def choice_of(self, name: str, view: ViewDefinition) -> AlgorithmChoice:
        """The algorithm of a view with this definition; an error if it cannot be."""
        refuse_dependent(view, self.settings, self.connections)
        if self.settings.registry is not None:
            check_in_group(name, self.settings.algorithm_of(name).kind)
        return choose_algorithm(view, self.settings.algorithm_of(name), self.connections)

    def _fix_choice(self, name: str, choice: AlgorithmChoice) -> None:
        """Fix the algorithm of a view; refuse one that its stored rows do not fit."""
        stored = self.store.head.views.get(name)
        if stored is not None and name not in self.again and stored.hidden != choice.hidden_columns:
            if stored.hidden and choice.hidden_columns:
                # All algorithms that store keys store the same ones: the tables have others now.
                self.provisional.add(name)
                self._made[name] = choice
                self.catalogue.stored[name] = choice.view
                return
            raise ProjectError(
                f'view "{name}": {choice.kind.name} stores other columns than those that are there',
                detail="algorithms that delete by key keep the keys of all relations in the view",
                hint=f"the algorithm that it was loaded for, or `--full-refresh {name}`",
            )
        self._made[name] = choice
        self.catalogue.stored[name] = choice.view

    def replace_choice(self, name: str, binding: Binding, choice: AlgorithmChoice) -> None:
        """From now on a view is this."""
        self.catalogue.put_binding(name, binding)
        self.catalogue.coming.pop(name, None)
        self.provisional.discard(name)
        self._made[name] = choice
        self.catalogue.stored[name] = choice.view
