"""SQL that the user has edited since its rows were stored.

A view is stored by a definition. Other SQL needs other rows, and is refused unless the view is to
be loaded again; but SQL that says what the view has become anyhow, like the new name of a column
whose rename was followed, is taken as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.views.bound_view import (
    Binding,
    bind_again,
    bind_now,
    column_types,
    has_same_meaning,
    same_columns,
)
from viewkeeper.engine.views.view_catalogue import ViewCatalogue
from viewkeeper.engine.views.written_views import edit_refusal
from viewkeeper.errors import SchemaError, ViewkeeperError
from viewkeeper.evolution.adaptation import Nothing, choose_adaptation
from viewkeeper.evolution.preferences import Preferences
from viewkeeper.evolution.synchronization.synchronize import NoRewriting, synchronize_view
from viewkeeper.updates.source_protocol import names_now_of
from viewkeeper.view.definition import PROJECT, Field, Relation
from viewkeeper.warehouse.metadata.head import Head, ViewHead
from viewkeeper.warehouse.metadata.record import Redefine
from viewkeeper.warehouse.store import Store


def write_first_versions(store: Store, catalogue: ViewCatalogue) -> None:
    """Give views that were stored before definitions had versions the one that they have now."""
    changes = [
        redefine_same_rows(stored, catalogue.text_of(name), binding, store.now(), ())
        for name, stored in store.head.maintained_views.items()
        if not stored.versions and (binding := catalogue.bindings.get(name)) is not None
    ]
    if changes:
        store.commit(changes)


def redefine_same_rows(
    stored: ViewHead, text: str, binding: Binding, at: float, causes: tuple[str, ...]
) -> Redefine:
    """Another definition for the rows that are stored."""
    return Redefine(
        stored.view,
        text,
        binding.make_version(stored.ts, at, causes, parents=stored.parent_tables),
        stored.schema,
        stored.ts,
        stored.positions,
        hidden=stored.hidden,
        distinct=True,
    )


def take_edits(
    store: Store, catalogue: ViewCatalogue, connections: Connections, again: Sequence[str]
) -> None:
    """Take what means the same; refuse the rest, but for views that are loaded again.

    A view whose new SQL is refused stands on the one by which it is stored.
    """
    for name, stored in list(store.head.views.items()):
        if name not in catalogue or name in again or catalogue.text_of(name) == stored.definition:
            continue
        if not _take_edit(store, catalogue, connections, stored):
            catalogue.refuse_edit(stored, edit_refusal(name))


def refuse_edits(catalogue: ViewCatalogue, head: Head) -> None:
    """Let views whose SQL is not the stored one be what is stored; nobody asks what it means."""
    for name, view in head.shown_views.items():
        if name in catalogue and catalogue.text_of(name) != view.definition:
            catalogue.refuse_edit(view, edit_refusal(name))


def find_same_meaning(
    catalogue: ViewCatalogue, connections: Connections, stored: ViewHead
) -> Binding | None:
    """What the edited SQL of a view is bound to, if it shows the rows that are stored."""
    if not stored.versions:
        return None
    was = bind_again(stored.versions[-1], None)
    try:
        written = catalogue.as_written(stored.view, connections)
        is_same = has_same_meaning(written.view, was.view) or _matches_evolution(
            was, written, connections, catalogue
        )
    except ViewkeeperError:
        # Whatever is wrong with it, it is not what is stored.
        return None
    return written if is_same else None


def _take_edit(
    store: Store, catalogue: ViewCatalogue, connections: Connections, stored: ViewHead
) -> bool:
    written = find_same_meaning(catalogue, connections, stored)
    if written is None:
        return False
    causes = ("its SQL was edited",)
    text = catalogue.text_of(stored.view)
    store.commit([redefine_same_rows(stored, text, written, store.now(), causes)])
    catalogue.put_binding(stored.view, written)
    return True


def _matches_evolution(
    was: Binding, written: Binding, connections: Connections, catalogue: ViewCatalogue
) -> bool:
    """Whether SQL says what a view becomes by schema changes that it has not even met yet, and its
    rows stay as they are: a rename is often deployed together with the SQL."""
    if was.graph is not None or written.graph is not None:
        return False
    became = {
        Relation(b.source, b.table): names_now_of(connections.get_source(b.source), b.handle)
        for b in was.bound
        if b.source != PROJECT
    }

    def fields_now(relation: Relation) -> tuple[Field, ...] | None:
        source = connections.get_source(relation.source)
        try:
            return source.describe_table(source.handle_of(relation.table)).fields
        except SchemaError:
            return None

    found = synchronize_view(
        was.parsed, became, fields_now, Preferences(), (), lost_types=column_types(was)
    )
    if isinstance(found, NoRewriting):
        return False
    from viewkeeper.view.sql.view_statement import parse_view

    now = bind_now(parse_view(found.text), connections, catalogue)
    same = same_columns(was, now, became)
    return has_same_meaning(written.view, now.view) and isinstance(
        choose_adaptation(was.view, now.view, same, frozenset()), Nothing
    )
