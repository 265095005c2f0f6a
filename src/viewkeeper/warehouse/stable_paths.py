"""The stable path of a view's table: `views/NAME`, a link to the table that the view has now.

A table's folder has a name of its own, which it never shares: a view that is loaded again begins
another folder, and its old one stays for a while, for whoever reads it. Tools that know a view by
its name need one path for all of them. So a link of that name leads to the folder that the newest
record has made, and is exchanged at once. Who resolves it gets one table, the old one or the new,
never both; who has resolved it goes on in the folder that it found.

Links follow from the head, as log entries do: a record that makes a view leads to its link, and
every start mends what is missing, leads elsewhere or was copied as a folder. The link of a view
that is dropped stays for as long as its folder does, for tools that open it by the name again and
again. A view's name has letters, digits and underscores, and the name of a table's folder has a
hyphen, so they never clash. Object storage has no links.
"""

from __future__ import annotations

from viewkeeper.storage import stored_files
from viewkeeper.storage.disk import TEMPORARY, Guard
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.warehouse.metadata.head import Head


def link_tables(folder: StoragePath, head: Head, guard: Guard) -> None:
    """Let the links in the folder of all tables be those of a head; idempotent."""
    if storage_of(folder).has_lasting_journal:
        return
    wanted = {name: view.table for name, view in head.shown_views.items()}
    for path in folder.iterdir():
        target = stored_files.read_link(path)
        if target is None or path.name in wanted:
            continue
        is_taken = target in wanted or target in wanted.values()
        if path.name.startswith(TEMPORARY) or is_taken or not (folder / target).is_dir():
            guard()
            stored_files.remove_file(path)
    for name, table in wanted.items():
        link_table(folder, name, table, guard)


def link_table(folder: StoragePath, name: str, table: str, guard: Guard) -> None:
    """Let the link of a view lead to a table; idempotent."""
    is_linked = not storage_of(folder).has_lasting_journal
    if is_linked and stored_files.read_link(folder / name) != table:
        stored_files.replace_link(folder / name, table, guard)
