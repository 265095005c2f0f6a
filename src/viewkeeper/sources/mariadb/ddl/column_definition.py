"""A column as a statement declares it, read into what information_schema would say of it.

Types have many spellings (`INTEGER`, `DOUBLE PRECISION`, `NATIONAL VARCHAR`, `BOOLEAN`); here each
gets the server's own. What is left unsaid follows from the table: the character set of text. A
type that is not known is kept as it is written: nothing is a value of it then (`types`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from viewkeeper.sources.mariadb.ddl.statement import Token
from viewkeeper.sources.mariadb.types import DeclaredType, kind_of

_SPELLINGS: dict[str, str] = {
    "BOOL": "tinyint(1)",
    "BOOLEAN": "tinyint(1)",
    "SERIAL": "bigint(20) unsigned",
    "INT1": "tinyint",
    "INT2": "smallint",
    "INT3": "mediumint",
    "MIDDLEINT": "mediumint",
    "INTEGER": "int",
    "INT4": "int",
    "INT8": "bigint",
    "DEC": "decimal",
    "NUMERIC": "decimal",
    "FIXED": "decimal",
    "NUMBER": "decimal",
    "REAL": "double",
    "FLOAT8": "double",
    "FLOAT4": "float",
    "CHARACTER": "char",
    "NCHAR": "char",
    "NVARCHAR": "varchar",
    "VARCHAR2": "varchar",
    "VARCHARACTER": "varchar",
    "CLOB": "longtext",
    "JSON": "longtext",
    "RAW": "varbinary",
}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}
_DEFAULTS = {"decimal": "10,0", "bit": "1", "char": "1", "binary": "1", "year": "4"}
_DIGITS = {
    "tinyint": (4, 3),
    "smallint": (6, 5),
    "mediumint": (9, 8),
    "int": (11, 10),
    "bigint": (20, 20),
}
_FLOAT_DIGITS = 24
_UNICODE = {"utf8", "utf8mb3", "utf8mb4", "ascii"}


Characters = Callable[[str], str]
"""The 256 characters of a one-byte character set; "" for any other."""


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """What a column is declared to be; `filled` if rows that are there get a value for it."""

    name: str
    declared: DeclaredType
    nullable: bool
    generated: bool
    filled: bool


def parse_column_definition(
    tokens: Sequence[Token], charset: str, characters: Characters
) -> DeclaredColumn:
    """Read a name and what follows it; `charset` is that of the table. A ValueError or LookupError
    if it is no declaration."""
    name, rest = tokens[0].text, tokens[1:]
    words = [token.keyword for token in rest]
    base, arguments, end = _parse_type(rest)
    bare = words[end:]
    declared = DeclaredType(_spell_type(base, arguments, bare))
    if base in _TEXTS:
        declared = declare_in_charset(declared.type, _charset_of(words, rest, charset), characters)
    # A type that cannot be one is found here, not when its values come.
    kind_of(declared)
    generated = _is_generated(bare)
    required = _is_required(words[0] if words else "", bare)
    return DeclaredColumn(name, declared, not required, generated, _is_filled(base, bare, required))


def _parse_type(rest: Sequence[Token]) -> tuple[str, str, int]:
    """The type's name, the text in its parentheses, and where it ends."""
    words = [token.keyword for token in rest]
    at = 1
    if words[:1] == ["NATIONAL"]:
        words, rest, at = words[1:], rest[1:], 2
    if words[:2] == ["LONG", "VARBINARY"]:
        base, skip = "mediumblob", 1
    elif words[:1] == ["LONG"]:
        base, skip = "mediumtext", int(words[1:2] == ["VARCHAR"])
    else:
        first = words[0] if words else ""
        base = _SPELLINGS.get(first, first.lower())
        double = words[:2] in (["DOUBLE", "PRECISION"], ["CHAR", "VARYING"])
        skip = int(double or words[:2] in (["CHARACTER", "VARYING"], ["NCHAR", "VARYING"]))
        if words[1:2] == ["VARYING"]:
            base = "varchar"
    inside = _parenthesized_tokens(rest[1 + skip :])
    arguments = ",".join(
        "'" + token.text.replace("\\", "\\\\").replace("'", "''") + "'"
        if token.quoted
        else token.text
        for token in inside
        if token.quoted or token.text != ","
    )
    return base, arguments, at + skip + (len(inside) + 2 if inside else 0)


