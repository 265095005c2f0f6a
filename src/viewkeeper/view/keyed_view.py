"""A view with the keys of all its relations among its columns.

The Strobe family deletes by key, so every stored row must show from which row of every relation it
comes. A key column that the select list has already is used as it is; the others are added under
reserved names and hidden when the view is read (Strobe, section 5.1). With all keys there, stored
rows are distinct.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from viewkeeper.view.definition import Field, Output, Place, Relation, ViewDefinition
from viewkeeper.view.expression import Column
from viewkeeper.view.render import extend_query, quote_name

PREFIX = "_key_"


@dataclass(frozen=True, slots=True)
class KeyedView:
    """The view as it is stored, and where each relation's key is in it."""

    view: ViewDefinition
    keys: Mapping[int, tuple[tuple[str, str], ...]]
    """Per place: pairs of a key column and the view's column that shows it."""
    hidden: tuple[str, ...]
    """Columns of the stored view that the user did not ask for."""


def keyed_view_of(view: ViewDefinition, keys: Mapping[Relation, tuple[Field, ...]]) -> KeyedView:
    """The view with the key of every relation; every relation must have one."""
    places = tuple(_with_key(place, keys[place.relation]) for place in view.places)
    shown = {o.expression: o.name for o in view.outputs if isinstance(o.expression, Column)}
    hidden: list[Output] = []
    where: dict[int, tuple[tuple[str, str], ...]] = {}
    for place in places:
        pairs = []
        for field in keys[place.relation]:
            column = Column(place.index, field.name, field.type)
            name = shown.get(column)
            if name is None:
                name = f"{PREFIX}{place.index}_{field.name}"
                hidden.append(Output(name, column))
            pairs.append((field.name, name))
        where[place.index] = tuple(pairs)
    stored = replace(view, places=places, outputs=(*view.outputs, *hidden))
    if hidden:
        stored = replace(
            stored, query=extend_query(view, [_select_hidden(o, view) for o in hidden])
        )
    return KeyedView(stored, where, tuple(output.name for output in hidden))


def _select_hidden(output: Output, view: ViewDefinition) -> str:
    """A hidden column as the user's own SELECT would have it."""
    assert isinstance(output.expression, Column)
    alias = view.places[output.expression.place].alias
    return f"{quote_name(alias)}.{quote_name(output.expression.name)} AS {quote_name(output.name)}"


def _with_key(place: Place, key: tuple[Field, ...]) -> Place:
    missing = tuple(field for field in key if field not in place.fields)
    return replace(place, fields=place.fields + missing)
