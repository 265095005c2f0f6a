"""What a row of the table of constructs is."""

from __future__ import annotations

from dataclasses import dataclass

NOTHING = "nothing"
RESULT = "its groups"


@dataclass(frozen=True, slots=True)
class Construct:
    """Something that SQL has, with an example over the four relations.

    `stored` is what is stored besides the view's own rows. `parents` are views that it reads.
    """

    section: str
    name: str
    text: str
    stored: str = NOTHING
    parents: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedConstruct:
    """What is refused, a piece of the reason that is given, and what to write instead."""

    name: str
    text: str
    reason: str
    way_out: str


def slug_of(construct: Construct | RefusedConstruct) -> str:
    """The name of a construct's view."""
    letters = [c if c.isalnum() else "_" for c in construct.name.lower()]
    return "x_" + "_".join("".join(letters).split("_")).strip("_").replace("__", "_")
