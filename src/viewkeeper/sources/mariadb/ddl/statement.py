"""What a statement in the binlog does to tables, by the names that it has for them.

In a row binlog the statements that remain as text are those that change tables themselves, and the
frame of transactions. Only their first words, the tables that they name and the clauses of ALTER
TABLE are looked at, by tokens (`tokens`). What it all means for the tables that are followed is
said in `reshape`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from viewkeeper.sources.mariadb.ddl.tokens import Token, parts, tokens_of

_ROW_WORDS = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "SELECT", "DO"}
_BEFORE_WHAT = {"OR", "REPLACE", "IF", "EXISTS", "NOT", "IGNORE", "ONLINE", "TEMPORARY"}
_BEFORE_NAME = {"IF", "NOT", "EXISTS"}
_INDEX_KINDS = {"UNIQUE", "FULLTEXT", "SPATIAL"}


@dataclass(frozen=True, slots=True)
class Name:
    """A table as a statement names it, in the database that is meant."""

    database: str
    table: str


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of a table went, without being listed."""

    table: Name


@dataclass(frozen=True, slots=True)
class Rename:
    """Tables got other names, one after the other."""

    steps: tuple[tuple[Name, Name], ...]


@dataclass(frozen=True, slots=True)
class Drop:
    tables: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class DropDatabase:
    database: str


@dataclass(frozen=True, slots=True)
class Create:
    """A table was made, perhaps in the place of another one."""

    table: Name


@dataclass(frozen=True, slots=True)
class Alter:
    """A table was altered by these clauses; `mentioned` are names of tables in them.

    `loses_rows` if rows that break a new rule go (ALTER IGNORE).
    """

    table: Name
    clauses: tuple[Sequence[Token], ...]
    mentioned: tuple[Name, ...] = ()
    loses_rows: bool = False


@dataclass(frozen=True, slots=True)
class Unlisted:
    """Rows of these tables may have been changed by a statement that lists none of them."""

    tables: tuple[Name, ...]


Action = Truncate | Rename | Drop | DropDatabase | Create | Alter | Unlisted


def action_of(statement: str, database: str) -> Action | None:
    """What a statement does, run in a database; None if it is nothing to tables.

    An UnreadableError if it cannot be told.
    """
    return _Statement(tokens_of(statement), database).action()


class _Statement:
    """The tokens of a statement, and what it does."""

    def __init__(self, tokens: Sequence[Token], database: str) -> None:
        self._tokens = tokens
        self._words = [token.word for token in tokens] or [""]
        self._database = database

    def action(self) -> Action | None:
        words = self._words
        if words[0] == "TRUNCATE":
            return Truncate(self._name(2 if words[1:2] == ["TABLE"] else 1)[0])
        if words[0] in _ROW_WORDS:
            return Unlisted(tuple(self._mentioned(1)))
        if words[0] in ("DROP", "CREATE", "RENAME", "ALTER"):
            return self._definition()
        return None

    def _definition(self) -> Action | None:
        words = self._words
        start = next(
            (i for i, word in enumerate(words[1:], 1) if word not in _BEFORE_WHAT), len(words)
        )
        what = words[start] if start < len(words) else ""
        if words[0] == "DROP" and what in ("DATABASE", "SCHEMA"):
            return DropDatabase(self._tokens[self._named(start + 1)].text)
        if what in _INDEX_KINDS | {"INDEX"}:
            return self._index()
        if what not in ("TABLE", "TABLES") or "TEMPORARY" in words[1:start]:
            return None
        match words[0]:
            case "DROP":
                return Drop(tuple(self._list(start + 1)))
            case "RENAME":
                return Rename(tuple(self._steps(start + 1)))
            case "CREATE":
                return Create(self._name(start + 1)[0])
            case _:
                return self._alter(start + 1, "IGNORE" in words[1:start])

    def _index(self) -> Alter | None:
        """CREATE INDEX and DROP INDEX alter the table that they name after ON."""
        if "ON" not in self._words:
            return None
        table, _ = self._name(self._words.index("ON") + 1)
        return Alter(table, ([Token("INDEX", False)],))

    def _named(self, at: int) -> int:
        while at < len(self._words) and self._words[at] in _BEFORE_NAME:
            at += 1
        return at

    def _name(self, start: int) -> tuple[Name, int]:
        """The table that is named at a token, and where its name ends."""
        at = self._named(start)
        if at >= len(self._tokens):
            return Name(self._database, ""), at
        first = self._tokens[at].text
        if at + 2 < len(self._tokens) and self._tokens[at + 1].text == ".":
            return Name(first, self._tokens[at + 2].text), at + 3
        return Name(self._database, first), at + 1

    def _list(self, start: int) -> Iterator[Name]:
        """The tables that a DROP names."""
        at = start
        while at < len(self._tokens):
            table, at = self._name(at)
            yield table
            if at < len(self._tokens) and self._tokens[at].text != ",":
                return
            at += 1

    def _steps(self, start: int) -> Iterator[tuple[Name, Name]]:
        at = start
        while at < len(self._tokens):
            old, at = self._name(at)
            while at < len(self._words) and self._words[at] != "TO":
                at += 1
            new, at = self._name(at + 1)
            yield old, new
            at += 1

    def _mentioned(self, start: int) -> Iterator[Name]:
        """Everything that could be the name of a table."""
        at = start
        while at < len(self._tokens):
            found, end = self._name(at)
            yield found
            at = max(end, at + 1)

    def _alter(self, start: int, loses_rows: bool) -> Alter:
        table, at = self._name(start)
        at += {"WAIT": 2, "NOWAIT": 1}.get(self._words[at] if at < len(self._words) else "", 0)
        clauses = tuple(parts(self._tokens[at:]))
        return Alter(table, clauses, tuple(self._mentioned(at)), loses_rows)


def name_in(tokens: Sequence[Token], database: str) -> Name:
    """The table that a clause names at its end."""
    return _Statement(tokens, database)._name(0)[0]
