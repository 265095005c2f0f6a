"""The process that Spark forks its Python workers from, with our imports already done.

A worker that starts cold imports pyarrow, pandas and this package for about a second before it does
anything, once per worker, again whenever workers have died of idleness. Forked from here it has
them. Used in local mode only, where workers are sure to find this module.
"""

from importlib import import_module

import pyarrow.compute
import pyarrow.parquet
from pyspark import worker
from pyspark.daemon import manager

from viewkeeper.engine.batch import part_sweep
from viewkeeper.warehouse.rows import spark_frames

PRELOADED = (
    import_module("pandas"),
    pyarrow.compute,
    pyarrow.parquet,
    worker,
    part_sweep,
    spark_frames,
)
"""What the forked workers find loaded."""

if __name__ == "__main__":
    manager()
