"""From one accepted state of a folder to the next: when it is time, and when it cannot be.

A state is taken when it is another one than the last and its files are at rest (`listing`). A
state that cannot be taken - a value that does not fit, a key twice, a header that names a column
twice - is remembered with the reason, and not read again before something moves.

A table whose files are not there may be about to be written anew: the source is away then, and only
after some time is the table gone.

A folder whose kept files were damaged can only be *begun anew*: all earlier states go, so whoever
asks about them learns of the gap.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from viewkeeper.errors import ConversionError, GapError, SchemaError, SourceAwayError
from viewkeeper.sources.files.accepted_states import AcceptedState, StateFolder
from viewkeeper.sources.files.acceptor import DIFFER_BYTES, Acceptor, UnsettledError
from viewkeeper.sources.files.bag_difference import MEMORY_BYTES
from viewkeeper.sources.files.settings import FolderSettings
from viewkeeper.sources.files.table_files import Listing, list_gone_table, list_table
from viewkeeper.sources.kinds import Differ
from viewkeeper.updates.source_protocol import Tables

# How long whoever begins to follow waits for files to come to rest.
_PATIENCE_SECONDS = 30.0
# How long the first look of a process may wait for that.
_FIRST_SECONDS = 5.0
# How long a table's files must be missing before the table is gone, and in times of coming to rest.
_GONE_SECONDS = 10.0
_GONE_TIMES = 30

Listings = Mapping[str, Listing]


@dataclass(slots=True)
class StateSequence:
    """The accepted states of one source; used under the source's lock."""

    settings: FolderSettings
    kept: StateFolder
    differ: Differ | None = None
    differ_bytes: int = DIFFER_BYTES
    memory_bytes: int = MEMORY_BYTES
    gone_seconds: float | None = None
    _newest: AcceptedState | None = None
    _missing: dict[str, float] = field(default_factory=dict)
    _has_looked: bool = False
    _resting: tuple[Listings, float] | None = None
    _refused: tuple[Listings, ConversionError | SchemaError] | None = None

    def newest_state(self) -> AcceptedState | None:
        """The newest accepted state; everything that it needs is there."""
        if self._newest is None:
            newest = self.kept.read_newest()
            for table in newest.tables.values() if newest else ():
                for file in table.files.values():
                    if newest and not self.kept.rows.has_copy(file.copy):
                        raise self.kept.gap_error(newest.number, "a kept copy was removed")
            self._newest = newest
        return self._newest

    def recheck_newest(self) -> None:
        """Look again whether everything is there that the newest state needs."""
        self._newest = None

    def forget_memory(self) -> None:
        """Know nothing any more that is not on disk."""
        self._newest = self._resting = self._refused = None

    def advance_state(self, newest: AcceptedState) -> AcceptedState | None:
        """Accept the present state if it is another one and at rest.

        The first time, wait for files that have just been written, so that whoever looks once sees
        them.
        """
        accepted = self._try_accept(newest)
        if accepted is None and self._resting is not None and not self._has_looked:
            time.sleep(min(self.settings.settle_seconds, _FIRST_SECONDS))
            accepted = self._try_accept(newest)
        self._has_looked = True
        return accepted

    def raise_refusal(self) -> None:
        """Say why the present state cannot be accepted, if that is so."""
        if self._refused is None:
            return
        error = self._refused[1]
        if isinstance(error, SchemaError):
            raise error
        reason = error.message.partition(": ")[2]
        raise SourceAwayError(
            self.settings.source,
            f"the present state of its files cannot be accepted: {reason}",
            detail=error.detail,
            hint=f"{error.hint}; the views wait, and go on by themselves",
        ) from error

    def cover_tables(self, tables: Tables) -> AcceptedState:
        """An accepted state that has these columns; what was followed before stays followed."""
        wanted = self.kept.read_followed()
        for table, columns in tables.items():
            wanted[table] = list(dict.fromkeys([*wanted.get(table, ()), *columns]))
        newest = self._current_state()
        if newest is None or (self._refused and isinstance(self._refused[1], SchemaError)):
            wanted = {table: list(columns) for table, columns in tables.items()}
            newest = self._accept_first(wanted)
        elif not all(
            table in newest.tables and set(columns) <= set(newest.tables[table].columns)
            for table, columns in tables.items()
        ):
            newest = self._accept_at_rest(wanted, newest)
        self.kept.write_followed(wanted)
        return newest

    def _current_state(self) -> AcceptedState | None:
        """The newest state, the present one if that can be; None if there is none to go on from."""
        try:
            newest = self.newest_state()
        except GapError:
            return None
        if newest is None:
            return None
        try:
            return self._try_accept(newest) or newest
        except SourceAwayError:
            return newest

    def _accept_first(self, wanted: Tables) -> AcceptedState:
        """Accept the present state as the first one; earlier ones are gone then."""
        self.forget_memory()
        state = self._accept_at_rest(wanted, None)
        self.kept.remove_before(state.number)
        self.kept.remove_unnamed()
        return state

    def _accept_at_rest(self, wanted: Tables, before: AcceptedState | None) -> AcceptedState:
        """Wait until the files rest, then accept them as they are."""
        until = time.monotonic() + max(_PATIENCE_SECONDS, 10 * self.settings.settle_seconds)
        while time.monotonic() < until:
            listings = self._list_tables(wanted)
            time.sleep(self.settings.settle_seconds)
            if self._list_tables(wanted) == listings and not any(
                x.is_open for x in listings.values()
            ):
                try:
                    return self._accept_listings(listings, before)
                except UnsettledError:
                    continue
        raise SourceAwayError(
            self.settings.source,
            "its files do not come to rest",
            detail=f"they were written again and again for {_PATIENCE_SECONDS:.0f} seconds",
            hint="have them written under another name and renamed, or raise settle_seconds",
        )

    def _list_tables(self, tables: Iterable[str]) -> dict[str, Listing]:
        return {table: self._list_one(table) for table in tables}

    def _list_one(self, table: str) -> Listing:
        try:
            listing = list_table(self.settings, table)
        except SourceAwayError:
            known = self._newest.tables.get(table) if self._newest else None
            if (
                not (known and known.gone)
                and self._missing_seconds(table) < self._seconds_until_gone()
            ):
                raise
            return list_gone_table(self.settings)
        self._missing.pop(table, None)
        return listing

    def _missing_seconds(self, table: str) -> float:
        now = time.monotonic()
        return now - self._missing.setdefault(table, now)

    def _seconds_until_gone(self) -> float:
        """How long files may be missing before their table is gone."""
        if self.gone_seconds is not None:
            return self.gone_seconds
        return max(_GONE_SECONDS, _GONE_TIMES * self.settings.settle_seconds)

    def _accept_listings(self, listings: Listings, before: AcceptedState | None) -> AcceptedState:
        acceptor = Acceptor(
            self.settings, self.kept, self.differ, self.differ_bytes, self.memory_bytes
        )
        self._newest = acceptor.accept_state(listings, before)
        self._resting = self._refused = None
        self.kept.write_problem(None)
        return self._newest

    def _try_accept(self, newest: AcceptedState) -> AcceptedState | None:
        listings = self._list_tables(newest.tables)
        if not any(self._is_new(name, listing, newest) for name, listing in listings.items()):
            self._resting = self._refused = None
            return None
        if self._refused is not None and self._refused[0] == listings:
            return None
        if not self._is_at_rest(listings, newest):
            return None
        try:
            return self._accept_listings(listings, newest)
        except UnsettledError:
            self._resting = None
        except (ConversionError, SchemaError) as error:
            self._refused = (listings, error)
            self.kept.write_problem(str(error))
        return None

    def _is_new(self, name: str, listing: Listing, newest: AcceptedState) -> bool:
        return not newest.tables[name].has_same_files(
            listing, self.settings.settings_of(name).fingerprint_text()
        )

    def _is_at_rest(self, listings: Listings, newest: AcceptedState) -> bool:
        """By the word of `_SUCCESS` files, or because nothing has moved for some time."""
        told = {name: x for name, x in listings.items() if x.done_ns is not None}
        for name, listing in told.items():
            again = listing.done_ns != newest.tables[name].done_ns
            if listing.is_open or (self._is_new(name, listing, newest) and not again):
                return False
        if len(told) == len(listings):
            return True
        settle = self.settings.settle_seconds
        touched_ns = max(listing.touched_ns for listing in listings.values())
        if time.time() - touched_ns / 1e9 >= settle:
            return True
        now = time.monotonic()
        if self._resting is None or self._resting[0] != listings:
            self._resting = (listings, now)
        return now - self._resting[1] >= settle
