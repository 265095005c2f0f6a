"""The process that Spark forks its Python workers from, with our imports already done.

A worker that starts cold imports pyarrow, pandas and this package for about a second before it does
anything, once per worker, again whenever workers have died of idleness. Forked from here it has
them. Used in local mode only, where workers are sure to find this module.

Spark puts two zips with its own Python code first on the path, and Python compiles what it imports
from a zip in every process. The same code is installed with its bytecode, so the zips are dropped
where they are of the installation that the path has anyway.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PRELOADED = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.worker",
    "viewkeeper.engine.batch.part_sweep",
    "viewkeeper.warehouse.rows.spark_frames",
)
"""What the forked workers find loaded."""


def without_zips(path: Sequence[str]) -> list[str]:
    """The path without the zips whose code is installed beside them, in the same version."""
    return [entry for entry in path if not _is_installed(Path(entry), path)]


def _is_installed(entry: Path, path: Sequence[str]) -> bool:
    if entry.suffix != ".zip":
        return False
    # The wheel of pyspark has its zips in pyspark/python/lib.
    home = entry.parent.parent.parent
    if entry.parts[-4:-1] != ("pyspark", "python", "lib") or not (home / "__init__.py").is_file():
        return False
    if str(home.parent) not in path:
        return False
    if entry.name == "pyspark.zip":
        return True
    try:
        return entry.name == f"py4j-{version('py4j')}-src.zip"
    except PackageNotFoundError:
        return False


def serve_workers() -> None:
    """Fork workers whenever Spark asks for one."""
    sys.path[:] = without_zips(sys.path)
    for name in PRELOADED:
        import_module(name)
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    serve_workers()
