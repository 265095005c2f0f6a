"""The data source `viewkeeper` for any Spark job: states of a view, and its changes as a stream.

    spark.dataSource.register(viewkeeper.ViewkeeperDataSource)
    spark.read.format("viewkeeper").load("shop/order_lines")
    spark.readStream.format("viewkeeper").option("changes", "true").load("shop/order_lines")

It is written for Spark's Python API of data sources: `schema` and the planning run in a Python
process beside the driver, `read` in the executors, which need this package and a way to the
warehouse. Rows pass as Arrow batches. Nothing is asked of a maintainer, and no jar is needed.

An offset of the stream is an exact place in the changes (`view_feed`): a ts, and the origin that it
counts for. Planning the same span again gives the same rows, so a stream that is restarted from its
checkpoint loses nothing and repeats nothing. What cannot be continued is an error with the way out:
a place that was folded away, and a view that was loaded again. Columns that have changed end the
stream too; started again it goes on with the columns of now.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as filters
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.engine.settings.project_file import read_settings
from viewkeeper.errors import CorruptError, DefinitionError, HorizonError, StateError
from viewkeeper.readers.view_feed import lost_place_error, origin_of, require_loaded
from viewkeeper.readers.view_slices import ViewSlice, read_batches, slice_changes, slice_state
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.warehouse.lake.data_files import stored_schema
from viewkeeper.warehouse.metadata.head import ViewHead, read_head
from viewkeeper.warehouse.rows.view_state import ATTEMPTS, state_ts

NAME = "viewkeeper"
LATEST = "latest"
OPTIONS = (
    *("path", "view", "columns", "asOf", "pushFilters"),
    *("changes", "startingTs", "endingTs", "maxTs"),
)
_FEW = 1000
"""A list of more values is left to Spark."""


class SourceOptions:
    """The options of a reader, read; a DefinitionError if they make no sense."""

    def __init__(self, given: Mapping[str, str]) -> None:
        known = {name.lower(): name for name in OPTIONS}
        for name in given:
            if name.lower() not in known:
                raise DefinitionError(
                    f'format "{NAME}": there is no option {name}',
                    hint=f"options: {', '.join(OPTIONS)}",
                )
        facts = {known[name.lower()]: value for name, value in given.items()}
        path, view = facts.get("path"), facts.get("view")
        if not path:
            raise DefinitionError(
                f'format "{NAME}": no project', hint='.load("PROJECT_FOLDER/VIEW")'
            )
        self.folder = Path(path) if view else Path(path).parent
        self.view = view or Path(path).name
        self.columns = [
            name.strip() for name in facts.get("columns", "").split(",") if name.strip()
        ]
        self.as_of = _read_number(facts, "asOf")
        self.max_ts = _read_number(facts, "maxTs", least=1)
        self.wants_changes = _read_flag(facts, "changes")
        self.pushes_filters = _read_flag(facts, "pushFilters")
        self.ending_ts = _read_number(facts, "endingTs")
        self.starts_latest = facts.get("startingTs", "").lower() == LATEST
        self.starting_ts = 0 if self.starts_latest else _read_number(facts, "startingTs") or 0
        if self.wants_changes:
            _refuse_options(facts, ("asOf",), "states", "endingTs is where changes end")
        else:
            hint = 'add .option("changes", "true"), or leave it out'
            _refuse_options(facts, ("startingTs", "endingTs", "maxTs"), "changes", hint)
        self._facts = facts

    def check_batch(self) -> None:
        """Refuse what only a stream has."""
        _refuse_options(self._facts, ("maxTs",), "streams", "leave it out")
        if self.starts_latest:
            hint = "give a ts; 0, the default, begins with the rows that there are"
            _refuse_options(self._facts, ("startingTs",), "streams where it is latest", hint)

    def check_stream(self) -> None:
        """Refuse what a stream does not have."""
        _refuse_options(self._facts, ("endingTs",), "queries that end", "leave it out")

    def find_root(self) -> StoragePath:
        """The warehouse of the project."""
        return read_settings(self.folder).warehouse.absolute()

    def read_view(self, root: StoragePath) -> ViewHead:
        """The view as it is committed now."""
        return require_loaded(read_head(root), self.view)

    def shown_schema(self, view: ViewHead) -> pa.Schema:
        """The columns that are wanted of a view, for changes with `_count` and `_ts`."""
        shown = view.shown_schema.remove_metadata()
        for name in self.columns:
            if name not in shown.names:
                raise DefinitionError(
                    f'view "{self.view}": no column {name}',
                    hint=f"columns: {', '.join(shown.names)}",
                )
        if self.columns:
            shown = pa.schema([shown.field(name) for name in self.columns])
        return stored_schema(shown) if self.wants_changes else shown


def _refuse_options(facts: Mapping[str, str], names: Iterable[str], whose: str, hint: str) -> None:
    for name in names:
        if name in facts:
            raise DefinitionError(f'format "{NAME}": option {name} is for {whose}', hint=hint)


def _read_flag(facts: Mapping[str, str], name: str) -> bool:
    text = facts.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise DefinitionError(
            f'format "{NAME}": option {name} is "{facts[name]}"', hint="give true or false"
        )
    return text == "true"


def _read_number(facts: Mapping[str, str], name: str, least: int = 0) -> int | None:
    text = facts.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < least:
        raise DefinitionError(
            f'format "{NAME}": option {name} is "{text}"',
            hint=f"give a number from {least} on"
            + (f', or "{LATEST}"' if name == "startingTs" else ""),
        )
    return int(text)


class SlicePartition(InputPartition):
    """A slice of a view as Spark hands it to a task."""

    def __init__(self, piece: ViewSlice) -> None:
        super().__init__(None)
        self.piece = piece


class ViewkeeperDataSource(DataSource):
    """Views of a project as a data source of Spark, named `viewkeeper`.

    `load("PROJECT_FOLDER/VIEW")`, or `load("PROJECT_FOLDER")` with the option `view`, is the newest
    state, or with `asOf` that of a ts. `columns` are names with commas between them; without it
    there are all.

    With the option `changes` it is the view's columns, `_count`, which is negative for rows that
    go, and `_ts`, from `startingTs` to `endingTs`. A stream needs that option, and has no end. It
    starts after `startingTs`: 0, the default, begins with the rows that there are, `latest` with
    the next commit. `maxTs` is how many ts a batch of it has at most.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        wanted = SourceOptions(self.options)
        view = wanted.read_view(wanted.find_root())
        return from_arrow_schema(wanted.shown_schema(view), prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        wanted = SourceOptions(self.options)
        wanted.check_batch()
        found = SliceReader(wanted)
        return FilteringReader(found) if wanted.pushes_filters else found

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        wanted = SourceOptions(self.options)
        if not wanted.wants_changes:
            raise DefinitionError(
                f'format "{NAME}": a stream is of changes',
                hint='add .option("changes", "true"): it has the columns _count and _ts too',
            )
        wanted.check_stream()
        return ChangeStreamReader(wanted)


class SliceReader(DataSourceReader):
    """A state of a view, or a span of its changes."""

    def __init__(self, wanted: SourceOptions) -> None:
        self.root = wanted.find_root()
        self.schema = wanted.shown_schema(wanted.read_view(self.root))
        self._wanted = wanted

    def partitions(self) -> Sequence[InputPartition]:
        wanted = self._wanted

        def plan(view: ViewHead) -> list[ViewSlice]:
            if not wanted.wants_changes:
                return slice_state(self.root, view, wanted.as_of)
            until = view.ts if wanted.ending_ts is None else state_ts(view, wanted.ending_ts)
            return slice_changes(self.root, view, wanted.starting_ts, until)

        return plan_partitions(self.root, wanted, self.schema, plan)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition)
        return read_batches(partition.piece, self.schema)


