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


def base_name(member: str, source: str, kind: str, global_name: str) -> str:
    """What a member calls a database in ids; every project numbers the states of files by itself.

    >>> base_name("sales", "shop", "sqlite", "company"), base_name("sales", "prices", "files", "p")
    ('company', 'sales.prices')
    """
    return f"{member}.{source}" if kind == "files" else global_name
