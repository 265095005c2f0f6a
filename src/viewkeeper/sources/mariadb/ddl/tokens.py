"""The words, names and signs of a statement, as the binlog has it.

Statements are read by tokens, not by a grammar: that never fails on a clause of some newer server.
Comments are gone, what MariaDB runs inside of comments is not, and what is quoted, in any way, is
never a keyword.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import TokenType
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import TokenError

# MariaDB runs what is in such a comment; dumps and tools write them.
_EXECUTED, _END = re.compile(r"/\*M?!\d*"), "*/"
_BEGINNING = re.compile(r"(?:\s|/\*.*?\*/|--[^\n]*\n|#[^\n]*\n)*(\w*)", re.DOTALL)
_QUOTED = {TokenType.IDENTIFIER, TokenType.STRING}


class UnreadableError(ValueError):
    """A statement that cannot be cut into tokens."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word, name or sign of a statement; what is quoted is never a keyword."""

    text: str
    quoted: bool

    @property
    def keyword(self) -> str:
        return "" if self.quoted else self.text.upper()


def _split_first_word(statement: str) -> tuple[str, str]:
    text = "".join(_without_marks(statement))
    match = _BEGINNING.match(text)
    return (match[1].upper(), text[match.end() :]) if match else ("", text)


def _without_marks(statement: str) -> Iterator[str]:
    """A statement with what is run inside of comments. Every character is looked at once, however
    many comments begin and never end."""
    at = 0
    while mark := _EXECUTED.search(statement, at):
        end = statement.find(_END, mark.end())
        if end < 0:
            break
        yield from (statement[at : mark.start()], " ", statement[mark.end() : end], " ")
        at = end + len(_END)
    yield statement[at:]


def tokens_of(statement: str) -> Sequence[Token]:
    """The tokens of a statement, without the settings that it is run with."""
    first, rest = _split_first_word(statement)
    try:
        # Without the first word, of which some make the tokenizer take the rest as one piece.
        found = MySQL.Tokenizer().tokenize(rest)
    except TokenError:
        raise UnreadableError(statement[:100]) from None
    plain = (Token(token.text, token.token_type in _QUOTED) for token in found)
    return _without_settings([Token(first, False), *_split_words(plain)])


def _split_words(tokens: Iterable[Token]) -> Iterator[Token]:
    """One token for each word: some tokens of the library are two."""
    for token in tokens:
        if token.quoted:
            yield token
        else:
            yield from (Token(word, False) for word in token.text.split())


def _without_settings(tokens: Sequence[Token]) -> Sequence[Token]:
    """A statement without SET STATEMENT ... FOR ..."""
    words = [token.keyword for token in tokens]
    start = 0
    while words[start : start + 2] == ["SET", "STATEMENT"] and "FOR" in words[start:]:
        start = words.index("FOR", start) + 1
    return tokens[start:]


def split_clauses(tokens: Iterable[Token]) -> Iterator[Sequence[Token]]:
    """The parts between commas that are in no parentheses."""
    depth = 0
    part: list[Token] = []
    for token in tokens:
        sign = "" if token.quoted else token.text
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part
