"""What the clauses of an ALTER TABLE make of the shape of a followed table.

All clauses speak of the table as it was before the statement: two columns can swap names in it.
Values that may have changed without row events are told as rewritten; then those of generated
columns may have changed with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from viewkeeper.sources.mariadb.ddl.column_definition import (
    Characters,
    Definition,
    definition,
    in_charset,
    named_charset,
)
from viewkeeper.sources.mariadb.ddl.statement import Alter, Name, name_in
from viewkeeper.sources.mariadb.ddl.tokens import Token, parts
from viewkeeper.sources.mariadb.ddl.value_effect import retyped
from viewkeeper.sources.mariadb.logged_shapes import Shape, ShapedColumn
from viewkeeper.updates.schema_change import ChangeKind, SchemaChange

_INDEXES = {"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "PRIMARY", "CHECK", "CONSTRAINT"}
_NO_COLUMN = _INDEXES | {"FOREIGN", "PARTITION", "SYSTEM", "PERIOD"}
_FILLERS = {"COLUMN", "IF", "NOT", "EXISTS"}
# Clauses that take rows with them, or bring some.
_ROW_MOVERS = {"EXCHANGE", "DISCARD", "IMPORT"}
# Clauses that change no value: options of the table, work on its indexes and partitions.
_HARMLESS = frozenset(
    (
        "ALGORITHM",
        "ANALYZE",
        "AUTO_INCREMENT",
        "AVG_ROW_LENGTH",
        "CHARACTER",
        "CHARSET",
        "CHECK",
        "CHECKSUM",
        "COALESCE",
        "COLLATE",
        "COMMENT",
        "CONNECTION",
        "DATA",
        "DEFAULT",
        "DELAY_KEY_WRITE",
        "DISABLE",
        "ENABLE",
        "ENCRYPTED",
        "ENCRYPTION_KEY_ID",
        "ENGINE",
        "FORCE",
        "IETF_QUOTES",
        "INDEX",
        "INSERT_METHOD",
        "KEY_BLOCK_SIZE",
        "LOCK",
        "MAX_ROWS",
        "MIN_ROWS",
        "NOWAIT",
        "OPTIMIZE",
        "ORDER",
        "PACK_KEYS",
        "PAGE_CHECKSUM",
        "PAGE_COMPRESSED",
        "PAGE_COMPRESSION_LEVEL",
        "PARTITION",
        "PASSWORD",
        "REBUILD",
        "REMOVE",
        "REORGANIZE",
        "REPAIR",
        "ROW_FORMAT",
        "STATS_AUTO_RECALC",
        "STATS_PERSISTENT",
        "STATS_SAMPLE_PAGES",
        "STORAGE",
        "TABLESPACE",
        "TRANSACTIONAL",
        "UNION",
        "WAIT",
        "WITHOUT",
    )
)


@dataclass(slots=True)
class Altered:
    """The shape after an ALTER TABLE and what is told of it; `another` if it is to be read anew,
    `renamed` is the table's new name."""

    shape: Shape
    told: list[SchemaChange] = field(default_factory=list)
    another: bool = False
    renamed: Name | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """How a statement was run: where it ends in the log, whether values that do not fit were
    refused, and what characters the server has."""

    position: int
    strict: bool
    characters: Characters


def altered(shape: Shape, action: Alter, setting: Setting) -> Altered:
    """What an ALTER TABLE makes of a table."""
    work = _Altering(shape, setting)
    for clause in action.clauses:
        if clause:
            work.take(clause)
    if action.loses_rows:
        work.rewrite_all()
    return work.result()


