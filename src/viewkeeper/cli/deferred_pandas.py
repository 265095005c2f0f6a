"""Arrow without pandas, until somebody needs pandas.

pyarrow imports pandas with the first array that it makes, so that it can tell whether the values
are pandas' own. That is a quarter of a second of computing, more than all else that `status` does,
and no command has such values. pyarrow goes on without pandas where there is none, and looks again
when a table is to become a data frame; so for that first array there is none.
"""

from __future__ import annotations

import sys


class _NoPandas:
    """A finder of modules that finds no pandas."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("not now", name=name)


def defer_pandas() -> None:
    """Let pyarrow make its first array, and find no pandas for it."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        # One with a value: it is looked for again when the first value is converted.
        pa.array([1])
    finally:
        sys.meta_path.remove(finder)
