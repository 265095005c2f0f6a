"""What a warehouse says about the groups it has been in: a small file that its children read.

A warehouse in a group takes transactions in the order of the group's registry, and its ledger has
the number of each. When it moves to another group numbers begin anew, so a *span* of the ledger
belongs to each group. The newest span also says up to which number everything is in the ledger,
because ids that do not concern the warehouse leave no entry.

The file may lag behind the ledger, never run ahead of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from viewkeeper.storage.sealed_json import translate_decode_errors, unseal_file, write_sealed
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.typed_json import read_typed

FILE = "coordination.json"
_MEND = "remove the file; the next run in the group writes it"
SPANS, SPANS_MAX = 100, 2_000
"""As many spans are kept in any case, and as many at most for a child that is behind; one that is
further behind is told so, and loads its views again."""


@dataclass(frozen=True, slots=True)
class GroupSpan:
    """The part of the ledger that was taken in the order of one group.

    `identity` is that of the group, made by its registry. Entries with `since` < ts have its
    numbers, until the next span begins. All that is ordered up to number `n` is in the ledger up to
    `ts`. While the warehouse is `alone` in its group nothing is numbered. Groups that were `opened`
    later have greater numbers; 0 is not known.
    """

    group: str
    identity: str
    since: int
    n: int
    ts: int
    alone: bool = False
    opened: int = 0


@dataclass(frozen=True, slots=True)
class Coordination:
    """How the warehouse is called among the members, and its spans in the order of time."""

    member: str
    spans: tuple[GroupSpan, ...] = ()

    def span_of(self, identity: str) -> tuple[GroupSpan, int | None] | None:
        """The span in a group, and the ts where it ended; None there if it is the newest."""
        for at, span in enumerate(self.spans):
            if span.identity == identity:
                after = self.spans[at + 1 :]
                return span, after[0].since if after else None
        return None

    def has_forgotten(self, identity: str, opened: int) -> bool:
        """Whether the warehouse is beyond a group, and does not say any more what it took there."""
        known = self.span_of(identity) is not None
        return not known and bool(self.spans) and self.spans[-1].opened > opened


def needed_spans(spans: Sequence[GroupSpan], ts: int | None) -> tuple[GroupSpan, ...]:
    """The spans to keep: those that a child which has taken everything up to a ts may be in, and
    the newest; None if there is no child."""
    ends = [span.since for span in spans[1:]]
    first = next((at for at, end in enumerate(ends) if ts is not None and end >= ts), len(spans))
    return tuple(spans[max(0, min(first, len(spans) - SPANS), len(spans) - SPANS_MAX) :])


def read_coordination(root: StoragePath) -> Coordination | None:
    """What the warehouse says; None if it never was in a group."""
    path = root / FILE
    try:
        body = unseal_file(path, "coordination", _MEND)
    except FileNotFoundError:
        return None
    with translate_decode_errors(path, "coordination", _MEND):
        return read_typed(Coordination, body)


def write_coordination(root: StoragePath, coordination: Coordination) -> None:
    write_sealed(root / FILE, "coordination", asdict(coordination))
