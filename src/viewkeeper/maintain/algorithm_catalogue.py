"""All algorithms by name: what they need, what they promise.

The names are those of the command line and of the project file. The promises are the papers' and
DESIGN's, per scenario; `make simulate` finds the levels that runs really have and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from viewkeeper.errors import ProjectError
from viewkeeper.maintain.algorithm_protocol import Level, TransactionKind

if TYPE_CHECKING:
    from viewkeeper.maintain.algorithm_makers import Make

CHOICES: Mapping[str, tuple[str, ...]] = {"strategy": ("sweep", "posse")}
"""Options that are one of a few words."""


@dataclass(frozen=True, slots=True)
class AlgorithmKind:
    """An algorithm as users know it."""

    name: str
    promise: Mapping[TransactionKind, Level]
    arrival: bool = False
    """Infers what an answer saw from arrival order; gets FIFO channels, real or emulated."""
    caught_up: bool = False
    """Uses an answer only when everything that its cut includes was delivered."""
    keyed: bool = False
    """Needs a key of every relation in the stored view (`viewkeeper.view.keyed_view`)."""
    one_source: bool = False
    """All relations must be at one source."""
    quiescence: bool = False
    """The view may stand still for as long as updates keep coming."""
    as_of: bool = False
    """The promise is over the states as of every ts; a reader of the newest state gets strong."""
    options: Mapping[str, Any] | None = None
    """Names and default values of its options."""

    @property
    def make(self) -> Make:
        """What makes a machine of this kind; imported here, because few commands run one."""
        from viewkeeper.maintain.algorithm_makers import MAKERS

        return MAKERS[self.name]

    def check_options(self, options: Mapping[str, Any], where: str) -> None:
        """Refuse an option that it does not have, or a value that does not fit."""
        known = dict(self.options or {})
        for key, value in options.items():
            if key not in known:
                words = ", ".join(known) or "none"
                raise ProjectError(
                    f'{where}: {self.name} has no option "{key}"',
                    hint=f"options of {self.name}: {words}",
                )
            fits = type(value) is type(known[key]) and value in CHOICES.get(key, (value,))
            if not fits or (type(value) is int and value < 1):
                words = ", ".join(CHOICES.get(key, (f"like {known[key]!r}, at least 1",)))
                raise ProjectError(
                    f'{where}: "{key}" cannot be {value!r}', hint=f"possible: {words}"
                )


def _same_level(level: Level) -> dict[TransactionKind, Level]:
    return dict.fromkeys(TransactionKind, level)


def _level_table(single: Level, local: Level, across: Level) -> dict[TransactionKind, Level]:
    return {
        TransactionKind.SINGLE: single,
        TransactionKind.LOCAL: local,
        TransactionKind.GLOBAL: across,
    }


def _keyed_kind(
    name: str,
    promise: Mapping[TransactionKind, Level],
    quiescence: bool,
    **options: Any,
) -> AlgorithmKind:
    """One of those that delete by key and read arrival order."""
    return AlgorithmKind(
        name,
        promise,
        arrival=True,
        keyed=True,
        quiescence=quiescence,
        options=options or None,
    )


_STROBE = _level_table(Level.STRONG, Level.CONVERGENCE, Level.CONVERGENCE)
_RECOMPUTE = _T_STROBE = _level_table(Level.STRONG, Level.STRONG, Level.WEAK)
_C_STROBE = _level_table(Level.COMPLETE, Level.CONVERGENCE, Level.CONVERGENCE)
_C_T_STROBE = _level_table(Level.COMPLETE, Level.COMPLETE, Level.WEAK)

_C = {"grouped": True, "period": 1}
_SWEEP = {"parallel": 1, "arms": False}
_PVM = {"parallel": 4, "strategy": "sweep"}
_BATCH = {"part_rows": 10_000}

KINDS: dict[str, AlgorithmKind] = {
    kind.name: kind
    for kind in (
        AlgorithmKind("recompute", _RECOMPUTE, caught_up=True),
        _keyed_kind("conventional", _same_level(Level.NONE), quiescence=False),
        AlgorithmKind(
            "eca", _same_level(Level.STRONG), arrival=True, one_source=True, quiescence=True
        ),
        _keyed_kind("strobe", _STROBE, quiescence=True),
        _keyed_kind("t_strobe", _T_STROBE, quiescence=True, gather=False),
        _keyed_kind("g_strobe", _same_level(Level.STRONG), quiescence=True),
        _keyed_kind("c_strobe", _C_STROBE, quiescence=False, **_C),
        _keyed_kind("c_t_strobe", _C_T_STROBE, quiescence=False, **_C, gather=False),
        AlgorithmKind("sweep", _same_level(Level.COMPLETE), options=_SWEEP),
        AlgorithmKind("nested_sweep", _same_level(Level.STRONG), options={"depth": 5}),
        AlgorithmKind("pvm", _same_level(Level.CONVERGENCE), options=_PVM),
        AlgorithmKind("pvm_cc", _same_level(Level.COMPLETE), options=_PVM),
        AlgorithmKind("batch_sweep", _same_level(Level.COMPLETE), as_of=True, options=_BATCH),
    )
}
