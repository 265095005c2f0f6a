"""Words, lists and mappings of the project file that concern evolution, read with errors that help.

YAML gives whatever was written: a word where a list is meant, `on` as a boolean, a misspelt key.
Every function here takes `where`, the words that an error begins with, and raises a ProjectError
whose hint is a line that can be pasted.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

from viewkeeper.errors import ProjectError
from viewkeeper.view.definition import Relation

Word = TypeVar("Word", bound=Enum)


def read_mapping(raw: object, where: str) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise ProjectError(f"{where} must be a mapping", hint="write `key: value` lines below it")
    return {str(key): value for key, value in raw.items()}


def refuse_unknown_keys(raw: Mapping[str, object], known: Iterable[str], where: str) -> None:
    """Refuse a key that means nothing here."""
    for key in raw:
        if key not in known:
            raise ProjectError(
                f'{where}: unknown key "{key}"', hint=list_choices("keys", key, known)
            )


def list_choices(what: str, word: str, known: Iterable[str]) -> str:
    """The known words, and which of them was probably meant.

    >>> list_choices("extents", "supreset", ("subset", "superset"))
    'extents: subset, superset; did you mean "superset"?'
    """
    close = difflib.get_close_matches(word[:100], list(known), n=1, cutoff=0.5)
    nearest = f'; did you mean "{close[0]}"?' if close else ""
    return f"{what}: {', '.join(known)}{nearest}"


def read_texts(raw: object, where: str, example: str) -> tuple[str, ...]:
    """A list of texts, none of them empty."""
    if not isinstance(raw, list | tuple):
        raise ProjectError(f"{where} must be a list", hint=f"for example {example}")
    return tuple(read_one_text(each, where, example) for each in raw)


def read_one_text(raw: object, where: str, example: str) -> str:
    if not isinstance(raw, str) or not raw.strip():
        hint = f"for example {example}; put a word that YAML reads differently in quotes"
        raise ProjectError(f"{where} must be a text, not {raw!r}", hint=hint)
    return raw.strip()


def read_enum_word(raw: object, kind: type[Word], where: str) -> Word:
    """One of the words of an enumeration."""
    known = [str(each.value) for each in kind]
    if str(raw) not in known:
        hint = list_choices("one of", str(raw), known)
        raise ProjectError(f'{where}: "{raw}" is not known', hint=hint)
    return kind(str(raw))


def read_relation(raw: object, where: str, example: str) -> Relation:
    """`source.table` or `source.schema.table`."""
    parts = read_dotted_name(raw, where, example)
    if len(parts) not in (2, 3):
        raise ProjectError(f'{where}: "{raw}" is no table', hint=f"for example {example}")
    return Relation(parts[0], ".".join(parts[1:]))


def read_dotted_name(raw: object, where: str, example: str) -> tuple[str, ...]:
    """The names that dots separate."""
    parts = tuple(read_one_text(raw, where, example).replace("`", "").split("."))
    if not all(part.strip() for part in parts):
        raise ProjectError(f'{where}: "{raw}" has an empty name', hint=f"for example {example}")
    return parts
