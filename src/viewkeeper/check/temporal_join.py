"""Every state of a view at once: one temporal join instead of thousands of recomputations.

A base relation with its changes becomes rows with lifetimes: this row was there so many times from
ts `_from` until before ts `_to`. A combination of base rows is in the view while all of them are
alive, so joining the lifetimes with the user's own SELECT gives the rows of the view with theirs,
and the ends of those are the view's changes, per (row, ts). They are compared with what a warehouse
says that it applied, both ways, like EXCEPT ALL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from viewkeeper.delta.algebra import COUNT, LAST_TS, TS
from viewkeeper.view.definition import Relation, ViewDefinition
from viewkeeper.view.render import extend_query, quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FROM, _TO = "_from", "_to"


def row_lifetimes(signed: DataFrame, columns: list[str]) -> DataFrame:
    """Signed rows with a ts to rows with lifetimes: columns, `_from`, `_to`, `_count`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - the name that everybody uses

    keys = [F.col(quote_name(name)) for name in columns]
    steps = signed.groupBy(*keys, F.col(TS)).agg(F.sum(COUNT).alias(COUNT)).where(F.col(COUNT) != 0)
    timeline = Window.partitionBy(*keys).orderBy(F.col(TS))
    running = timeline.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return steps.select(
        *keys,
        F.col(TS).alias(_FROM),
        F.coalesce(F.lead(TS).over(timeline), F.lit(LAST_TS)).alias(_TO),
        F.sum(COUNT).over(running).alias(COUNT),
    ).where(F.col(COUNT) != 0)


def expected_changes(
    spark: SparkSession, view: ViewDefinition, bases: Mapping[Relation, DataFrame]
) -> DataFrame:
    """What the view's changes must have been: its columns, `_ts`, `_count`, one per (row, ts).

    `bases` are signed rows with a ts: the state at the beginning at its own ts, then every change.
    """
    for place in view.places:
        alive = row_lifetimes(
            bases[place.relation], [f.name for f in view.fields_of(place.relation)]
        )
        alive.createOrReplaceTempView(f"__place_{place.index}")
    aliases = [quote_name(place.alias) for place in view.places]
    extra = [
        f"{_sql_call('greatest', aliases, _FROM)} AS `{_FROM}`",
        f"{_sql_call('least', aliases, _TO)} AS `{_TO}`",
        f"{' * '.join(f'{alias}.`{COUNT}`' for alias in aliases)} AS `{COUNT}`",
    ]
    joined = spark.sql(extend_query(view, extra)).where(f"`{_FROM}` < `{_TO}`")
    names = [quote_name(output.name) for output in view.outputs]
    begins = joined.selectExpr(*names, f"`{_FROM}` AS `{TS}`", f"`{COUNT}`")
    ends = joined.selectExpr(*names, f"`{_TO}` AS `{TS}`", f"-`{COUNT}` AS `{COUNT}`")
    return begins.unionAll(ends.where(f"`{TS}` < {LAST_TS}"))


def signed_differences(expected: DataFrame, found: DataFrame) -> DataFrame:
    """Where two bags of signed rows differ: the columns, and how often more was expected.

    A positive `_count` is missing from what was found, a negative one is too much there. Both have
    the same columns, by name.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the name that everybody uses

    keys = [name for name in expected.columns if name != COUNT]
    named = [quote_name(name) for name in keys]
    mine = expected.selectExpr(*named, f"CAST(`{COUNT}` AS BIGINT) AS `{COUNT}`")
    theirs = found.selectExpr(*named, f"-CAST(`{COUNT}` AS BIGINT) AS `{COUNT}`")
    summed = mine.unionAll(theirs).groupBy(*[F.col(name) for name in named])
    return summed.agg(F.sum(COUNT).alias(COUNT)).where(F.col(COUNT) != 0)


def _sql_call(function: str, aliases: list[str], column: str) -> str:
    values = [f"{alias}.`{column}`" for alias in aliases]
    return values[0] if len(values) == 1 else f"{function}({', '.join(values)})"
