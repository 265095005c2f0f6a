"""Which names members and sources can have in a registry: such that people can tell them apart.

Names are shown in a terminal and written into ids and error messages. So they have no line breaks,
no characters that change the direction of writing or that are not seen, and one spelling: two
names that look the same letter by letter are the same.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from viewkeeper.errors import RegistryError
from viewkeeper.order.registry_protocol import MemberFacts

CHARACTERS_MAX = 500


def check_names(
    registry: str, member: str, facts: MemberFacts, known: Mapping[str, MemberFacts]
) -> None:
    """A RegistryError for a name that cannot be; those that are there already stay."""
    there = {name for each, said in known.items() for name in (each, *_names_in(said))}
    for name in (member, *_names_in(facts)):
        if name in there or is_fit(name):
            continue
        raise RegistryError(
            registry,
            f"a member or source cannot be called {name[:50]!a}",
            detail="names are printable, of at most 500 characters, in Unicode's composed form",
            hint="name the project with `registry: member:`, a source with its option `global`",
        )


def _names_in(facts: MemberFacts) -> tuple[str, ...]:
    return (*facts.sources, *facts.parents, *([facts.together] if facts.together else []))


def is_fit(name: str) -> bool:
    r"""
    >>> is_fit("north sales"), is_fit("a\nb"), is_fit("e\u0301"), is_fit("\u202ea"), is_fit(" a")
    (True, False, False, False, False)
    """
    return (
        0 < len(name) <= CHARACTERS_MAX
        and name.isprintable()
        and name == name.strip()
        and unicodedata.is_normalized("NFC", name)
    )
