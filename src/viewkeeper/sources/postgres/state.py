"""What a project remembers of a PostgreSQL source between two runs.

Which server it was, what is followed, and the newest transaction that was reported: its position,
id and commit time. When a stream is opened, that transaction must come again. If it does not, this
is another server, or one that was restored to an earlier state, and nothing may go on over the gap.

The file is replaced as a whole. It reaches the disk before the slot is advanced; what merely was
reported since may be lost with the power, never with the process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from viewkeeper.sources import disk

FILE = "state.json"


@dataclass(frozen=True, slots=True)
class Known:
    """A transaction that was reported, told apart from any other that may take its position."""

    position: int
    id: int
    committed_us: int


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """A table by its oid; columns with type and modifier; the oids of its partitions."""

    oid: int
    columns: Mapping[str, tuple[int, int]]
    key: tuple[str, ...] = ()
    leaves: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """The whole file. `made_publication` says that the publication is ours to drop."""

    system: str
    timeline: int
    slot: str
    made_publication: bool = False
    newest: Known | None = None
    tables: Mapping[str, FollowedTable] = field(default_factory=dict)


def read_state(home: Path) -> State | None:
    """What was remembered; None if nothing was."""
    try:
        found: dict[str, Any] = json.loads((home / FILE).read_text())
    except FileNotFoundError:
        return None
    newest = Known(**found["newest"]) if found["newest"] else None
    tables = {
        name: FollowedTable(
            table["oid"],
            {column: (kind, modifier) for column, (kind, modifier) in table["columns"].items()},
            tuple(table["key"]),
            tuple(table["leaves"]),
        )
        for name, table in found["tables"].items()
    }
    return State(**{**found, "newest": newest, "tables": tables})


def write_state(home: Path, state: State, durable: bool) -> None:
    disk.replace(home / FILE, json.dumps(asdict(state)).encode(), durable=durable)


def forget_state(home: Path) -> None:
    (home / FILE).unlink(missing_ok=True)
