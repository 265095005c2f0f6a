"""Tables whose rows may go by their key alone, as the user asked for, and views that can bear it.

Where a source logs only the key of a deleted row, the view's own rows with that key are deleted. So
the view must show the key, at every place where it uses the table.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.errors import ProjectError
from viewkeeper.evolution.synchronization.quoted_names import quote_if_needed, quote_source_table
from viewkeeper.sources.kinds import whole_rows_remedy
from viewkeeper.view.definition import Relation, ViewDefinition, name_of_handle
from viewkeeper.view.expression import Column


def relations_deleted_by_key(
    view: ViewDefinition, connections: Connections
) -> tuple[Relation, ...]:
    """The relations of a view of which rows may go by their key only, as the user asked for."""
    found = []
    for relation in view.relations:
        if relation.is_own:
            continue
        listed = connections.settings[relation.source].options.get("delete_by_key", ())
        assert isinstance(listed, Sequence)
        if name_of_handle(relation.table) in listed:
            found.append(relation)
    return tuple(found)


def shown_keys(view: ViewDefinition, relation: Relation, key: Sequence[str]) -> list[list[str]]:
    """For every use of a relation, the view's columns that show its key; an error if one does not.

    A view of which rows are deleted by key must hold the key.
    """
    shown = {o.expression: o.name for o in view.outputs if isinstance(o.expression, Column)}
    found = []
    for place in (place for place in view.places if place.relation == relation):
        names = {c.name: name for c, name in shown.items() if c.place == place.index}
        missing = [column for column in key if column not in names]
        if missing or not key:
            alias = quote_if_needed(place.alias)
            wanted = ", ".join(f"{alias}.{quote_if_needed(column)}" for column in missing)
            raise ProjectError(
                f'view "{view.name}": it does not show the key of {relation}, whose rows are '
                "deleted by key",
                detail=f"missing: {', '.join(missing) or 'the table has no key'}",
                hint=f"select {wanted} in the view, or "
                f"{whole_rows_remedy(quote_source_table(relation.table))}",
            )
        found.append([names[column] for column in key])
    return found
