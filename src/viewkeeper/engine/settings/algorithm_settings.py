"""Algorithms as the project file and the command line name them.

`algorithm:` names one for all views, `views:` one for single views, each with its options; a level
accepts a promise below strong consistency. Whether a view can be maintained so is decided later,
when its sources answer (`viewkeeper.engine.views.algorithm_choice`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from viewkeeper.errors import ProjectError, suggest_nearest
from viewkeeper.maintain.algorithm_catalogue import KINDS, AlgorithmKind
from viewkeeper.maintain.algorithm_protocol import Level, TransactionKind

DEFAULT = "batch_sweep"

SCENARIO = TransactionKind.LOCAL
"""How real sources report: what was committed between two looks is one transaction."""


@dataclass(frozen=True, slots=True)
class AlgorithmSettings:
    """An algorithm by name; `level` accepts a promise below strong, by its name."""

    name: str = DEFAULT
    level: Level | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> AlgorithmKind:
        return KINDS[self.name]


def read_algorithm(name: object, raw: Mapping[str, Any], where: str) -> AlgorithmSettings:
    """An algorithm as the project file or the command line names it."""
    kind = KINDS.get(str(name))
    if kind is None:
        raise ProjectError(
            f'{where}: unknown algorithm "{name}"',
            hint=f"algorithms: {', '.join(KINDS)}{suggest_nearest(str(name), tuple(KINDS))}",
        )
    level = read_level(raw["level"], where) if "level" in raw else None
    options = {key: value for key, value in raw.items() if key not in ("algorithm", "level")}
    if options and kind.name == DEFAULT:
        raise ProjectError(
            f"{where}: {DEFAULT} has no options of its own",
            hint="how batches are cut is said under `batch:`, for all views together",
        )
    kind.check_options(options, where)
    return AlgorithmSettings(kind.name, level, options)


def read_level(word: object, where: str) -> Level:
    """A level by its name."""
    words = {level.lower_name: level for level in Level}
    if str(word) not in words:
        raise ProjectError(
            f'{where}: unknown level "{word}"',
            hint=f"levels: {', '.join(words)}{suggest_nearest(str(word), tuple(words))}",
        )
    return words[str(word)]
