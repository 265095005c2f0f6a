"""Ways of damaging a file, and what came of each of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


def flip(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def zero(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    length = min(len(data) - at, chance.choice((1, 16, 512, 1 << 20)))
    return data[:at] + bytes(length) + data[at + length :]


KINDS: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "flip": flip,
    "cut": lambda data, chance: data[: chance.randrange(len(data))],
    "zero": zero,
    "double": lambda data, chance: data * 2,
    "empty": lambda data, chance: b"",
    "remove": lambda data, chance: None,
}


@dataclass
class Outcome:
    """What came of all damages: how many were refused, and how many changed nothing."""

    refused: Counter[str] = field(default_factory=Counter)
    harmless: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        total = self.refused.total() + self.harmless.total() + self.failed.total()
        per = ", ".join(
            f"{kind} {self.refused[kind]} refused {self.harmless[kind]} harmless" for kind in KINDS
        )
        return f"{total} damages: {per}; silently wrong or a traceback {self.failed.total()}"


def relative_files(root: Path) -> list[Path]:
    """Every file below a folder."""
    return sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())


def damage_one(root: Path, files: Sequence[Path], chance: random.Random) -> tuple[str, Path]:
    """Damage one file; how, and which.

    Every folder alike: logs and data files would crowd out the others.
    """
    inside = chance.choice(sorted({file.parent for file in files}))
    path = chance.choice([file for file in files if file.parent == inside])
    kind = chance.choice([*KINDS])
    data = (root / path).read_bytes()
    damaged = KINDS[kind](data, chance) if data else None
    (root / path).unlink()
    if damaged is not None:
        (root / path).write_bytes(damaged)
    return kind, path
