"""Columns that a view names and that exist, but that no view can use: why, and what helps.

To binding, and to Spark, such a column is not there, because the tables that they are given have
only columns whose values can be kept. So an error that points at the name of one is raised again
with what the source says about it, and a star that would leave one out is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.errors import DefinitionError
from viewkeeper.view.definition import Relation

if TYPE_CHECKING:
    from viewkeeper.view.sql.view_statement import ParsedView

_PART = r"""(?:`[^`]*`|"[^"]*"|\w+)"""
_NAME = re.compile(rf"(?:{_PART}\s*\.\s*)*({_PART})")


def explain_refusal(
    parsed: ParsedView, connections: Connections, error: DefinitionError
) -> DefinitionError:
    """The error, or what is true instead if it points at a column that is refused."""
    name = _name_at(parsed.sql.text, error)
    for relation, column, refusal in _find_refusals(parsed.relations, connections, name):
        reason, _, hint = refusal.partition("; ")
        return DefinitionError(
            f'{parsed.sql.subject}column "{column}" of {relation.source}.{relation.table} exists,'
            " but cannot be used",
            path=error.path,
            line=error.line,
            column=error.column,
            detail=reason,
            hint=hint or None,
        )
    return error


def refuse_narrow_star(parsed: ParsedView, connections: Connections) -> None:
    """DefinitionError if a star of the view's columns stands for one that cannot be used."""
    from viewkeeper.view.sql.stars import starred_relations

    for relation in dict.fromkeys(starred_relations(parsed)):
        source = connections.get_source(relation.source)
        described = source.describe_table(source.handle_of(relation.table))
        for column, refusal in described.refused.items():
            kept = ", ".join(field.name for field in described.fields)
            raise DefinitionError(
                f'{parsed.sql.subject}the star stands for column "{column}" of '
                f"{relation.source}.{relation.table} too, which cannot be used",
                path=parsed.path,
                detail=refusal,
                hint=f"name the columns that the view is to have: {kept}",
            )


def _find_refusals(
    relations: Iterable[Relation], connections: Connections, name: str
) -> Iterable[tuple[Relation, str, str]]:
    for relation in relations if name else ():
        if not relation.is_own:
            source = connections.get_source(relation.source)
            described = source.describe_table(source.handle_of(relation.table))
            for column, refusal in described.refused.items():
                if column.lower() == name.lower():
                    yield relation, column, refusal


def _name_at(text: str, error: DefinitionError) -> str:
    """The column that is named at the place of an error; empty if there is no name.

    >>> _name_at("SELECT o.tags FROM o", DefinitionError("unknown", line=1, column=8))
    'tags'
    """
    lines = text.split("\n")
    if error.line is None or error.column is None or error.line > len(lines):
        return ""
    found = _NAME.match(lines[error.line - 1], error.column - 1)
    return found.group(1).strip('`"') if found else ""
