"""What a row of the table of constructs is."""

from __future__ import annotations

from dataclasses import dataclass

NOTHING = "nothing"
RESULT = "its groups"
"""The view's own rows, which have the sums behind them as hidden columns."""


@dataclass(frozen=True, slots=True)
class Construct:
    """Something that SQL has, with an example over the four relations.

    `stored` says whether the view's own table has more than its rows; `besides` are the tables
    that the view has besides, one by one. `parents` are views that it reads.
    """

    section: str
    name: str
    text: str
    stored: str = NOTHING
    parents: tuple[tuple[str, str], ...] = ()
    besides: tuple[str, ...] = ()

    @property
    def stored_words(self) -> str:
        """What is stored, as the page says it."""
        own = () if self.stored == NOTHING and self.besides else (self.stored,)
        return "; ".join((*own, *self.besides))


@dataclass(frozen=True, slots=True)
class RefusedConstruct:
    """What is refused, a piece of the reason that is given, the hint, and where in the text."""

    name: str
    text: str
    reason: str
    way_out: str
    place: str
    """What the text has where the refusal points, by line and column."""


def slug_of(construct: Construct | RefusedConstruct) -> str:
    """The name of a construct's view."""
    letters = [c if c.isalnum() else "_" for c in construct.name.lower()]
    return "x_" + "_".join("".join(letters).split("_")).strip("_").replace("__", "_")
