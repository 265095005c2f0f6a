"""What differences between shapes mean to those who ask by handles.

Inside a source a table is its oid and a column its number. Here both get the names that a handle
has for them: in what is reported, and in what a question is told that cannot be answered any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from viewkeeper.errors import BrokenQueryError
from viewkeeper.sources.handles import Named, Names
from viewkeeper.sources.postgres.shape_differences import Difference
from viewkeeper.updates.schema_change import SchemaChange, called

_BROKEN = {
    "add_filled_column": "column {column} was added with a value in all rows",
    "drop_column": "column {column} is gone",
    "change_type": "column {column} got the type {now}",
    "rewrite": "values of column {column} were rewritten",
    "drop_table": "it is gone",
    "recreate_table": "it is gone, and another table is called so",
}


def reported(
    names: Names, found: Iterable[tuple[int, Difference]], path: Collection[str]
) -> tuple[SchemaChange, ...]:
    """The schema changes of one transaction, once for each handle that they concern.

    `path` has the schemas whose tables are called by their name alone.
    """
    told = [
        change
        for oid, difference in found
        for handle, named in names.of(str(oid)).items()
        for change in _changes(handle, named, difference, path)
    ]
    again = {change.table for change in told if change.kind == "recreate_table"}
    return tuple(
        change for change in told if change.kind != "drop_table" or change.table not in again
    )


def _changes(
    handle: str, named: Named, difference: Difference, path: Collection[str]
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
        if schema in path and "." not in f"{name}{called(handle)}":
            now = name
    # A handle that was made after a rename has the new name itself.
    if (kind, now) not in (("rename_column", column), ("rename_table", called(handle))):
        yield SchemaChange(kind, handle, column, now)


def broken(
    source: str, handle: str, numbers: Mapping[str, int], difference: Difference
) -> BrokenQueryError:
    """What a question is told that cannot be answered because of a difference."""
    names = {number: name for name, number in numbers.items()}
    column = names.get(difference.number, "")
    what = _BROKEN[difference.kind].format(column=column, now=difference.now)
    return BrokenQueryError(source, called(handle), what)
