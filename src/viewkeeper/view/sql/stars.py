"""The stars of a view: which tables they make columns of it from.

Only stars whose columns become the view's count. That of `EXISTS (SELECT * ...)`, and one inside of
a subquery from which columns are picked by name, adds nothing to the view.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, build_scope

from viewkeeper.view.definition import Relation
from viewkeeper.view.sql.view_statement import ParsedView


def star_aliases(parsed: ParsedView) -> Iterator[str | None]:
    """What the stars of a plain select stand for: everything (None), or one alias."""
    for item in parsed.parts.items:
        node = item.piece.node
        if isinstance(node, exp.Star):
            yield None
        elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            yield node.table.lower()


def starred_relations(parsed: ParsedView) -> Iterator[Relation]:
    """The tables of sources all of whose columns a star makes columns of the view."""
    if parsed.report is None:
        stars = set(star_aliases(parsed))
        for use in parsed.parts.tables:
            if (None in stars or use.alias.lower() in stars) and not use.relation.is_own:
                yield use.relation
        return
    scope = build_scope(parsed.report.tree)
    for table in _starred_tables(scope) if scope else ():
        source, *path = (part.name for part in table.parts)
        if path and not isinstance(table.this, exp.Func):
            yield Relation(source, ".".join(path))


def _starred_tables(scope: Scope) -> Iterator[exp.Table]:
    for part in scope.set_operation_scopes or ():
        yield from _starred_tables(part)
    selects = scope.expression.selects if isinstance(scope.expression, exp.Select) else ()
    for select in selects:
        if not isinstance(select, exp.Star | exp.Column) or not select.is_star:
            continue
        whose = select.table.lower() if isinstance(select, exp.Column) else ""
        for alias, (_, source) in scope.selected_sources.items():
            if not whose or alias.lower() == whose:
                if isinstance(source, Scope):
                    yield from _starred_tables(source)
                else:
                    yield source
