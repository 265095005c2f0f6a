"""Global ids: what one transaction of one source is called everywhere in a group.

An id is the global name of a source and the position that its reporter registered. Every member
carries it through its own views, so that deltas of one transaction meet again wherever they come
together. Positions grow within a source; ids of different sources have no order but the registry's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class GlobalId:
    """One transaction of one source; compared by source, then position."""

    source: str
    position: int

    def __str__(self) -> str:
        return f"{self.source}@{self.position}"

    @staticmethod
    def parse_id(text: str) -> GlobalId:
        """The id that is written so; a ValueError if none is.

        >>> GlobalId.parse_id("shop@17")
        GlobalId(source='shop', position=17)
        >>> str(GlobalId.parse_id("shop@17"))
        'shop@17'
        """
        source, at, position = text.rpartition("@")
        if not (source and at and position.isascii() and position.isdecimal()):
            raise ValueError(f"not a global id: {text!r}; one is written source@position")
        return GlobalId(source, int(position))


def base_name(member: str, source: str, kind: str, global_name: str) -> str:
    """What a member calls a database in ids; every project numbers the states of files by itself.

    >>> base_name("sales", "shop", "sqlite", "company"), base_name("sales", "prices", "files", "p")
    ('company', 'sales.prices')
    """
    return f"{member}.{source}" if kind == "files" else global_name
