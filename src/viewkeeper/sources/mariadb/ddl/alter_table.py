"""What the clauses of an ALTER TABLE make of the shape of a followed table.

All clauses speak of the table as it was before the statement: two columns can swap names in it.
Values that may have changed without row events are reported as rewritten; then those of generated
columns may have changed with them.

Values are kept where the new type has room for every value that the old one can hold. Where that is
so and they arrive as before, nothing has happened; where they arrive in a wider type, it was
widened. All else may have changed them, because a server that is not strict makes values fit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from viewkeeper.sources.mariadb.ddl.column_definition import (
    Characters,
    DeclaredColumn,
    declare_in_charset,
    find_charset,
    parse_column_definition,
)
from viewkeeper.sources.mariadb.ddl.statement import (
    LoggedAlter,
    LoggedTableName,
    Token,
    parse_table_name,
    split_clauses,
)
from viewkeeper.sources.mariadb.logged_shapes import LoggedShape, ShapedColumn
from viewkeeper.sources.mariadb.types import DeclaredType, MariadbKind, kind_of
from viewkeeper.sources.tables.column_type import ColumnRefusal, is_widening
from viewkeeper.sources.tables.shape_changes import ShapeChange
from viewkeeper.updates.schema_change import ChangeKind

Retyped = Literal["same", "widen_type", "change_type", "rewrite"]

_INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_TEXT_BYTES = {
    "tinytext": 255,
    "tinyblob": 255,
    "text": 1 << 16,
    "blob": 1 << 16,
    "mediumtext": 1 << 24,
    "mediumblob": 1 << 24,
    "longtext": 1 << 32,
    "longblob": 1 << 32,
}
_CHARACTER_BYTES = {"utf8mb3": 3, "utf8mb4": 4}
_UNICODE = {"utf8": "utf8mb3"}


def value_effect_of(old: DeclaredType, new: DeclaredType) -> Retyped:
    """What happened to the values of a column that was declared `old` and is `new` now.

    >>> value_effect_of(DeclaredType("int(11)"), DeclaredType("bigint(20)"))
    'same'
    >>> value_effect_of(DeclaredType("int(11)"), DeclaredType("decimal(12,2)"))
    'widen_type'
    """
    before, after = kind_of(old), kind_of(new)
    if isinstance(after, ColumnRefusal) or isinstance(before, ColumnRefusal):
        return "same" if type(after) is type(before) else "change_type"
    if before.arrow == after.arrow:
        return "same" if _has_room(old, before, new, after) else "rewrite"
    loses_sign = _split_type(new)[2] and not _split_type(old)[2]
    wider = not loses_sign and _is_wider(old, before, after)
    return "widen_type" if wider else "change_type"


def _split_type(declared: DeclaredType) -> tuple[str, str, bool]:
    """The type's name, what it has in parentheses, and whether it has no sign."""
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?(.*)", declared.type, re.DOTALL)
    assert match is not None, "every type begins with a name"
    return match[1], match[2] or "", "unsigned" in match[3]