def _parenthesized_tokens(tokens: Sequence[Token]) -> Sequence[Token]:
    """What is in the parentheses that tokens begin with."""
    if not tokens or tokens[0].quoted or tokens[0].text != "(":
        return ()
    end = next((i for i, one in enumerate(tokens) if one.text == ")" and not one.quoted), 1)
    return tokens[1:end]


def _spell_type(base: str, arguments: str, words: Sequence[str]) -> str:
    signs = [sign for sign in ("unsigned", "zerofill") if sign.upper() in words]
    if "ZEROFILL" in words and "unsigned" not in signs:
        signs.insert(0, "unsigned")
    if base in _DIGITS:
        arguments = arguments or str(_DIGITS[base][bool(signs)])
    elif base == "float" and arguments and "," not in arguments:
        base, arguments = "float" if int(arguments) <= _FLOAT_DIGITS else "double", ""
    elif base == "decimal" and arguments and "," not in arguments:
        arguments += ",0"
    inside = arguments or _DEFAULTS.get(base, "")
    decorated = " COMPRESSED" if "COMPRESSED" in words else ""
    return " ".join([f"{base}({inside})" if inside else base, *signs]) + decorated


def _charset_of(words: Sequence[str], rest: Sequence[Token], table: str) -> str:
    """The character set of a text column."""
    named = find_charset(rest)
    if named:
        return named
    if words[0] in ("NATIONAL", "NCHAR", "NVARCHAR"):
        return "utf8mb3"
    if words[0] == "JSON":
        return "utf8mb4"
    if "ASCII" in words:
        return "latin1"
    return "ucs2" if "UNICODE" in words else table


def declare_in_charset(declared: str, charset: str, characters: Characters) -> DeclaredType:
    """A text column in a character set; as bytes, in that of bytes."""
    if charset != "binary":
        known = charset in _UNICODE
        return DeclaredType(declared, charset, "", "" if known else characters(charset))
    name, mark, inside = declared.partition("(")
    bytes_of = {"char": "binary", "varchar": "varbinary", "enum": "enum", "set": "set"}
    return DeclaredType(bytes_of.get(name, name.replace("text", "blob")) + mark + inside)


def find_charset(tokens: Sequence[Token]) -> str:
    """The character set that tokens name, by itself or by a collation of it; "" if none."""
    words = [token.keyword for token in tokens]
    for at, word in enumerate(words):
        start = at + 1
        if word == "CHARACTER" and words[start : start + 1] == ["SET"]:
            start += 1
        elif word not in ("CHARSET", "COLLATE"):
            continue
        value = next((one.text for one in tokens[start : start + 2] if one.text != "="), "")
        value = value.lower().split("_")[0]
        return {"utf8": "utf8mb3"}.get(value, value)
    return ""


def _is_generated(words: Sequence[str]) -> bool:
    return "GENERATED" in words or any(
        word == "AS" and words[at + 1 : at + 2] == ["("] for at, word in enumerate(words)
    )


def _is_required(type: str, words: Sequence[str]) -> bool:
    """Whether the column cannot be NULL."""
    pairs = list(pairwise(words))
    return ("NOT", "NULL") in pairs or ("PRIMARY", "KEY") in pairs or type == "SERIAL"


def _is_filled(base: str, words: Sequence[str], required: bool) -> bool:
    """Whether rows that are there already get a value."""
    pairs = list(pairwise(words))
    by_default = any(word == "DEFAULT" and value != "NULL" for word, value in pairs)
    # Without its being said, a TIMESTAMP may be the moment at which a row was changed.
    moment = base == "timestamp" and "NULL" not in words
    return required or by_default or moment or _is_generated(words) or "AUTO_INCREMENT" in words
