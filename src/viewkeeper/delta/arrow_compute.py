"""Arrow's compute functions, without types.

Every function of `pyarrow.compute` takes arrays, chunked arrays and scalars alike. Its stubs do not
know that and complain where nothing is wrong, so whoever mixes them takes the module from here.
"""

from __future__ import annotations

from typing import Any

import pyarrow.compute

pc: Any = pyarrow.compute
