"""What a query would become if it were a view of the project, before there is one.

The query is bound and compiled as a view is, over the project's own sources and views, and then
explained like any other; nothing is stored and nothing is followed. Where it is refused, the parts
that are refused are listed with their places in the text and ways out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.engine.connections.open_sources import Connections, reader_of
from viewkeeper.engine.operations.view_explanation import ViewExplanation, explain_view
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.views.view_catalogue import ViewCatalogue, read_views
from viewkeeper.errors import UnsupportedError
from viewkeeper.view.sql.view_statement import NAME, parse_statement
from viewkeeper.warehouse.metadata.head import read_head

Compiling = Callable[[Settings, ViewCatalogue], AbstractContextManager[object]]
"""Lets the reports of a catalogue be compiled for as long as it is open."""
UNNAMED = "query"
"""What a query is called that comes without a name."""


@dataclass(frozen=True, slots=True)
class RefusedPart:
    """A part of a query that cannot be maintained: where it is, why, and what to write instead."""

    message: str
    line: int | None
    column: int | None
    hint: str | None


@dataclass(frozen=True, slots=True)
class RefusedQuery:
    """A query that cannot be a view as it is written."""

    view: str
    path: str | None
    incremental: bool
    refused: tuple[RefusedPart, ...]


def explain_statement(
    settings: Settings, text: str, path: str | None, compiling: Compiling
) -> ViewExplanation | RefusedQuery:
    """Explain a query that is no view yet; what is no SQL, or reads what is not there, is raised.

    A compiler is asked for only if the query is more than a select-project-join, or leaves
    expressions to Spark.
    """
    name = name_of_query(path)
    try:
        parsed = parse_statement(text, path, name)
        head = read_head(settings.warehouse)
        catalogue = read_views(settings, head, parsed)
        if not catalogue.needs_compiler(parsed.name):
            found = explain_bound(settings, catalogue, parsed.name)
            if not catalogue.unchecked:
                return found
        with compiling(settings, catalogue):
            return explain_bound(settings, catalogue, parsed.name)
    except UnsupportedError as error:
        parts = sorted((error, *error.others), key=lambda each: (each.line or 0, each.column or 0))
        return RefusedQuery(name, path, incremental=False, refused=tuple(map(_refused_part, parts)))


def explain_bound(settings: Settings, catalogue: ViewCatalogue, view: str) -> ViewExplanation:
    """Explain a view of a catalogue, bound to the project's sources."""
    connections = Connections(settings.sources, reader_of(settings.warehouse), time.time)
    with closing(connections):
        bound = catalogue.bind_view(view, connections)
        return explain_view(bound, connections, settings.algorithm_of(view))


def name_of_query(path: str | None) -> str:
    """The name that a query would have as a view: that of its file, if it can be one.

    >>> name_of_query("models/daily_sales.sql"), name_of_query("7 days.sql"), name_of_query(None)
    ('daily_sales', 'query', 'query')
    """
    stem = Path(path).stem if path is not None else ""
    return stem if NAME.fullmatch(stem) else UNNAMED


def _refused_part(error: UnsupportedError) -> RefusedPart:
    where = ":".join(str(each) for each in (error.path, error.line, error.column) if each)
    plain = error.message.removeprefix(f"{where}: ")
    return RefusedPart(re.sub(r'^view "\w+": ', "", plain), error.line, error.column, error.hint)
