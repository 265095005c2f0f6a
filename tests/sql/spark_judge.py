"""The judge: what a text means over the relations as of every ts, by Spark alone.

Each relation is one small local frame of everything that was ever in it, with the span of ts for
which each row was there. A text is run once for all ts: the union of its copies, each over the rows
as of one ts, and a view that it reads is put in its place as text. Everything is in one partition
and nothing is compiled to bytecode, so that there is one stage and a copy costs milliseconds.
"""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from viewkeeper.engine.spark.completed_order import complete_frame
from viewkeeper.engine.spark.error_silence import silence_errors
from viewkeeper.view.sql.quantified.quantified_comparisons import rewrite_quantified
from viewkeeper.view.sql.sql_text import SqlText

Row = tuple[Any, ...]

CHEAP = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


_TODAY = re.compile(r"\b(?:current_date|curdate)\b(\(\))?")
_NOW = re.compile(r"\b(?:current_timestamp|now)\b(\(\))?")
_TIME = re.compile(f"{_TODAY.pattern}|{_NOW.pattern}")


class SparkJudge:
    """Runs texts over relations with a history.

    `views` are the texts that others may read, by name.
    """

    def __init__(
        self,
        spark: SparkSession,
        empty: Mapping[str, pa.Table],
        settings: Mapping[str, str] = CHEAP,
    ) -> None:
        self._session = spark.newSession()
        for key, value in settings.items():
            self._session.conf.set(key, value)
        self._columns: dict[str, list[str]] = {}
        self._views: dict[str, str] = {}
        self._clock: Mapping[int, datetime.datetime] = {}
        self.show_relations(empty, {})

    def show_relations(self, tables: Mapping[str, pa.Table], views: Mapping[str, str]) -> None:
        """From now on the relations have these histories, and views these texts."""
        self._views = dict(views)
        self._columns = {
            name: [c for c in table.column_names if c not in ("_from", "_until")]
            for name, table in tables.items()
        }
        for name, table in tables.items():
            frame = self._session.createDataFrame(table)
            frame.createOrReplaceTempView(_history_name(name))

    def show_clock(self, moments: Mapping[int, datetime.datetime]) -> None:
        """From now on texts that ask for the time find, at each ts, these moments."""
        self._clock = moments

    def is_valid(self, text: str, views: Mapping[str, str]) -> bool:
        """Whether Spark reads a text over the relations and these views."""
        self._views = dict(views)
        try:
            with silence_errors():
                return bool(self._session.sql(self.text_at(text, 0)).schema.fields)
        except AnalysisException:
            return False

    def states_of(
        self, text: str, moments: Sequence[int]
    ) -> tuple[dict[int, list[Row]], pa.Schema]:
        """The rows of a text as of each ts, and their types."""
        copies = [f"SELECT {ts} AS _ts, q.* FROM ({self.text_at(text, ts)}) q" for ts in moments]
        table = complete_frame(self._session.sql(" UNION ALL ".join(copies))).toArrow()
        found: dict[int, list[Row]] = {ts: [] for ts in moments}
        for ts, *row in zip(*(column.to_pylist() for column in table.columns), strict=True):
            found[ts].append(tuple(row))
        return found, table.schema.remove(0)

    def relations_of(self, text: str) -> frozenset[str]:
        """The relations that a text reads, also through views."""
        found = {match.group() for match in self._pattern().finditer(text)}
        views = found & self._views.keys()
        return frozenset(found - views).union(*(self.relations_of(self._views[v]) for v in views))

    def reads_clock(self, text: str) -> bool:
        """Whether a text asks for the time, also through views."""
        found = {match.group() for match in self._pattern().finditer(text)}
        return bool(_TIME.search(text)) or any(
            self.reads_clock(self._views[view]) for view in found & self._views.keys()
        )

    def _pattern(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, (*self._columns, *self._views)))
        return re.compile(rf"(?<![\w.'])({names})(?![\w.'(])")

    def text_at(self, text: str, ts: int) -> str:
        """A text with the relations as of a ts, and other views, in place of their names."""

        def replace_name(match: re.Match[str]) -> str:
            name = match.group()
            if name in self._views:
                return f"({self.text_at(self._views[name], ts)})"
            columns = ", ".join(self._columns[name])
            return (
                f"(SELECT /*+ COALESCE(1) */ {columns} FROM {_history_name(name)} "
                f"WHERE _from <= {ts} AND {ts} < _until)"
            )

        own = rewrite_quantified(SqlText(self._set_clock(text, ts))).text
        return self._pattern().sub(replace_name, own)

    def _set_clock(self, text: str, ts: int) -> str:
        """A text with the time as of a ts written into it."""
        if ts not in self._clock:
            return text
        moment = self._clock[ts]
        text = _TODAY.sub(f"DATE'{moment:%Y-%m-%d}'", text)
        return _NOW.sub(f"TIMESTAMP'{moment:%Y-%m-%d %H:%M:%S}'", text)


def _history_name(relation: str) -> str:
    return "history_of_" + relation.replace(".", "_")


def compare_rows(found: Iterable[Row], wanted: Iterable[Row]) -> str | None:
    """Sentences on how two bags of rows differ; None if they are equal.

    Floating-point values may differ in the last digits, where sums have another order.
    """
    ours, theirs = Counter(map(_canonical, found)), Counter(map(_canonical, wanted))
    extra, missing = ours - theirs, theirs - ours
    if not extra and not missing:
        return None
    if _are_nearly_equal(
        sorted(extra.elements(), key=_order), sorted(missing.elements(), key=_order)
    ):
        return None
    return f"too many: {_listed(extra)}; missing: {_listed(missing)}"


def _canonical(row: Row) -> Row:
    """NaN is equal to itself, and a negative zero to zero."""
    return tuple(
        "NaN"
        if isinstance(v, float) and math.isnan(v)
        else 0.0
        if v == 0.0 and type(v) is float
        else v
        for v in row
    )


def _order(row: Row) -> tuple[Any, ...]:
    """Rows that are equal but for the last digits of floats come at the same place."""
    exact = [(v is None, str(v)) for v in row if not isinstance(v, float)]
    return (exact, [v for v in row if isinstance(v, float)])


def _are_nearly_equal(some: Sequence[Row], others: Sequence[Row]) -> bool:
    return len(some) == len(others) and all(
        len(one) == len(other) and all(map(_is_near, one, other))
        for one, other in zip(some, others, strict=True)
    )


def _is_near(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)


def _listed(rows: Counter[Row]) -> str:
    some = [f"{count} x {row}" for row, count in list(rows.items())[:3]]
    return (
        ", ".join([*some, f"and {len(rows) - 3} more"][: 3 if len(rows) <= 3 else 4]) or "nothing"
    )


def compare_types(found: pa.Schema, wanted: pa.Schema) -> str | None:
    """How the types of two schemas differ; None if they are equal."""
    ours, theirs = _types_of(found), _types_of(wanted)
    return None if ours == theirs else f"columns {ours} instead of {theirs}"


def _types_of(schema: pa.Schema) -> dict[str, str]:
    return {field.name: str(field.type).replace("large_", "") for field in schema}


def sum_changes(
    changes: Mapping[int, Counter[Row]], moments: Sequence[int]
) -> dict[int, list[Row]]:
    """The rows of a view as of each of these ts, from what each ts did to it."""
    found, now = {}, Counter[Row]()
    waiting = sorted(changes)
    for ts in moments:
        while waiting and waiting[0] <= ts:
            now.update(changes[waiting.pop(0)])
        assert all(count >= 0 for count in now.values()), f"ts {ts}: a row is there less than never"
        found[ts] = list(now.elements())
    return found
