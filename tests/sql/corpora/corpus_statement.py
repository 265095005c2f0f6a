"""A statement of a corpus: its name, what it is about, and its text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CorpusStatement:
    """`construct` says what the statement shows that others do not. A text may read other
    statements by their names."""

    name: str
    construct: str
    text: str
