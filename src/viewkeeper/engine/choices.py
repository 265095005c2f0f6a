"""The views of a project with their algorithms, fixed for one run.

A view is bound and its algorithm chosen as soon as its sources answer. An algorithm or SQL that is
refused is an error at once, before anything is dropped; a source that is away only delays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from viewkeeper.engine.algorithms import Choice, choose
from viewkeeper.engine.binding import Binding
from viewkeeper.engine.catalogue import ViewCatalogue
from viewkeeper.engine.connections import Connections
from viewkeeper.engine.settings import Settings
from viewkeeper.errors import ProjectError, SchemaError, SourceAwayError
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.warehouse.store import Store


class Choices(Mapping[str, Choice]):
    """The choice of every view that could be bound."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        catalogue: ViewCatalogue,
        connections: Connections,
    ) -> None:
        self._settings = settings
        self._store = store
        self._catalogue = catalogue
        self._connections = connections
        self._made: dict[str, Choice] = {}
        self.again: frozenset[str] = frozenset()
        """Views that are about to be loaded again, so that it does not matter what is stored."""
        self.provisional: set[str] = set()
        """Views that can only be maintained once they have followed a schema change."""

    def __getitem__(self, name: str) -> Choice:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def bind(self) -> None:
        """Bind every view whose sources answer; wrong SQL or tables are an error here."""
        for name in self._catalogue:
            if name not in self._made:
                self._bind(name)

    def _bind(self, name: str) -> None:
        if not self._connections.ready(self._catalogue.sources(name)):
            return
        try:
            view = self._catalogue.bind(name, self._connections)
            try:
                self._put(name, self.choice(name, view))
            except SchemaError:
                if name in self.again or name not in self._store.head.views:
                    raise
                # Its keys went with a schema change that the next look reports.
                kind = self._settings.algorithm_of(name).kind
                self._made[name] = Choice(kind, {}, view, None)
                self._catalogue.stored[name] = view
                self.provisional.add(name)
        except SourceAwayError as error:
            self._connections.mark(error)

    def choice(self, name: str, view: ViewDefinition) -> Choice:
        """The algorithm of a view with this definition; an error if it cannot be."""
        return choose(view, self._settings.algorithm_of(name), self._connections)

    def _put(self, name: str, choice: Choice) -> None:
        """Fix the algorithm of a view; refuse one that its stored rows do not fit."""
        stored = self._store.head.views.get(name)
        if stored is not None and name not in self.again and stored.hidden != choice.hidden:
            raise ProjectError(
                f'view "{name}": {choice.kind.name} stores other columns than those that are there',
                detail="algorithms that delete by key keep the keys of all relations in the view",
                hint=f"the algorithm that it was loaded for, or `--full-refresh {name}`",
            )
        self._made[name] = choice
        self._catalogue.stored[name] = choice.view

    def put(self, name: str, binding: Binding, choice: Choice) -> None:
        """From now on a view is this."""
        self._catalogue.put(name, binding)
        self._catalogue.coming.pop(name, None)
        self.provisional.discard(name)
        self._made[name] = choice
        self._catalogue.stored[name] = choice.view