class FilteringReader(DataSourceReader):
    """The same with the conditions of Spark: parts of files that cannot match are not read.

    Spark refuses a reader that has `pushFilters` while its setting for that is off, so this one is
    only used where the option `pushFilters` asks for it.
    """

    def __init__(self, reader: SliceReader) -> None:
        self._reader = reader
        self._where: Any = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's
        """Spare what cannot match; Spark evaluates all of them again, with its own meaning."""
        for each in filters:
            found = arrow_condition(each, self._reader.schema)
            if found is not None:
                self._where = found if self._where is None else self._where & found
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition)
        return read_batches(partition.piece, self._reader.schema, self._where)


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The changes of a view as a stream; an offset is `{"ts": ..., "origin": ...}`."""

    def __init__(self, wanted: SourceOptions) -> None:
        self._wanted = wanted
        self._root = wanted.find_root()
        self._schema = wanted.shown_schema(wanted.read_view(self._root))
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        view = self._wanted.read_view(self._root)
        since = view.ts if self._wanted.starts_latest else self._wanted.starting_ts
        if since and not view.horizon <= since <= view.ts:
            raise lost_place_error(view, since)
        return {"ts": since, "origin": origin_of(self._root, view)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """At most so many ts; of the limits that Spark knows, that of files comes nearest."""
        most = self._wanted.max_ts
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        view = self._continued_view(start)
        end = view.ts if self._target is None else min(view.ts, self._target)
        if isinstance(limit, ReadMaxFiles):
            # The state in which a stream begins is one batch.
            end = min(end, (start["ts"] or view.horizon) + limit.max_files)
        return {"ts": max(end, start["ts"]), "origin": start["origin"]}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        self._target = self._wanted.read_view(self._root).ts

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        view = self._wanted.read_view(self._root)
        return {"ts": view.ts, "origin": origin_of(self._root, view)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start["ts"] == end["ts"]:
            return []
        self._continued_view(start)

        def plan(view: ViewHead) -> list[ViewSlice]:
            if end["ts"] < view.horizon or (start["ts"] and start["ts"] < view.horizon):
                raise lost_place_error(view, start["ts"])
            return slice_changes(self._root, view, start["ts"], end["ts"])

        return plan_partitions(self._root, self._wanted, self._schema, plan)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition)
        return read_batches(partition.piece, self._schema)

    def _continued_view(self, place: Mapping[str, Any]) -> ViewHead:
        """The view, if it is what a place was taken from."""
        view = self._wanted.read_view(self._root)
        if origin_of(self._root, view) != place["origin"]:
            raise StateError(
                f'view "{view.view}": it was loaded again since this stream began',
                detail=f"the stream is at ts {place['ts']} of {place['origin']}",
                hint="start the stream with a new checkpoint, and empty what it writes to: it then "
                "begins with the rows that there are now",
            )
        if place["ts"] and place["ts"] < view.horizon:
            raise lost_place_error(view, place["ts"])
        return view


def plan_partitions(
    root: StoragePath,
    wanted: SourceOptions,
    schema: pa.Schema,
    plan: Callable[[ViewHead], list[ViewSlice]],
) -> list[InputPartition]:
    """The slices of a view as it is now; what cannot be believed is read from the next head."""
    failed: ViewHead | None = None
    for _ in range(ATTEMPTS):
        view = wanted.read_view(root)
        if not wanted.shown_schema(view).equals(schema):
            raise StateError(
                f'view "{view.view}": its columns have changed',
                detail=f"they were {', '.join(schema.names)}",
                hint="start the query again; a stream goes on from its checkpoint, with the columns"
                " of now",
            )
        try:
            return [SlicePartition(piece) for piece in plan(view)]
        except CorruptError:
            if view == failed:
                raise
            failed = view
    raise HorizonError(
        f'view "{wanted.view}": its files are replaced faster than they can be listed',
        hint="try again",
    )


def arrow_condition(found: Filter, schema: pa.Schema) -> Any:
    """A condition of Spark as one of Arrow that holds wherever Spark's does; None without one.

    Floating-point numbers are left to Spark, which has an order for NaN, and so is what has no
    value of Python that Arrow understands alike.
    """
    column = getattr(found, "attribute", None)
    if column is None or len(column) != 1 or column[0] not in schema.names:
        return None
    kind = schema.field(column[0]).type
    plain = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)
    if not plain and not pa.types.is_boolean(kind):
        return None
    field = pc.field(column[0])
    match found:
        case filters.IsNull():
            return field.is_null()
        case filters.IsNotNull():
            return field.is_valid()
        case filters.In() if len(found.value) <= _FEW and None not in found.value:
            return field.isin(pa.array(found.value, kind))
    compare = _COMPARISONS.get(type(found))
    value = getattr(found, "value", None)
    return None if compare is None or value is None else compare(field, pa.scalar(value, kind))


_COMPARISONS: Mapping[type[Filter], Callable[[Any, Any], Any]] = {
    filters.EqualTo: operator.eq,
    filters.GreaterThan: operator.gt,
    filters.GreaterThanOrEqual: operator.ge,
    filters.LessThan: operator.lt,
    filters.LessThanOrEqual: operator.le,
}
