"""Rows that generators make of other rows: `explode` of a split text here, all others by Spark.

A generator is linear: what it makes of a row depends on that row alone. So signed rows go in and
signed rows come out, with the counts and the ts of the rows that they are made of.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.engine.spark.job_control import limit_job, spark_schema
from viewkeeper.engine.spark.task_errors import Courier
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.view.definition import Generate
from viewkeeper.view.graph_sql import generate_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = "__generated_from"


def split_rows(node: Generate, rows: pa.Table) -> pa.Table:
    """The parts of a text column, as Spark's `split` cuts it: a NULL has none, an empty text one.

    >>> from viewkeeper.view.definition import Field, GeneratedColumn, Relation, SplitText
    >>> shown = GeneratedColumn("a"), GeneratedColumn(None, 0), GeneratedColumn(None, 1)
    >>> fields = Field("k", pa.int64()), Field("p", pa.int32()), Field("w", pa.string())
    >>> split = SplitText("t", ",", has_position=True)
    >>> node = Generate(1, Relation("", "#0"), "", 2, shown, fields, False, split)
    >>> rows = pa.table({"a": [1, 2, 3, 4], "t": ["x,,y", None, "", "z"], "_count": [1, 1, 1, -2]})
    >>> [tuple(row.values()) for row in split_rows(node, rows).to_pylist()]
    [(1, 0, 'x', 1), (1, 1, '', 1), (1, 2, 'y', 1), (3, 0, '', 1), (4, 0, 'z', -2)]
    """
    assert node.split is not None, "other generators are left to Spark"
    texts = rows[node.split.column].combine_chunks()
    cut = pc.split_pattern(texts, pattern=node.split.separator)
    parents = pc.list_parent_indices(cut).to_numpy()
    words = pc.list_flatten(cut)
    begins = np.flatnonzero(np.diff(parents, prepend=-1))
    sizes = np.diff(begins, append=len(parents))
    positions = pa.array(np.arange(len(parents)) - np.repeat(begins, sizes), pa.int32())
    if node.outer:
        missing = np.flatnonzero(pc.is_null(texts).to_numpy(zero_copy_only=False))
        parents = np.concatenate([parents, missing])
        words = pa.concat_arrays([words, pa.nulls(len(missing), words.type)])
        positions = pa.concat_arrays([positions, pa.nulls(len(missing), positions.type)])
    made = [positions, words] if node.split.has_position else [words]
    found = rows.take(pa.array(parents, pa.int64()))
    own = [name for name in (TS, COUNT) if name in rows.column_names]
    arrays = [made[c.number] if c.kept is None else found[c.kept] for c in node.columns]
    names = [field.name for field in node.fields]
    return pa.table([*arrays, *(found[name] for name in own)], names=[*names, *own])


def generate_on_spark(
    spark: SparkSession, node: Generate, rows: pa.Table, minutes: float, reader: str = ""
) -> pa.Table:
    """The same by Spark, for any generator; the job is known by whose batch it is."""
    own = [name for name in (TS, COUNT) if name in rows.column_names]
    fields = [(field.name, field.type) for field in node.fields]
    schema = pa.schema([*fields, *((name, pa.int64()) for name in own)])
    if not rows.num_rows:
        return schema.empty_table()
    # Batches side by side share the session, and so the names of its views.
    view = f"{ROWS}_{uuid.uuid4().hex}"
    with limit_job(spark, f"generator of #{node.number} of {reader}", minutes):
        frame = spark.createDataFrame(rows, spark_schema(rows.schema))
        frame.createOrReplaceTempView(view)
        try:
            query = generate_sql(node, view, own)
            found = Courier().run_job(lambda: spark.sql(query).toArrow())
        finally:
            spark.catalog.dropTempView(view)
    return found.select(schema.names).cast(schema)
