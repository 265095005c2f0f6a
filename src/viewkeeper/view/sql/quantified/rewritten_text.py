"""A text of SQL with some parts rewritten, and where each of its parts was before.

A part that is copied, as the subquery of a comparison is, keeps the place of each character,
however often it is copied. What was not in the text before has the place of what it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextNote:
    """What an error in a piece of the new text means for the text before."""

    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A stretch of the new text, and the offset that it, or what it stands for, had before."""

    text: str
    origin: int
    is_copied: bool
    note: TextNote | None = None


@dataclass(frozen=True, slots=True)
class RewrittenText:
    """The pieces of a text that was rewritten, one after the other.

    >>> found = RewrittenText((TextPiece("a + ", 0, True), TextPiece("twice", 4, False)))
    >>> found.text, found.offset_before(2), found.offset_before(8)
    ('a + twice', 2, 4)
    """

    pieces: tuple[TextPiece, ...]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    def offset_before(self, offset: int) -> int:
        """Where something was before, given where it is."""
        last = 0
        for start, piece in self._placed_pieces():
            last = piece.origin + (len(piece.text) if piece.is_copied else 0)
            if offset < start + len(piece.text):
                return piece.origin + (offset - start if piece.is_copied else 0)
        return last

    def note_at(self, offset: int) -> TextNote | None:
        """What an error at an offset of the new text means, if that has to be said."""
        for start, piece in self._placed_pieces():
            if start <= offset < start + len(piece.text):
                return piece.note
        return None

    def _placed_pieces(self) -> Iterator[tuple[int, TextPiece]]:
        start = 0
        for piece in self.pieces:
            yield start, piece
            start += len(piece.text)