def _integer_bounds(declared: DeclaredType) -> tuple[int, int] | None:
    """The least and the greatest value of a column of whole numbers."""
    name, inside, unsigned = _split_type(declared)
    if name in _INTEGER_BYTES:
        bits = 8 * _INTEGER_BYTES[name]
        return (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
    if name == "bit":
        return 0, (1 << int(inside)) - 1
    if name == "year":
        return 0, 2155
    if name == "decimal" and inside.endswith(",0"):
        most: int = 10 ** int(inside.partition(",")[0]) - 1
        return (0 if unsigned else -most), most
    return None


def _has_room(
    old: DeclaredType, before: MariadbKind, new: DeclaredType, after: MariadbKind
) -> bool:
    """Whether every value arrives as it did; both arrive in one Arrow type."""
    if old.type == new.type and old.charset == new.charset:
        return True
    if pa.types.is_string(after.arrow):
        return _keeps_text(old, before, new, after)
    if after.family == "binary":
        return _keeps_bytes(old, new)
    if after.family in ("datetime", "timestamp"):
        return before.family == after.family and _digits_of(old) <= _digits_of(new)
    held, room = _integer_bounds(old), _integer_bounds(new)
    if held is not None and room is not None and _split_type(new)[0] not in ("year", "bit"):
        return room[0] <= held[0] and held[1] <= room[1]
    name, inside, unsigned = _split_type(new)
    if name == "bit":
        return before.family == "bits" and before.length <= after.length
    # A sign that goes, or digits that are rounded to, changes values.
    loses_sign = unsigned and not _split_type(old)[2]
    return before.family == after.family and not loses_sign and (not inside or name == "decimal")


def _digits_of(declared: DeclaredType) -> int:
    return int(_split_type(declared)[1] or 0)


def _keeps_text(
    old: DeclaredType, before: MariadbKind, new: DeclaredType, after: MariadbKind
) -> bool:
    if before.family != after.family:
        return before.family == "enum" and after.family == "text" and _text_room(new)[1] > 255
    if after.family == "time":
        return _digits_of(old) == _digits_of(new)
    if after.family == "enum":
        return set(before.labels) <= set(after.labels)
    if after.family == "set":
        return [label for label in after.labels if label in before.labels] == list(before.labels)
    if after.family != "text":
        return True
    # CHAR has no blanks at the end of a value.
    blanks = _split_type(new)[0] == "char" and _split_type(old)[0] != "char"
    return (
        not blanks
        and _covers_charset(old.charset, new.charset)
        and _text_room(old) <= _text_room(new)
    )


def _covers_charset(old: str, new: str) -> bool:
    """Whether a character set has all characters of another one."""
    before, after = _UNICODE.get(old, old), _UNICODE.get(new, new)
    return after in (before, "utf8mb4") or before == "ascii"


def _text_room(declared: DeclaredType) -> tuple[int, int]:
    """The characters and the bytes that a text has room for; compared as one, smaller first."""
    name, inside, _ = _split_type(declared)
    width = _CHARACTER_BYTES.get(_UNICODE.get(declared.charset, declared.charset), 1)
    if name in _TEXT_BYTES:
        return _TEXT_BYTES[name] // width, _TEXT_BYTES[name]
    return int(inside), int(inside) * width


def _keeps_bytes(old: DeclaredType, new: DeclaredType) -> bool:
    """BINARY fills its values up with zeros."""
    before, after = _split_type(old), _split_type(new)
    if after[0] == "binary":
        return before[:2] == after[:2]
    return _text_room(old)[1] <= _text_room(new)[1]


def _is_wider(old: DeclaredType, before: MariadbKind, after: MariadbKind) -> bool:
    held = _integer_bounds(old)
    digits = None if held is None else len(str(max(-held[0], held[1])))
    # Whole numbers without a sign are kept as decimals where they have no other type.
    is_plain = after.family == "decimal" or not pa.types.is_decimal(after.arrow)
    is_unsigned = held is not None and held[0] >= 0 and before.family != "decimal"
    return (is_plain or is_unsigned) and is_widening(before.arrow, after.arrow, digits)


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
class AlterResult:
    """The shape after an ALTER TABLE and the changes that it made; `another` if the table has to be
    loaded again, `renamed` is its new name."""

    shape: LoggedShape
    changes: list[ShapeChange] = field(default_factory=list)
    another: bool = False
    renamed: LoggedTableName | None = None


@dataclass(frozen=True, slots=True)
class StatementSetting:
    """How a statement was run: where it ends in the log, whether values that do not fit were
    refused, and what characters the server has."""

    position: int
    strict: bool
    characters: Characters


def apply_alter(shape: LoggedShape, action: LoggedAlter, setting: StatementSetting) -> AlterResult:
    """What an ALTER TABLE makes of a table."""
    work = _Altering(shape, setting)
    for clause in action.clauses:
        if clause:
            work.take_clause(clause)
    if action.loses_rows:
        work.rewrite_all()
    return work.make_result()


class _Altering:
    def __init__(self, shape: LoggedShape, setting: StatementSetting) -> None:
        self._before = shape
        self._setting = setting
        self._charset = shape.charset
        self._kept: dict[str, ShapedColumn] = {column.id: column for column in shape.columns}
        self._added: list[ShapedColumn] = []
        self._changes: list[ShapeChange] = []
        self._another = False
        self._renamed: LoggedTableName | None = None

    def make_result(self) -> AlterResult:
        if self._another:
            changes = [ShapeChange("recreate_table")]
            return AlterResult(self._before, changes, another=True)
        self._add_generated_changes()
        columns = (*self._kept.values(), *self._added)
        shape = replace(self._before, columns=columns, charset=self._charset)
        return AlterResult(shape, self._changes, renamed=self._renamed)

    def _add_change(self, kind: ChangeKind, column: str, now: str = "") -> None:
        self._changes.append(ShapeChange(kind, column, now))

    def _add_generated_changes(self) -> None:
        """A generated column follows those that it is made of, without row events."""
        if any(one.kind in ("rewrite", "change_type") for one in self._changes):
            known = {one.column for one in self._changes if not one.keeps_values}
            for column in self._kept.values():
                if column.generated and column.id not in known:
                    self._add_change("rewrite", column.id)

    def rewrite_all(self) -> None:
        """Rows may have come or gone without being listed."""
        for column in self._kept.values():
            self._add_change("rewrite", column.id)
        self._another = self._another or not self._kept

    def take_clause(self, clause: Sequence[Token]) -> None:
        verb = clause[0].keyword
        second = clause[1].keyword if len(clause) > 1 else ""
        rest = _after_fillers(clause[1:])
        of_partition = second == "PARTITION" and verb in ("DROP", "TRUNCATE", "CONVERT")
        if of_partition or verb in _ROW_MOVERS:
            self.rewrite_all()
        elif verb == "CONVERT" and second in ("TO", "CHARACTER", "CHARSET"):
            self._convert_charset(clause)
        elif verb in ("ADD", "DROP", "MODIFY", "CHANGE", "RENAME", "ALTER") and rest:
            self._on_column(verb, clause, rest)
        elif verb in _HARMLESS:
            self._take_options(clause)
        else:
            self._another = True

    def _on_column(self, verb: str, clause: Sequence[Token], rest: Sequence[Token]) -> None:
        match verb:
            case "ADD":
                self._take_add(clause)
            case "DROP":
                self._take_drop(rest)
            case "MODIFY":
                self._take_declaration(rest[0], rest)
            case "CHANGE":
                self._take_declaration(rest[0], rest[1:])
            case "RENAME":
                self._take_rename(clause)
            case _:
                # ALTER COLUMN ... SET DEFAULT, and indexes that are not used any more.
                pass

    def _take_options(self, clause: Sequence[Token]) -> None:
        """Options of a table stand side by side; an engine may be anywhere among them."""
        words = [token.keyword for token in clause]
        if "ENGINE" in words:
            after = clause[words.index("ENGINE") + 1 :]
            engine = next((token.text for token in after if token.text != "="), "")
            self._another = self._another or engine.upper() != "INNODB"
        if clause[0].keyword in ("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "COMMENT", "ENGINE"):
            self._charset = find_charset(clause) or self._charset

    def _take_add(self, clause: Sequence[Token]) -> None:
        words = [token.keyword for token in clause[1:]]
        rules = words[words.index("REFERENCES") :] if "REFERENCES" in words else []
        if {"CASCADE", "NULL", "DEFAULT"}.intersection(rules) or words[0] in ("SYSTEM", "PERIOD"):
            # The next binding of it says why it is refused.
            self._another = True
        elif words[0] in _NO_COLUMN:
            return
        else:
            optional = "IF" in words[:2]
            rest = _after_fillers(clause[1:])
            if rest[0].text == "(" and not rest[0].quoted:
                for part in split_clauses(rest[1:-1]):
                    self._add_column(part, optional)
            else:
                self._add_column(rest, optional)

    def _add_column(self, tokens: Sequence[Token], optional: bool) -> None:
        if tokens[0].keyword in _NO_COLUMN:
            return
        declared = parse_column_definition(tokens, self._charset, self._setting.characters)
        if optional and self._before.column_named(declared.name) is not None:
            return
        id = f"{self._setting.position}.{len(self._added) + 1}"
        column = ShapedColumn(
            id, declared.name, declared.declared, declared.nullable, declared.generated
        )
        self._added.append(column)
        self._add_change(
            "add_filled_column" if declared.filled else "add_column", id, declared.name
        )

    def _take_drop(self, rest: Sequence[Token]) -> None:
        if rest[0].keyword in ("SYSTEM", "PERIOD"):
            self._another = True
        column = None if rest[0].keyword in _NO_COLUMN else self._before.column_named(rest[0].text)
        if column is not None:
            del self._kept[column.id]
            self._add_change("drop_column", column.id)

    def _take_rename(self, clause: Sequence[Token]) -> None:
        second = clause[1].keyword
        if second in ("INDEX", "KEY"):
            return
        if second == "COLUMN":
            old, new = [token for token in _after_fillers(clause[1:]) if token.keyword != "TO"][:2]
            column = self._before.column_named(old.text)
            if column is not None:
                self._rename_column(column, new.text)
            return
        skip = 2 if second in ("TO", "AS") else 1
        self._renamed = parse_table_name(clause[skip:], self._before.database)

    def _rename_column(self, column: ShapedColumn, name: str) -> None:
        if column.name != name:
            self._kept[column.id] = replace(self._kept[column.id], name=name)
            self._add_change("rename_column", column.id, name)

    def _take_declaration(self, old: Token, tokens: Sequence[Token]) -> None:
        column = self._before.column_named(old.text)
        if column is None:
            return
        found = parse_column_definition(tokens, self._charset, self._setting.characters)
        self._rename_column(column, found.name)
        self._redeclare_column(column, found)

    def _redeclare_column(self, column: ShapedColumn, found: DeclaredColumn) -> None:
        what = value_effect_of(column.declared, found.declared)
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
            self._add_change(what, column.id, "" if what == "rewrite" else found.declared.type)

    def _convert_charset(self, clause: Sequence[Token]) -> None:
        """All texts of the table get another character set."""
        self._charset = find_charset(clause) or self._charset
        for column in self._before.columns:
            if column.declared.charset and column.id in self._kept:
                now = declare_in_charset(
                    column.declared.type, self._charset, self._setting.characters
                )
                what = value_effect_of(column.declared, now)
                self._kept[column.id] = replace(self._kept[column.id], declared=now)
                if what != "same":
                    self._add_change(what, column.id, "" if what == "rewrite" else now.type)


def _after_fillers(tokens: Sequence[Token]) -> Sequence[Token]:
    at = next((i for i, token in enumerate(tokens) if token.keyword not in _FILLERS), 0)
    return tokens[at:]