class _Altering:
    def __init__(self, shape: Shape, setting: Setting) -> None:
        self._before = shape
        self._setting = setting
        self._charset = shape.charset
        self._kept: dict[str, ShapedColumn] = {column.id: column for column in shape.columns}
        self._added: list[ShapedColumn] = []
        self._told: list[SchemaChange] = []
        self._another = False
        self._renamed: Name | None = None

    def result(self) -> Altered:
        if self._another:
            told = [SchemaChange("recreate_table", self._before.id)]
            return Altered(self._before, told, another=True)
        self._tell_generated()
        columns = (*self._kept.values(), *self._added)
        shape = replace(self._before, columns=columns, charset=self._charset)
        return Altered(shape, self._told, renamed=self._renamed)

    def _tell(self, kind: ChangeKind, column: str, now: str = "") -> None:
        self._told.append(SchemaChange(kind, self._before.id, column, now))

    def _tell_generated(self) -> None:
        """A generated column follows those that it is made of, without row events."""
        if any(one.kind in ("rewrite", "change_type") for one in self._told):
            known = {one.column for one in self._told if not one.keeps_values}
            for column in self._kept.values():
                if column.generated and column.id not in known:
                    self._tell("rewrite", column.id)

    def rewrite_all(self) -> None:
        """Rows may have come or gone without being listed."""
        for column in self._kept.values():
            self._tell("rewrite", column.id)
        self._another = self._another or not self._kept

    def take(self, clause: Sequence[Token]) -> None:
        verb = clause[0].word
        second = clause[1].word if len(clause) > 1 else ""
        rest = _after_fillers(clause[1:])
        of_partition = second == "PARTITION" and verb in ("DROP", "TRUNCATE", "CONVERT")
        if of_partition or verb in _ROW_MOVERS:
            self.rewrite_all()
        elif verb == "CONVERT" and second in ("TO", "CHARACTER", "CHARSET"):
            self._convert(clause)
        elif verb in ("ADD", "DROP", "MODIFY", "CHANGE", "RENAME", "ALTER") and rest:
            self._on_column(verb, clause, rest)
        elif verb in _HARMLESS:
            self._options(clause)
        else:
            self._another = True

    def _on_column(self, verb: str, clause: Sequence[Token], rest: Sequence[Token]) -> None:
        match verb:
            case "ADD":
                self._add(clause)
            case "DROP":
                self._drop(rest)
            case "MODIFY":
                self._declare(rest[0], rest)
            case "CHANGE":
                self._declare(rest[0], rest[1:])
            case "RENAME":
                self._rename(clause)
            case _:
                # ALTER COLUMN ... SET DEFAULT, and indexes that are not used any more.
                pass

    def _options(self, clause: Sequence[Token]) -> None:
        """Options of a table stand side by side; an engine may be anywhere among them."""
        words = [token.word for token in clause]
        if "ENGINE" in words:
            after = clause[words.index("ENGINE") + 1 :]
            engine = next((token.text for token in after if token.text != "="), "")
            self._another = self._another or engine.upper() != "INNODB"
        if clause[0].word in ("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "COMMENT", "ENGINE"):
            self._charset = named_charset(clause) or self._charset

    def _add(self, clause: Sequence[Token]) -> None:
        words = [token.word for token in clause[1:]]
        rules = words[words.index("REFERENCES") :] if "REFERENCES" in words else []
        if {"CASCADE", "NULL", "DEFAULT"}.intersection(rules) or words[0] in ("SYSTEM", "PERIOD"):
            # Whoever binds it again is told why it is refused.
            self._another = True
        elif words[0] in _NO_COLUMN:
            return
        else:
            optional = "IF" in words[:2]
            rest = _after_fillers(clause[1:])
            if rest[0].text == "(" and not rest[0].quoted:
                for part in parts(rest[1:-1]):
                    self._add_column(part, optional)
            else:
                self._add_column(rest, optional)

    def _add_column(self, tokens: Sequence[Token], optional: bool) -> None:
        if tokens[0].word in _NO_COLUMN:
            return
        declared = definition(tokens, self._charset, self._setting.characters)
        if optional and self._before.called(declared.name) is not None:
            return
        id = f"{self._setting.position}.{len(self._added) + 1}"
        column = ShapedColumn(
            id, declared.name, declared.declared, declared.nullable, declared.generated
        )
        self._added.append(column)
        self._tell("add_filled_column" if declared.filled else "add_column", id, declared.name)

    def _drop(self, rest: Sequence[Token]) -> None:
        if rest[0].word in ("SYSTEM", "PERIOD"):
            self._another = True
        column = None if rest[0].word in _NO_COLUMN else self._before.called(rest[0].text)
        if column is not None:
            del self._kept[column.id]
            self._tell("drop_column", column.id)

    def _rename(self, clause: Sequence[Token]) -> None:
        second = clause[1].word
        if second in ("INDEX", "KEY"):
            return
        if second == "COLUMN":
            old, new = [token for token in _after_fillers(clause[1:]) if token.word != "TO"][:2]
            column = self._before.called(old.text)
            if column is not None:
                self._call(column, new.text)
            return
        skip = 2 if second in ("TO", "AS") else 1
        self._renamed = name_in(clause[skip:], self._before.database)

    def _call(self, column: ShapedColumn, name: str) -> None:
        if column.name != name:
            self._kept[column.id] = replace(self._kept[column.id], name=name)
            self._tell("rename_column", column.id, name)

    def _declare(self, old: Token, tokens: Sequence[Token]) -> None:
        column = self._before.called(old.text)
        if column is None:
            return
        found = definition(tokens, self._charset, self._setting.characters)
        self._call(column, found.name)
        self._redeclare(column, found)

    def _redeclare(self, column: ShapedColumn, found: Definition) -> None:
        what = retyped(column.declared, found.declared)
        # Where values that do not fit are not refused, NULL becomes some other value.
        filled = not self._setting.strict and column.nullable and not found.nullable
        if what == "same" and (found.generated or column.generated or filled):
            what = "rewrite"
        self._kept[column.id] = replace(
            self._kept[column.id],
            declared=found.declared,
            nullable=found.nullable,
            generated=found.generated,
        )
        if what != "same":
            self._tell(what, column.id, "" if what == "rewrite" else found.declared.type)

    def _convert(self, clause: Sequence[Token]) -> None:
        """All texts of the table get another character set."""
        self._charset = named_charset(clause) or self._charset
        for column in self._before.columns:
            if column.declared.charset and column.id in self._kept:
                now = in_charset(column.declared.type, self._charset, self._setting.characters)
                what = retyped(column.declared, now)
                self._kept[column.id] = replace(self._kept[column.id], declared=now)
                if what != "same":
                    self._tell(what, column.id, "" if what == "rewrite" else now.type)


def _after_fillers(tokens: Sequence[Token]) -> Sequence[Token]:
    at = next((i for i, token in enumerate(tokens) if token.word not in _FILLERS), 0)
    return tokens[at:]
