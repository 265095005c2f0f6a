"""Words about texts: patterns, parts, case, blanks. Characters are code points, as in Spark.

Arrow's own pattern match reads escapes differently and its case conversions know another version of
Unicode, so patterns are taken apart here, and case is Python's with what Spark knows besides
(`viewkeeper.delta.letter_case`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.column_values import Values, is_constant, map_distinct, map_rows
from viewkeeper.delta.letter_case import lower_text, upper_text
from viewkeeper.view.expression import Call
from viewkeeper.view.kernel_words import escape_of, literal_value, parse_pattern

_FAR = 2**31 - 1


def _match_pattern(call: Call, values: Sequence[Values]) -> Values:
    pattern = literal_value(call.arguments[1])
    assert isinstance(pattern, str)
    parts = parse_pattern(pattern, escape_of(call))
    assert parts is not None, "the pattern was looked at when the view was defined"
    match parts:
        case ():
            return pc.equal(values[0], "")
        case (str(text),):
            return pc.equal(values[0], text)
        case (str(text), 0):
            return pc.starts_with(values[0], pattern=text)
        case (0, str(text)):
            return pc.ends_with(values[0], pattern=text)
        case (0, str(text), 0):
            return pc.match_substring(values[0], pattern=text)
    return pc.match_substring_regex(values[0], pattern=_pattern_regex(parts))


@functools.lru_cache(maxsize=256)
def _pattern_regex(parts: tuple[str | int, ...]) -> str:
    """The pattern as a regular expression of RE2, which quotes a character by a backslash."""
    spelled = [_quote_text(part) if isinstance(part, str) else (".*", ".")[part] for part in parts]
    return rf"(?s)\A{''.join(spelled)}\z"


def _quote_text(text: str) -> str:
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)


def _cut_text(call: Call, values: Sequence[Values]) -> Values:
    text, start = values[:2]
    length = values[2] if len(values) == 3 else pa.scalar(_FAR, pa.int32())
    if not (is_constant(start) and is_constant(length)) or is_constant(text):
        return map_rows(cut_substring, [text, start, length], pa.string())
    first, count = start.as_py(), length.as_py()
    if first is None or count is None:
        return pa.nulls(len(text), pa.string())
    return _cut_column(text, first, count)


def _cut_column(text: Values, first: int, count: int) -> Values:
    if count <= 0:
        return pc.utf8_slice_codeunits(text, start=0, stop=0)
    begin = first - 1 if first > 0 else first
    end = begin + count
    if begin < 0 <= end:
        return pc.utf8_slice_codeunits(text, start=begin)
    return pc.utf8_slice_codeunits(text, start=begin, stop=end)


def cut_substring(text: str, first: int, count: int) -> str:
    """Characters from a position on, counted from 1, or from the end where it is negative.

    >>> cut_substring("hello", 0, 2), cut_substring("hello", -7, 4), cut_substring("hello", 4, 9)
    ('he', 'he', 'lo')
    """
    begin = first - 1 if first > 0 else (len(text) + first if first < 0 else 0)
    return text[max(begin, 0) : max(begin + count, 0)] if count > 0 else ""


def _change_case(call: Call, values: Sequence[Values]) -> Values:
    if pc.all(pc.string_is_ascii(values[0]), min_count=0).as_py() is not False:
        return (pc.ascii_upper if call.function == "upper" else pc.ascii_lower)(values[0])
    return map_distinct(
        upper_text if call.function == "upper" else lower_text, values[0], pa.string()
    )


def _trim_blanks(call: Call, values: Sequence[Values]) -> Values:
    trims = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}
    return trims[call.function](values[0], characters=" ")


def _join_texts(call: Call, values: Sequence[Values]) -> Values:
    return pc.binary_join_element_wise(*values, "", null_handling="emit_null")


def _count_characters(call: Call, values: Sequence[Values]) -> Values:
    measure = pc.utf8_length if pa.types.is_string(values[0].type) else pc.binary_length
    return measure(values[0])


def _search_text(call: Call, values: Sequence[Values]) -> Values:
    text, wanted = values
    if is_constant(wanted) and wanted.is_valid:
        return _SEARCHES[call.function](text, pattern=wanted.as_py())
    return map_rows(_PYTHON_SEARCHES[call.function], [text, wanted], pa.bool_())


_SEARCHES: dict[str, Callable[..., Any]] = {
    "startswith": pc.starts_with,
    "endswith": pc.ends_with,
    "contains": pc.match_substring,
}
_PYTHON_SEARCHES: dict[str, Callable[..., object]] = {
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": str.__contains__,
}

TEXT_WORDS: dict[str, Callable[[Call, Sequence[Values]], Values]] = {
    "like": _match_pattern,
    "substring": _cut_text,
    **dict.fromkeys(("upper", "lower"), _change_case),
    **dict.fromkeys(("trim", "ltrim", "rtrim"), _trim_blanks),
    "concat": _join_texts,
    "length": _count_characters,
    **dict.fromkeys(_SEARCHES, _search_text),
}
