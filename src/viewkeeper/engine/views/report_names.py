"""Names in a report that nothing has, as far as that is certain without Spark.

Spark alone resolves the names of a report, and it is slow to start. But a column that no table of
the text has, and that nothing else in the text defines, is an error whatever Spark says. So the
question here is not what a name means but whether anything could have it: aliases, names that WITH
or a subquery defines, and words in quotes, which can become names of columns too, count for all
places. What is not certain so is left to Spark: a name that is found here may still be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from viewkeeper.errors import DefinitionError, suggest_names
from viewkeeper.view.definition import Field
from viewkeeper.view.sql import functions
from viewkeeper.view.sql.clock_calls import BARE
from viewkeeper.view.sql.report_query import ReportQuery, TableName
from viewkeeper.view.sql.scope import Schema, qualifier_of
from viewkeeper.view.sql.sql_text import SqlText, leaf_span_of
from viewkeeper.view.sql.view_statement import ParsedView

_WORD = re.compile(r"\w+")
_GIVEN_NAMES = re.compile(r"pos|key|value|id|col\d*|c\d+")
"""How Spark names the columns of generators and of VALUES, where the text does not."""


@dataclass(frozen=True, slots=True)
class ReportNames:
    """What the names of one report can stand for."""

    sql: SqlText
    report: ReportQuery
    schema: Schema
    defined: frozenset[str]
    """Everything that has a name and is no column of a table, in lower case."""
    has_unseen: bool
    """Whether columns can have names that are nowhere in the text, as those of PIVOT have."""

    def find_unknown(self) -> DefinitionError | None:
        """The first column, or table before a column, that nothing in the text has."""
        found = []
        for column in self.report.tree.find_all(exp.Column):
            span = leaf_span_of(column)
            if span is None or isinstance(column.this, exp.Star):
                continue
            error = self._judge_column(column, span.start)
            found += [] if error is None else [(span.start, error)]
        return min(found, key=lambda each: each[0])[1] if found else None

    def fields_of(self, column: exp.Column) -> list[Field] | None:
        """The columns among which a reference must be; None if that is not certain."""
        qualifier = [part.lower() for part in qualifier_of(column)]
        if not qualifier:
            return None
        tables = [table for table in self.report.tables if _is_named(table, qualifier)]
        if not tables or qualifier[-1] in self.defined:
            return None
        return [field for table in tables for field in self.schema(table.relation)]

    def type_of_column(self, column: exp.Column) -> pa.DataType | None:
        """The type of the column that a reference means; None if that is not certain."""
        name, fields = column.name.lower(), self.fields_of(column)
        if fields is None:
            # A set operation gives its columns other types than the tables have.
            is_left = self.has_unseen or name in self.defined or qualifier_of(column)
            if is_left or self.report.tree.find(exp.SetOperation) is not None:
                return None
            fields = [field for table in self.report.relations for field in self.schema(table)]
        kinds = {field.type for field in fields if field.name.lower() == name}
        return kinds.pop() if len(kinds) == 1 else None

    def _judge_column(self, column: exp.Column, offset: int) -> DefinitionError | None:
        name, qualifier = column.name, qualifier_of(column)
        if not _WORD.fullmatch(name) or name[0].isdigit():
            return None
        if (fields := self.fields_of(column)) is not None:
            return self._unknown_among(fields, name, offset)
        every = [field for table in self.report.relations for field in self.schema(table)]
        if not qualifier:
            is_left = self.has_unseen or name.lower() in self.defined or name.lower() in BARE
            return None if is_left else self._unknown_among(every, name, offset)
        first = qualifier[0].lower()
        known = self.defined | {field.name.lower() for field in every}
        known |= {part.lower() for table in self.report.tables for part in _parts_of(table)}
        if len(qualifier) > 1 or first in known or self.has_unseen or not first.isidentifier():
            return None
        aliases = [table.alias for table in self.report.tables]
        hint = suggest_names(qualifier[0], aliases)
        return self.sql.error_at(f'unknown table "{qualifier[0]}"', offset, hint=hint)

    def _unknown_among(self, fields: list[Field], name: str, offset: int) -> DefinitionError | None:
        names = sorted({field.name for field in fields})
        if name.lower() in {each.lower() for each in names}:
            return None
        detail = f"columns that can be named here: {', '.join(names) or 'none'}"
        hint = suggest_names(name, names)
        return self.sql.error_at(f'unknown column "{name}"', offset, detail=detail, hint=hint)


def names_of_report(parsed: ParsedView, schema: Schema) -> ReportNames:
    """The names of a report over relations with these columns."""
    report = parsed.report
    assert report is not None, "the names of a plain view are resolved when it is bound"
    text = parsed.plain.text_of(parsed.body).lower()
    words = {*_WORD.findall(text)}
    defined = {*_defined_names(report)}
    if words & {*functions.GENERATORS, *functions.TABLES, "values"}:
        defined |= {word for word in words if _GIVEN_NAMES.fullmatch(word)}
    has_unseen = report.tree.find(exp.Pivot) is not None
    return ReportNames(parsed.sql, report, schema, frozenset(defined), has_unseen)


def _defined_names(report: ReportQuery) -> Iterator[str]:
    """Names that the text gives to something, and words in quotes, in lower case."""
    tables = {table.span.end for table in report.tables}
    for node in report.tree.walk():
        if isinstance(node, exp.Identifier) and not isinstance(node.parent, exp.Column):
            if not _is_of_table(node, tables):
                yield node.name.lower()
        elif isinstance(node, exp.Literal) and node.is_string:
            yield from _WORD.findall(node.name.lower())


def _is_of_table(identifier: exp.Identifier, ends: set[int]) -> bool:
    """Whether an identifier is the name of a table that is read, or its alias, and nothing else."""
    parent = identifier.parent
    if isinstance(parent, exp.TableAlias):
        if identifier.arg_key != "this" or parent.args.get("columns"):
            return False
        parent = parent.parent
    if not isinstance(parent, exp.Table) or parent.args.get("pivots"):
        return False
    span = leaf_span_of(parent.this)
    return span is not None and span.end in ends


def _parts_of(table: TableName) -> list[str]:
    return [table.alias, table.relation.source, *table.relation.table.split(".")]


def _is_named(table: TableName, qualifier: list[str]) -> bool:
    names = [table.alias]
    if not table.aliased:
        names = [table.relation.source, *table.relation.table.split(".")]
    return [name.lower() for name in names[-len(qualifier) :]] == qualifier
