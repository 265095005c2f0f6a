"""A child's memory of a parent: which warehouse it is, and the reported shapes of its views.

Kept among what the source remembers, in the child's warehouse. A folder that holds another
warehouse now, or one that was restored from a backup and went on from there, is noticed by it: the
ledger then has another transaction, or none, at the ts that was remembered. That is a GapError,
never a silent continuation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from viewkeeper.errors import GapError, reload_hint
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.storage.typed_json import read_typed
from viewkeeper.updates.schema_change import ChangeKind, SchemaChange
from viewkeeper.upstream.parent_project import ParentFiles, ParentProject
from viewkeeper.upstream.view_shapes import ViewShapeHistory, decode_histories, encode_histories
from viewkeeper.warehouse.metadata.plan_files import LedgerEntry

FILE = "parent.json"


@dataclass(frozen=True, slots=True)
class FollowedParent:
    """`transaction` is what the parent's ledger had at `ts`, the last that was acknowledged.

    Per table, its shapes, and the ts from which on each of its states may be asked for. `ended`
    are handles whose table is not there any more, with what was told of that, and where.
    """

    identity: str
    ts: int = 0
    transaction: str = ""
    tables: dict[str, ViewShapeHistory] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    ended: dict[str, tuple[int, SchemaChange]] = field(default_factory=dict)


class ParentMemory:
    """The file; without files it is kept in memory only."""

    def __init__(self, files: StateFiles | None) -> None:
        self._files = files
        self.now: FollowedParent | None = None
        if files is not None:
            self.now = files.read_file(FILE, "parent", _decode_parent)

    def save_parent(self, followed: FollowedParent) -> None:
        if followed == self.now:
            return
        self.now = followed
        if self._files is not None:
            self._files.write_file(FILE, "parent", _encode_parent(followed))

    def forget_parent(self) -> None:
        self.now = None
        if self._files is not None:
            self._files.remove_files([FILE])

    def save_shapes(self, table: str, history: ViewShapeHistory) -> None:
        """Remember the shapes of a table."""
        assert self.now is not None
        self.save_parent(replace(self.now, tables={**self.now.tables, table: history}))


def transaction_text(entries: Iterable[LedgerEntry]) -> str:
    """What tells the entries of a ts from those of another warehouse's."""
    return "; ".join(f"{e.source} {e.after} {e.until} {e.committed_at!r}" for e in entries)


class ParentContinuity:
    """Whether a parent is still the one that was left, checked whenever its files do not continue
    what was read of them."""

    def __init__(self, parent: ParentProject, files: ParentFiles, memory: ParentMemory) -> None:
        self._parent = parent
        self._files = files
        self._memory = memory
        self._checked = -1

    def is_same(self) -> bool:
        """Whether it is the same warehouse, and has not gone back."""
        known = self._memory.now
        if known is None or known.identity != self._parent.load_identity():
            return False
        here = self._files.entries_between(known.ts - 1, known.ts)
        if known.ts > self._files.last_ts:
            return False
        return not here or not known.transaction or transaction_text(here) == known.transaction

    def check_position(self, after: int) -> None:
        """Refuse to go on from a position in a warehouse that is another one, or went back."""
        if after > self._files.last_ts:
            raise self._gap_error(
                f"it ends at ts {self._files.last_ts}; this project has taken {after}"
            )
        if self._files.readings != self._checked:
            if self._memory.now is not None and not self.is_same():
                raise self._gap_error("its ledger has another history")
            self._checked = self._files.readings

    def _gap_error(self, detail: str) -> GapError:
        return GapError(
            self._parent.name,
            f"the warehouse in {self._parent.root} is not the one that was left",
            detail=f"{detail}: it is a new one, or restored from a backup",
            hint=reload_hint(),
        )


def _encode_parent(followed: FollowedParent) -> dict[str, object]:
    ended = {
        handle: [position, change.kind] for handle, (position, change) in followed.ended.items()
    }
    return {
        "identity": followed.identity,
        "ts": followed.ts,
        "transaction": followed.transaction,
        "tables": encode_histories(followed.tables),
        "since": followed.since,
        "ended": ended,
    }


def _decode_parent(body: Any) -> FollowedParent:
    told = read_typed(dict[str, tuple[int, ChangeKind]], body["ended"])
    ended = {h: (at, SchemaChange(kind, h)) for h, (at, kind) in told.items()}
    plain = read_typed(FollowedParent, {**body, "tables": {}, "ended": {}})
    return replace(plain, tables=decode_histories(body["tables"]), ended=ended)
