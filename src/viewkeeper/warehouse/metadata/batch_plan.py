"""The durable plan of a batch, and the ledger that all plans make together.

A plan is written before any work: it names the transactions that got their ts in this batch. After
a crash the same plan is replayed with new snapshots; forming the batch again would give the same ts
to other transactions, and a view that had committed the first cut would lose rows for good.

The *ledger* is the list of all entries in ts order. It says which source position a ts stands for.
What no view can be asked about any more is dropped, except the last entry of each source, which
says where that source stands.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from viewkeeper.errors import reload_hint
from viewkeeper.storage.sealed_json import Body, seal_body, translate_decode_errors, unseal_file
from viewkeeper.storage.typed_json import Readers, read_typed
from viewkeeper.updates.schema_change import SchemaChange

_MEND = (
    f"restore the file from a backup; without one, drop the views, then {reload_hint()}: "
    "what the plan assigned cannot be guessed"
)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One transaction: that of `source` with `after` < position <= `until`.

    A global transaction has one ts and an entry per source. `changes` is its number of row changes.
    Of the tables `emptied`, and of some keys of the tables `keyed`, rows went without being listed.
    `reshaped` are its schema changes. `n` is its number in the order of the warehouse's group, 0
    where no registry orders; where several ids became one transaction it is that of the last, and
    `first` that of the first of them. A `gap` is no transaction: what the source committed there is
    lost, and no view gets over it but by its difference from what the source shows later.
    """

    ts: int
    source: str
    after: int
    until: int
    committed_at: float
    changes: int
    emptied: tuple[str, ...] = ()
    keyed: tuple[str, ...] = ()
    reshaped: tuple[SchemaChange, ...] = ()
    n: int = 0
    first: int = 0
    gap: bool = False


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Batch n: what got its ts here, and which views go from which ts to which."""

    n: int
    entries: tuple[LedgerEntry, ...]
    views: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stamps = [entry.ts for entry in self.entries]
        assert stamps == sorted(stamps), "entries of a plan are in ts order"
        assert all(entry.after < entry.until for entry in self.entries)


def encode_plan(plan: BatchPlan) -> bytes:
    entries = [_encode_entry(entry) for entry in plan.entries]
    views = {view: list(span) for view, span in plan.views.items()}
    return seal_body("plan", {"n": plan.n, "entries": entries, "views": views})


def _encode_entry(entry: LedgerEntry) -> list[object]:
    e = entry
    plain: list[object] = [e.ts, e.source, e.after, e.until, e.committed_at, e.changes]
    if not (e.emptied or e.keyed or e.reshaped or e.n or e.gap):
        return plain
    reshaped = [astuple(change) for change in e.reshaped]
    numbers = [e.n, e.first] if e.n or e.gap else []
    gap = [True] if e.gap else []
    return [*plain, list(e.emptied), list(e.keyed), reshaped, *numbers, *gap]


def _decode_entry(facts: Sequence[Any]) -> LedgerEntry:
    names = [field.name for field in fields(LedgerEntry)]
    if len(facts) > len(names):
        raise ValueError("an entry has too many facts")
    return read_typed(LedgerEntry, dict(zip(names, facts, strict=False)), _READERS)


def _decode_change(facts: Any) -> SchemaChange:
    names = [field.name for field in fields(SchemaChange)]
    return read_typed(SchemaChange, dict(zip(names, facts, strict=False)))


_READERS: Readers = {SchemaChange: _decode_change}


def read_plan(path: Path) -> BatchPlan:
    """The plan in a file; CorruptError if it cannot be believed."""
    body: Body = unseal_file(path, "plan", _MEND)
    with translate_decode_errors(path, "plan", _MEND):
        entries = tuple(_decode_entry(entry) for entry in body.pop("entries"))
        plan = replace(read_typed(BatchPlan, {**body, "entries": []}), entries=entries)
        if path.stem.isdigit() and int(path.stem) != plan.n:
            raise ValueError(f"it is plan {plan.n}")
        return plan


class Ledger:
    """All entries that are still kept, in ts order; grows by plans."""

    def __init__(self, entries: Iterable[LedgerEntry] = ()) -> None:
        self._entries: list[LedgerEntry] = []
        self._by_source: dict[str, list[LedgerEntry]] = {}
        self._gaps: list[LedgerEntry] = []
        self.add_entries(entries)

    def add_entries(self, entries: Iterable[LedgerEntry]) -> None:
        for entry in entries:
            assert not self._entries or entry.ts >= self._entries[-1].ts
            # Positions grow, except where a source was lost and is followed anew.
            own = self._by_source.setdefault(entry.source, [])
            self._entries.append(entry)
            own.append(entry)
            if entry.gap:
                self._gaps.append(entry)

    @property
    def entries(self) -> Sequence[LedgerEntry]:
        return self._entries

    @property
    def next_ts(self) -> int:
        """The ts of the next transaction; 1 is the beginning, before the first of them."""
        return self._entries[-1].ts + 1 if self._entries else 2

    def entries_between(self, after: int, until: int) -> Sequence[LedgerEntry]:
        """The entries with `after` < ts <= `until`."""
        first = bisect_right(self._entries, after, key=_ts_of)
        return self._entries[first : bisect_right(self._entries, until, key=_ts_of)]

    def position_at(self, source: str, ts: int) -> int | None:
        """Where a source stood as of a ts; None if no transaction of it was ever seen."""
        own = self._by_source.get(source, [])
        passed = bisect_right(own, ts, key=_ts_of)
        if passed:
            return own[passed - 1].until
        return own[0].after if own else None

    def positions_at(self, sources: Mapping[str, int], ts: int) -> dict[str, int]:
        """Where the sources of a view stood as of a ts.

        `sources` are the view's newest positions; a source of which nothing was ever seen is still
        where the view's initial load found it.
        """
        found = {source: self.position_at(source, ts) for source in sources}
        return {s: sources[s] if at is None else at for s, at in found.items()}

    def gap_after(self, ts: int, sources: Container[str]) -> str | None:
        """The first of these sources of which something after a ts is lost; None if nothing is."""
        lost = (gap.source for gap in self._gaps if gap.ts > ts and gap.source in sources)
        return next(lost, None)

    def entries_since(self, horizon: int) -> list[LedgerEntry]:
        """What must be kept to answer for every ts from the horizon on."""
        last = {own[-1] for own in self._by_source.values()}
        floor = {
            own[at - 1]
            for own in self._by_source.values()
            if (at := bisect_right(own, horizon, key=_ts_of))
        }
        keep = last | floor
        return [entry for entry in self._entries if entry.ts > horizon or entry in keep]


def _ts_of(entry: LedgerEntry) -> int:
    return entry.ts
