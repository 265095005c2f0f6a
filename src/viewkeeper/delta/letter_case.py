"""Upper and lower case as Spark has it, whatever version of Unicode this Python knows.

Both map characters by the tables of Unicode, `ß` to `SS` and a sigma at the end of a word to `ς`.
Spark's tables are those of Unicode 17, and a Python may have older ones: the letters that came
since Unicode 14, Python 3.11's, are listed here. A test compares every character with Spark.
"""

from __future__ import annotations

_PAIRS = {
    0xA7DC: 0x19B,
    0xA7CB: 0x264,
    0x1C89: 0x1C8A,
    0xA7CC: 0xA7CD,
    0xA7CE: 0xA7CF,
    0xA7D2: 0xA7D3,
    0xA7D4: 0xA7D5,
    0xA7DA: 0xA7DB,
    **{letter: letter + 0x20 for letter in range(0x10D50, 0x10D66)},
    **{letter: letter + 0x1B for letter in range(0x16EA0, 0x16EB9)},
}
"""Capital letters and their small ones."""
_TO_LOWER = _PAIRS
_TO_UPPER = {small: capital for capital, small in _PAIRS.items()}


def upper_text(text: str) -> str:
    """The text in capital letters.

    >>> upper_text("straße"), upper_text("\\u019b") == "\\ua7dc"
    ('STRASSE', True)
    """
    return text.translate(_TO_UPPER).upper()


def lower_text(text: str) -> str:
    """The text in small letters.

    >>> lower_text("ΟΔΟΣ")
    'οδος'
    """
    return text.translate(_TO_LOWER).lower()
