"""Ways to open snapshots of the sources of a view, prepared by the driver for its tasks.

A source may have to do something before tasks in other processes can read one state of it
(PostgreSQL exports a snapshot and keeps it). For work on Spark that is done in advance for every
source that may be asked; one that is away then only matters to a task that does ask it. For work in
the driver it is done when a source is first asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.errors import ViewkeeperError
from viewkeeper.updates.source_protocol import Opener, Snapshot, Tables
from viewkeeper.view.definition import ViewDefinition

Openers = Mapping[str, Opener]


@dataclass(frozen=True, slots=True)
class UnavailableOpener:
    """The opener of a source that could not be prepared: its error, raised when it opens."""

    error: ViewkeeperError

    def __call__(self) -> Snapshot:
        raise self.error


class PreparedOpeners(Mapping[str, Opener]):
    """The openers of sources as of positions; each is prepared when first taken."""

    def __init__(
        self,
        stack: ExitStack,
        connections: Connections,
        positions: Mapping[str, int],
        tables: Mapping[str, Tables],
    ) -> None:
        self._stack = stack
        self._connections = connections
        self._positions = positions
        self._tables = tables
        self._ready: dict[str, Opener] = {}

    def __getitem__(self, name: str) -> Opener:
        if name not in self._ready:
            self._ready[name] = self._prepare_opener(name)
        return self._ready[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def _prepare_opener(self, name: str) -> Opener:
        try:
            source = self._connections.get_source(name)
            context = source.prepare_snapshots(self._positions[name], self._tables[name])
            return self._stack.enter_context(context)
        except ViewkeeperError as error:
            return UnavailableOpener(error)


@contextmanager
def prepare_openers(
    connections: Connections,
    positions: Mapping[str, int],
    views: Iterable[ViewDefinition],
    *,
    when_asked: bool = False,
) -> Iterator[Openers]:
    """The openers of all sources of some views, for as long as the context lasts."""
    with ExitStack() as stack:
        preparing = PreparedOpeners(stack, connections, positions, tables_by_source(views))
        yield preparing if when_asked else dict(preparing)


def tables_by_source(views: Iterable[ViewDefinition]) -> dict[str, dict[str, list[str]]]:
    """Per source, the tables that these views read, with the columns that they read of them."""
    found: dict[str, dict[str, list[str]]] = {}
    for view in views:
        for relation in view.relations:
            if relation.is_own:
                continue
            columns = found.setdefault(relation.source, {}).setdefault(relation.table, [])
            columns += [f.name for f in view.fields_of(relation) if f.name not in columns]
    return found
