"""Upper and lower case as Spark has it, whatever version of Unicode this Python knows.

Both map characters by the tables of Unicode, `ß` to `SS` and a capital sigma at the end of a word
to `ς`. Spark's tables are those of Unicode 17, and a Python may have older ones: what came since
Unicode 14, Python 3.11's, is listed here. Letters are mapped before Python maps the rest. Where a
word ends depends on which characters are letters with case and which are ignored between those;
for that a text is looked at with an old character of the same kind in place of each new one. A test
compares every character with Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

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

_NEITHER = (0x295, 0x1171E)
_CASED = (
    *(0x1C89, 0x1C8A, *range(0xA7CB, 0xA7D0), 0xA7D2, 0xA7D4, 0xA7DA, 0xA7DB, 0xA7DC),
    *(*range(0x10D50, 0x10D66), *range(0x10D70, 0x10D86), *range(0x16EA0, 0x16EB9)),
    *(*range(0x16EBB, 0x16ED4), *range(0x1DF25, 0x1DF2B)),
)
_IGNORED = (
    *(0x897, 0xECE, *range(0x1ACF, 0x1ADE), *range(0x1AE0, 0x1AEC), 0xA7F1, 0x10D4E),
    *(*range(0x10D69, 0x10D6E), 0x10D6F, 0x10EC5, *range(0x10EFA, 0x10F00), 0x11241),
    *(*range(0x113BB, 0x113C1), 0x113CE, 0x113D0, 0x113D2, 0x113E1, 0x113E2, 0x11B60),
    *(0x11B62, 0x11B63, 0x11B64, 0x11B66, 0x11DD9, 0x11F00, 0x11F01, *range(0x11F36, 0x11F3B)),
    *(0x11F40, 0x11F42, 0x11F5A, *range(0x13439, 0x13441), *range(0x13447, 0x13456)),
    *(*range(0x1611E, 0x1612A), 0x1612D, 0x1612E, 0x1612F, 0x16D40, 0x16D41, 0x16D42, 0x16D6B),
    *(0x16D6C, 0x16FF2, 0x16FF3, *range(0x1E030, 0x1E06E), 0x1E08F, *range(0x1E4EB, 0x1E4F0)),
    *(0x1E5EE, 0x1E5EF, 0x1E6E3, 0x1E6E6, 0x1E6EE, 0x1E6EF, 0x1E6F5, 0x1E6FF),
)


def _each_as(points: Iterable[int], like: str) -> dict[int, str]:
    return dict.fromkeys(points, like)


_KINDS = {
    **_each_as(_NEITHER, "1"),
    **_each_as(_CASED, "a"),
    **_each_as(_IGNORED, "'"),
    **_each_as(map(ord, "σς"), "a"),
}
"""An old character of the same kind for each new one, and none but capitals as sigmas."""


def upper_text(text: str) -> str:
    """The text in capital letters.

    >>> upper_text("straße"), upper_text("\\u019b") == "\\ua7dc"
    ('STRASSE', True)
    """
    return text.translate(_TO_UPPER).upper()


def lower_text(text: str) -> str:
    """The text in small letters.

    >>> lower_text("ΟΔΟΣ ΟΔΟΣ")
    'οδος οδος'
    """
    if "Σ" in text:
        text = _lower_sigmas(text)
    return text.translate(_TO_LOWER).lower()


def _lower_sigmas(text: str) -> str:
    """The text with small sigmas, each as its place in a word demands."""
    shadow = text.translate(_KINDS).lower()
    sigmas = [letter for letter in shadow if letter in "σς"]
    first, *others = text.split("Σ")
    return first + "".join(map("".join, zip(sigmas, others, strict=True)))
