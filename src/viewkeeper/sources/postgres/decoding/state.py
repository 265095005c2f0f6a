"""What a project remembers of a PostgreSQL source between two runs.

Which server it was, what is followed, and the newest transaction that was reported: its position,
id and commit time. When a stream is opened, that transaction must come again. If it does not, this
is another server, or one that was restored to an earlier state, and nothing may go on over the gap.
The shapes that followed tables had since the last acknowledged position (`shape_steps`) are in a
file of their own, which is seldom written.

The files are replaced as a whole. They reach the disk before the slot is advanced; what merely was
reported since may be lost with the power, never with the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from viewkeeper.sources.state_files import read_state_file, write_state_file
from viewkeeper.storage.typed_json import read_typed

FILE = "state.json"
SHAPES = "shapes.json"
VERSION = 2
"""A state file of another version cannot be continued."""


@dataclass(frozen=True, slots=True)
class KnownTransaction:
    """A transaction that was reported, distinct from any other that may take its position."""

    position: int
    id: int
    committed_us: int


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """A table by its oid; columns and key by their numbers; the oids of its partitions."""

    oid: int
    columns: tuple[int, ...]
    key: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PostgresState:
    """The whole file. `made_publication` says that the publication is ours to drop; up to `floor`
    nothing is asked for any more, even if the server should send it again."""

    system: str
    timeline: int
    slot: str
    made_publication: bool = False
    newest: KnownTransaction | None = None
    tables: Mapping[str, FollowedTable] = field(default_factory=dict)
    floor: int = 0
    version: int = VERSION


def read_state(home: Path) -> PostgresState | None:
    """What was remembered; None if nothing was."""
    return read_state_file(home / FILE, "state", _decode_state)


def _decode_state(stored: Any) -> PostgresState:
    if stored.get("version") != VERSION:
        known = {name: stored[name] for name in ("system", "timeline", "slot")}
        return read_typed(PostgresState, {**known, "version": 0})
    return read_typed(PostgresState, stored)


def write_state(home: Path, state: PostgresState, durable: bool) -> None:
    write_state_file(home / FILE, "state", asdict(state), durable=durable)


def read_steps(home: Path) -> list[list[dict[str, Any]]]:
    """The steps that were remembered, per table."""
    return read_state_file(home / SHAPES, "shapes", _decode_steps) or []


def _decode_steps(stored: Any) -> list[list[dict[str, Any]]]:
    return read_typed(list[list[dict[str, Any]]], stored)


def write_steps(home: Path, steps: list[list[dict[str, Any]]]) -> None:
    write_state_file(home / SHAPES, "shapes", steps)


def forget_state(home: Path) -> None:
    (home / FILE).unlink(missing_ok=True)
    (home / SHAPES).unlink(missing_ok=True)
