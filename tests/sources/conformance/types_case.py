"""One declared type of a kind of source: how its values are written, and how they are kept.

A type is kept, then every value of it that is listed arrives exactly, and single values that
cannot be kept are errors that name them; or it is refused, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

UTC_TIME = pa.timestamp("us", "UTC")
TIME = pa.timestamp("us")


@dataclass(frozen=True, slots=True)
class Value:
    """A value as it is written (SQL, text, or Python's for Arrow files) and as it must arrive."""

    written: Any
    kept: Any


@dataclass(frozen=True, slots=True)
class Misfit:
    """A value that its type allows and that cannot be kept; the error shows `told`."""

    written: Any
    told: str


@dataclass(frozen=True, slots=True)
class Case:
    """A declared type; `stored` is the Arrow type that files have it in.

    `called` is what people call it, where its name in the table says nothing; `note` is for them.
    """

    declared: str
    arrow: pa.DataType | None
    values: tuple[Value, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    reason: str = ""
    stored: Any = None
    called: str = ""
    note: str = ""

    @property
    def is_refused(self) -> bool:
        return self.arrow is None


def kept(
    declared: str,
    arrow: pa.DataType,
    *values: tuple[Any, Any],
    misfits: tuple[tuple[Any, str], ...] = (),
    stored: Any = None,
    called: str = "",
    note: str = "",
) -> Case:
    found = tuple(Value(*pair) for pair in values)
    strange = tuple(Misfit(*pair) for pair in misfits)
    return Case(declared, arrow, found, strange, stored=stored, called=called, note=note)


def refused(declared: str, reason: str, stored: Any = None, called: str = "") -> Case:
    """A type that no view can use; `reason` is what its user is told."""
    return Case(declared, None, reason=reason, stored=stored, called=called)


def same(found: Any, wanted: Any) -> bool:
    """Whether two values are one, to the last digit, zone and sign."""
    if isinstance(wanted, float):
        return isinstance(found, float) and repr(found) == repr(wanted)
    return type(found) is type(wanted) and bool(found == wanted)
