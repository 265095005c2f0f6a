"""A database of any kind, as the suite sees it: tables, transactions, and the source over it.

Every kind has an adaptor: it makes tables, commits transactions of row changes, abandons others
half-way, and gives the settings that a project would have. Beside the real database it keeps what
the database must hold: the state after every commit, which everything is compared with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.sources.conformance.changes import Bag, Change, Word, applied
from viewkeeper.sources.kinds import check_settings, open_source
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import Source

NAME = "shop"


class Database(ABC):
    """One database with a writer whose locks have short time limits."""

    kind: str
    # What was committed between two looks is reported as one transaction.
    merges_commits = False
    # As many tables as one source can have.
    tables_max = 10
    enforces_keys = True
    has_indexes = True
    # The module that holds the limit of one look, where several transactions can be reported.
    limited: str | None = None
    # What must be found nowhere: in no description, error or pickle.
    secrets: Sequence[str] = ()
    # Whether only what is acknowledged is kept by the project's own rules, and given up then.
    trims = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.columns: dict[str, dict[str, Word]] = {}
        self.state: dict[str, Bag] = {}
        self.history: list[Mapping[str, Bag]] = []
        self._sources: list[Source] = []

    def table(
        self,
        name: str,
        columns: Mapping[str, Word],
        key: Sequence[str] = (),
        indexes: Sequence[Sequence[str]] = (),
    ) -> None:
        """Make a table, with a key and indexes where the kind has such."""
        self.columns[name] = dict(columns)
        self.state[name] = Counter()
        self._create(name, columns, key, indexes)

    def commit(self, *changes: Change) -> None:
        """One transaction."""
        self.state = applied(self.state, changes)
        self._write(changes)
        self.history.append(self.state)

    @abstractmethod
    def _create(
        self,
        name: str,
        columns: Mapping[str, Word],
        key: Sequence[str],
        indexes: Sequence[Sequence[str]],
    ) -> None: ...

    @abstractmethod
    def _write(self, changes: Sequence[Change]) -> None: ...

    @abstractmethod
    def abandon(self, *changes: Change) -> None:
        """A transaction that is written and then not committed."""

    @abstractmethod
    def options(self) -> dict[str, object]:
        """The source's entry in a project file, without its kind."""

    @abstractmethod
    def absent(self) -> dict[str, object]:
        """The same for a database that is not there."""

    def leftovers(self) -> Sequence[str]:
        """What of ours is in the database now."""
        return ()

    def settings(
        self, options: Mapping[str, object] | None = None, home: str = "home"
    ) -> SourceSettings:
        chosen = self.options() if options is None else options
        where = str(self.folder / home)
        settings = SourceSettings(NAME, self.kind, chosen, str(self.folder), where)
        check_settings(settings)
        return settings

    def source(self, options: Mapping[str, object] | None = None, home: str = "home") -> Source:
        """The source as a project opens it; all of one home are the same reader."""
        source = open_source(self.settings(options, home), f"conformance-{home}")
        self._sources.append(source)
        return source

    def followed(self) -> dict[str, list[str]]:
        """All columns of all tables."""
        return {table: list(columns) for table, columns in self.columns.items()}

    def close(self) -> None:
        for source in self._sources:
            source.close()
