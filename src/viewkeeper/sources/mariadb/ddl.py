"""What a statement in the binlog means for the tables that are followed.

In a row binlog the statements that remain as text are those that change tables themselves, and the
frame of transactions. Only their first words, the tables that they name and, for ALTER TABLE, the
first words of each action are looked at, by tokens: that never fails on a clause of some newer
server. What is not known to be harmless to a followed table counts as a change of its shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from sqlglot import TokenType
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import TokenError

# MariaDB runs what is in such a comment; dumps and tools write them.
_EXECUTED = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)
_BEGINNING = re.compile(r"(?:\s|/\*.*?\*/|--[^\n]*\n|#[^\n]*\n)*(\w*)", re.DOTALL)
_INDEXES = {"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "PRIMARY", "CHECK"}
_QUOTED = {TokenType.IDENTIFIER, TokenType.STRING}
_FILLERS = {"COLUMN", "IF", "NOT", "EXISTS"}
# Parts of a table whose coming or going takes rows with it, or keeps rows that are gone.
_ROW_MOVERS = {"PARTITION", "SYSTEM", "PERIOD"}
_ROW_WORDS = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "SELECT", "DO"}
# Clauses of ALTER TABLE that change no value of a column that was there before.
_HARMLESS = {
    "ALGORITHM",
    "AUTO_INCREMENT",
    "AVG_ROW_LENGTH",
    "CHECKSUM",
    "COMMENT",
    "DEFAULT",
    "DELAY_KEY_WRITE",
    "DISABLE",
    "ENABLE",
    "FORCE",
    "KEY_BLOCK_SIZE",
    "LOCK",
    "MAX_ROWS",
    "MIN_ROWS",
    "ORDER",
    "PACK_KEYS",
    "PAGE_COMPRESSED",
    "PAGE_COMPRESSION_LEVEL",
    "ROW_FORMAT",
    "STATS_AUTO_RECALC",
    "STATS_PERSISTENT",
    "STATS_SAMPLE_PAGES",
}


@dataclass(frozen=True, slots=True)
class Emptied:
    """All rows of these tables went, without being listed."""

    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reshaped:
    """A followed table is not any more what it was; `what` says how."""

    table: str
    what: str


@dataclass(frozen=True, slots=True)
class Unlisted:
    """Rows of a followed table may have been changed by a statement that lists none of them."""

    table: str


Effect = Emptied | Reshaped | Unlisted


@dataclass(frozen=True, slots=True)
class Followed:
    """The followed tables by their full names, each with its followed columns in lower case.

    `folds` where the server does not tell upper from lower case in names of tables.
    """

    columns: Mapping[str, frozenset[str]]
    folds: bool = False

    def find(self, database: str, name: str) -> str | None:
        full = f"{database}.{name}"
        if full in self.columns:
            return full
        if self.folds:
            return next((table for table in self.columns if table.lower() == full.lower()), None)
        return None


def first_word(statement: str) -> str:
    """The word that a statement begins with; comments do not count."""
    return _split(statement)[0]


def _split(statement: str) -> tuple[str, str]:
    text = _EXECUTED.sub(r" \1 ", statement)
    match = _BEGINNING.match(text)
    return (match[1].upper(), text[match.end() :]) if match else ("", text)


def effect_of(statement: str, database: str, followed: Followed) -> Effect | None:
    """What a statement, run in a database, does to followed tables; None if nothing."""
    if not followed.columns or not _names_any(statement, followed):
        return None
    first, rest = _split(statement)
    try:
        # Without the first word, of which some make the tokenizer take the rest as one piece.
        tokens = MySQL.Tokenizer().tokenize(rest)
    except TokenError:
        return Reshaped(next(iter(followed.columns)), "a statement that names it cannot be read")
    names = [Token(token.text, token.token_type in _QUOTED) for token in tokens]
    return _Statement(_bare([Token(first, False), *names]), database, followed).effect()


def _names_any(statement: str, followed: Followed) -> bool:
    """A quick look: whether the text has the name of a followed table or of its database."""
    lowered = statement.lower().replace("``", "`")
    return any(part.lower() in lowered for table in followed.columns for part in _halves(table))


@cache
def _halves(table: str) -> tuple[str, ...]:
    return tuple(table.split(".", 1))


@dataclass(frozen=True, slots=True)
class Token:
    """A word, name or sign of a statement; what is quoted is never a keyword."""

    text: str
    quoted: bool

    @property
    def word(self) -> str:
        return "" if self.quoted else self.text.upper()


def _bare(tokens: Sequence[Token]) -> Sequence[Token]:
    """A statement without the settings that it is run with: SET STATEMENT ... FOR ..."""
    words = [token.word for token in tokens]
    if words[:2] == ["SET", "STATEMENT"] and "FOR" in words:
        return _bare(tokens[words.index("FOR") + 1 :])
    return tokens


class _Statement:
    """The tokens of a statement, and what it does."""

    def __init__(self, tokens: Sequence[Token], database: str, followed: Followed) -> None:
        self._tokens = tokens
        self._words = [token.word for token in tokens]
        self._database = database
        self._followed = followed

    def effect(self) -> Effect | None:
        words = self._words or [""]
        if words[0] == "TRUNCATE":
            found = self._tables(2 if words[1:2] == ["TABLE"] else 1)
            return Emptied(tuple(found)) if found else None
        if words[0] in _ROW_WORDS:
            named = next(iter(self._mentioned()), None)
            return None if named is None else Unlisted(named)
        if words[0] in ("DROP", "CREATE", "RENAME", "ALTER"):
            return self._definition()
        return None

    def _definition(self) -> Reshaped | None:
        words = self._words
        skip = {"OR", "REPLACE", "IF", "EXISTS", "NOT", "IGNORE", "ONLINE", "TEMPORARY"}
        start = next((i for i, word in enumerate(words[1:], 1) if word not in skip), len(words))
        what = words[start] if start < len(words) else ""
        if what in ("DATABASE", "SCHEMA") and words[0] == "DROP":
            name = self._tokens[-1].text
            same = str.lower if self._followed.folds else str
            tables = self._followed.columns
            lost = next((t for t in tables if same(_halves(t)[0]) == same(name)), None)
            return None if lost is None else Reshaped(lost, "its database was dropped")
        if what not in ("TABLE", "TABLES") or "TEMPORARY" in words[1:start]:
            return None
        found = self._tables(start + 1)
        if words[0] == "ALTER" and found and "IGNORE" in words[1:start]:
            return Reshaped(found[0], "ALTER IGNORE TABLE may have removed rows")
        if words[0] == "ALTER":
            return self._altered(found[0], start + 1) if found else self._exchanged(start + 1)
        if words[0] == "CREATE" and "REPLACE" not in words[1:start]:
            return None
        verb = {"DROP": "dropped", "RENAME": "renamed", "CREATE": "replaced"}[words[0]]
        if words[0] == "CREATE":
            found = found[:1] if self._table_at(start + 1)[0] in found else []
        return Reshaped(found[0], f"it was {verb}") if found else None

    def _tables(self, start: int) -> list[str]:
        """The followed tables in the list of tables that begins at a token, or in the whole rest
        of a RENAME; for ALTER and CREATE that is one."""
        if self._words[0] in ("ALTER", "CREATE"):
            found, _ = self._table_at(start)
            return [found] if found else []
        return list(dict.fromkeys(self._mentioned(start)))

    def _table_at(self, start: int) -> tuple[str | None, int]:
        """The followed table that is named at a token, and where its name ends."""
        while start < len(self._words) and self._words[start] in ("IF", "NOT", "EXISTS"):
            start += 1
        if start >= len(self._tokens):
            return None, start
        first = self._tokens[start].text
        if start + 2 < len(self._tokens) and self._tokens[start + 1].text == ".":
            return self._followed.find(first, self._tokens[start + 2].text), start + 3
        return self._followed.find(self._database, first), start + 1

    def _mentioned(self, start: int = 0) -> Iterator[str]:
        at = start
        while at < len(self._tokens):
            found, end = self._table_at(at)
            if found:
                yield found
            at = max(end, at + 1)

    def _altered(self, table: str, start: int) -> Reshaped | None:
        _, at = self._table_at(start)
        at += {"WAIT": 2, "NOWAIT": 1}.get(self._words[at] if at < len(self._words) else "", 0)
        for action in self._actions(at):
            what = self._harm(table, action)
            if what:
                return Reshaped(table, what)
        return None

    def _exchanged(self, start: int) -> Reshaped | None:
        """Rows of a followed table may have come from, or gone to, a partition of another one."""
        if not {"EXCHANGE", "CONVERT"}.intersection(self._words[start:]):
            return None
        found = next(self._mentioned(start), None)
        return None if found is None else Reshaped(found, "its rows went to another table")

    def _actions(self, start: int) -> Iterator[list[Token]]:
        """The clauses of an ALTER TABLE: parts between commas that are in no parentheses."""
        depth = 0
        action: list[Token] = []
        for token in self._tokens[start:]:
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if token.text == "," and depth == 0:
                yield action
                action = []
            else:
                action.append(token)
        if action:
            yield action

    def _harm(self, table: str, action: Sequence[Token]) -> str | None:
        """What an action does to followed columns or rows; None if nothing."""
        verb = action[0].word if action else ""
        rest = [token for token in action[1:] if token.word not in _FILLERS]
        columns = self._followed.columns[table]
        if verb == "ADD":
            return _added([token.word for token in rest])
        if verb in _ON_COLUMNS:
            return _ON_COLUMNS[verb](rest, columns)
        if verb == "ENGINE" or verb in _HARMLESS:
            return _other_engine(action)
        return "ALTER TABLE ... " + " ".join(token.text for token in action[:4])


def _other_engine(options: Sequence[Token]) -> str | None:
    """Options of a table stand side by side; an engine may be anywhere among them."""
    words = [token.word for token in options]
    if "ENGINE" not in words:
        return None
    engine = next(t.text for t in options[words.index("ENGINE") + 1 :] if t.text != "=")
    return None if engine.upper() == "INNODB" else f"its engine became {engine}"


def _added(words: Sequence[str]) -> str | None:
    if words[:1] and words[0] in _ROW_MOVERS:
        return f"ALTER TABLE ... ADD {words[0]}"
    rules = words[words.index("REFERENCES") :] if "REFERENCES" in words else []
    if {"CASCADE", "NULL"}.intersection(rules):
        return "a foreign key was added that changes its rows by itself"
    return None


def _dropped(rest: Sequence[Token], columns: frozenset[str]) -> str | None:
    first = rest[0].word
    if first in _ROW_MOVERS:
        return f"ALTER TABLE ... DROP {first}"
    if first in _INDEXES | {"CONSTRAINT", "FOREIGN"}:
        return None
    return _named(rest[:1], columns, "dropped")


def _modified(rest: Sequence[Token], columns: frozenset[str]) -> str | None:
    return _named(rest[:1], columns, "modified")


def _changed(rest: Sequence[Token], columns: frozenset[str]) -> str | None:
    return _named(rest[:2], columns, "changed")


def _renamed(rest: Sequence[Token], columns: frozenset[str]) -> str | None:
    if rest[0].word in ("INDEX", "KEY"):
        return None
    if len(rest) == 3 and rest[1].word == "TO":
        return _named([rest[0], rest[2]], columns, "renamed")
    return "it was renamed"


def _altered(rest: Sequence[Token], columns: frozenset[str]) -> str | None:
    if rest[0].word in ("INDEX", "KEY") or "DEFAULT" in [token.word for token in rest]:
        return None
    return _named(rest[:1], columns, "altered")


def _named(tokens: Sequence[Token], columns: frozenset[str], verb: str) -> str | None:
    found = next((token.text for token in tokens if token.text.lower() in columns), None)
    return None if found is None else f'column "{found}" was {verb}'


_ON_COLUMNS: Mapping[str, Callable[[Sequence[Token], frozenset[str]], str | None]] = {
    "DROP": _dropped,
    "MODIFY": _modified,
    "CHANGE": _changed,
    "RENAME": _renamed,
    "ALTER": _altered,
}
