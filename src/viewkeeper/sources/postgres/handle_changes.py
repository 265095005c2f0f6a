"""What differences between shapes mean to those who ask by handles.

Inside a source a table is its oid and a column its number. Here both get the names that a handle
has for them: in the schema changes that are reported, and in the errors of broken questions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from viewkeeper.errors import BrokenQueryError
from viewkeeper.sources.handles import HandleTarget, SourceHandles
from viewkeeper.sources.postgres.shape_differences import ShapeDifference
from viewkeeper.updates.schema_change import SchemaChange, name_of_handle

_BROKEN = {
    "add_filled_column": "column {column} was added with a value in all rows",
    "drop_column": "column {column} is gone",
    "change_type": "column {column} got the type {now}",
    "rewrite": "values of column {column} were rewritten",
    "drop_table": "it is gone",
    "recreate_table": "it is gone, and another table is called so",
}


def schema_changes_of(
    names: SourceHandles, found: Iterable[tuple[int, ShapeDifference]], path: Collection[str]
) -> tuple[SchemaChange, ...]:
    """The schema changes of one transaction, once for each handle that they concern.

    `path` has the schemas whose tables are called by their name alone.
    """
    changes = [
        change
        for oid, difference in found
        for handle, named in names.handles_of(str(oid)).items()
        for change in _changes_for_handle(handle, named, difference, path)
    ]
    again = {change.table for change in changes if change.kind == "recreate_table"}
    return tuple(
        change for change in changes if change.kind != "drop_table" or change.table not in again
    )


def _changes_for_handle(
    handle: str, named: HandleTarget, difference: ShapeDifference, path: Collection[str]
) -> Iterator[SchemaChange]:
    kind, now = difference.kind, difference.now
    if kind in ("add_column", "add_filled_column"):
        yield SchemaChange(kind, handle, now)
        return
    columns = {number: name for name, number in named.columns.items()}
    if difference.number and str(difference.number) not in columns:
        return
    column = columns.get(str(difference.number), "")
    if kind == "rename_table":
        schema, _, name = now.partition(".")
        if schema in path and "." not in f"{name}{name_of_handle(handle)}":
            now = name
    # A handle that was made after a rename has the new name itself.
    if (kind, now) not in (("rename_column", column), ("rename_table", name_of_handle(handle))):
        yield SchemaChange(kind, handle, column, now)


def broken_query_error(
    source: str, handle: str, numbers: Mapping[str, int], difference: ShapeDifference
) -> BrokenQueryError:
    """The error of a question that cannot be answered because of a difference."""
    names = {number: name for name, number in numbers.items()}
    column = names.get(difference.number, "")
    what = _BROKEN[difference.kind].format(column=column, now=difference.now)
    return BrokenQueryError(source, name_of_handle(handle), what)
