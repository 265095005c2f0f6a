"""What a statement in the binlog does to tables, by the names that it has for them.

In a row binlog the statements that remain as text are those that change tables themselves, and the
frame of transactions. Only their first words, the tables that they name and the clauses of ALTER
TABLE are looked at, by tokens (`tokens`). What it all means for the tables that are followed is
said in `shape_effect`.

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


_ROW_WORDS = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "SELECT", "DO"}
_BEFORE_WHAT = {"OR", "REPLACE", "IF", "EXISTS", "NOT", "IGNORE", "ONLINE", "TEMPORARY"}
_BEFORE_NAME = {"IF", "NOT", "EXISTS"}
_INDEX_KINDS = {"UNIQUE", "FULLTEXT", "SPATIAL"}


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """A statement, and the database that it was run in; `strict` if its session refused values
    that do not fit."""

    database: str
    text: str
    strict: bool = True


@dataclass(frozen=True, slots=True)
class LoggedTableName:
    """A table as a statement names it, in the database that is meant."""

    database: str
    table: str


@dataclass(frozen=True, slots=True)
class LoggedTruncate:
    """A statement removed all rows of a table and lists none of them."""

    table: LoggedTableName


@dataclass(frozen=True, slots=True)
class LoggedRename:
    """Tables got other names, one after the other."""

    steps: tuple[tuple[LoggedTableName, LoggedTableName], ...]


@dataclass(frozen=True, slots=True)
class LoggedDrop:
    tables: tuple[LoggedTableName, ...]


@dataclass(frozen=True, slots=True)
class LoggedDropDatabase:
    database: str


@dataclass(frozen=True, slots=True)
class LoggedCreate:
    """A table was made, perhaps in the place of another one."""

    table: LoggedTableName


@dataclass(frozen=True, slots=True)
class LoggedAlter:
    """A table was altered by these clauses; `mentioned` are names of tables in them.

    `loses_rows` if rows that break a new rule go (ALTER IGNORE).
    """

    table: LoggedTableName
    clauses: tuple[Sequence[Token], ...]
    mentioned: tuple[LoggedTableName, ...] = ()
    loses_rows: bool = False


@dataclass(frozen=True, slots=True)
class UnlistedRows:
    """Rows of these tables may have been changed by a statement that lists none of them."""

    tables: tuple[LoggedTableName, ...]


Action = (
    LoggedTruncate
    | LoggedRename
    | LoggedDrop
    | LoggedDropDatabase
    | LoggedCreate
    | LoggedAlter
    | UnlistedRows
)


def action_of(statement: str, database: str) -> Action | None:
    """What a statement does, run in a database; None if it is nothing to tables.

    A ValueError or LookupError if it cannot be read.
    """
    return _StatementTokens(tokens_of(statement), database).parse_action()


class _StatementTokens:
    """The tokens of a statement, and what it does."""

    def __init__(self, tokens: Sequence[Token], database: str) -> None:
        self._tokens = tokens
        self._words = [token.keyword for token in tokens] or [""]
        self._database = database

    def parse_action(self) -> Action | None:
        words = self._words
        if words[0] == "TRUNCATE":
            return LoggedTruncate(self._parse_name(2 if words[1:2] == ["TABLE"] else 1)[0])
        if words[0] in _ROW_WORDS:
            return UnlistedRows(tuple(self._mentioned_names(1)))
        if words[0] in ("DROP", "CREATE", "RENAME", "ALTER"):
            return self._parse_definition()
        return None

    def _parse_definition(self) -> Action | None:
        words = self._words
        start = next(
            (i for i, word in enumerate(words[1:], 1) if word not in _BEFORE_WHAT), len(words)
        )
        what = words[start] if start < len(words) else ""
        if words[0] == "DROP" and what in ("DATABASE", "SCHEMA"):
            return LoggedDropDatabase(self._tokens[self._skip_fillers(start + 1)].text)
        if what in _INDEX_KINDS | {"INDEX"}:
            return self._parse_index()
        if what not in ("TABLE", "TABLES") or "TEMPORARY" in words[1:start]:
            return None
        match words[0]:
            case "DROP":
                return LoggedDrop(tuple(self._parse_names(start + 1)))
            case "RENAME":
                return LoggedRename(tuple(self._parse_steps(start + 1)))
            case "CREATE":
                return LoggedCreate(self._parse_name(start + 1)[0])
            case _:
                return self._parse_alter(start + 1, "IGNORE" in words[1:start])

    def _parse_index(self) -> LoggedAlter | None:
        """CREATE INDEX and DROP INDEX alter the table that they name after ON."""
        if "ON" not in self._words:
            return None
        table, _ = self._parse_name(self._words.index("ON") + 1)
        return LoggedAlter(table, ([Token("INDEX", False)],))

    def _skip_fillers(self, at: int) -> int:
        while at < len(self._words) and self._words[at] in _BEFORE_NAME:
            at += 1
        return at

    def _parse_name(self, start: int) -> tuple[LoggedTableName, int]:
        """The table that is named at a token, and where its name ends."""
        at = self._skip_fillers(start)
        if at >= len(self._tokens):
            return LoggedTableName(self._database, ""), at
        first = self._tokens[at].text
        if at + 2 < len(self._tokens) and self._tokens[at + 1].text == ".":
            return LoggedTableName(first, self._tokens[at + 2].text), at + 3
        return LoggedTableName(self._database, first), at + 1

    def _parse_names(self, start: int) -> Iterator[LoggedTableName]:
        """The tables that a DROP names."""
        at = start
        while at < len(self._tokens):
            table, at = self._parse_name(at)
            yield table
            if at < len(self._tokens) and self._tokens[at].text != ",":
                return
            at += 1

    def _parse_steps(self, start: int) -> Iterator[tuple[LoggedTableName, LoggedTableName]]:
        at = start
        while at < len(self._tokens):
            old, at = self._parse_name(at)
            while at < len(self._words) and self._words[at] != "TO":
                at += 1
            new, at = self._parse_name(at + 1)
            yield old, new
            at += 1

    def _mentioned_names(self, start: int) -> Iterator[LoggedTableName]:
        """Everything that could be the name of a table."""
        at = start
        while at < len(self._tokens):
            found, end = self._parse_name(at)
            yield found
            at = max(end, at + 1)

    def _parse_alter(self, start: int, loses_rows: bool) -> LoggedAlter:
        table, at = self._parse_name(start)
        at += {"WAIT": 2, "NOWAIT": 1}.get(self._words[at] if at < len(self._words) else "", 0)
        clauses = tuple(split_clauses(self._tokens[at:]))
        return LoggedAlter(table, clauses, tuple(self._mentioned_names(at)), loses_rows)


def parse_table_name(tokens: Sequence[Token], database: str) -> LoggedTableName:
    """The table that a clause names at its end."""
    return _StatementTokens(tokens, database)._parse_name(0)[0]
