"""A process that dies while it loads views again: `killed_refresh PROJECT STEP VIEW...`.

The step is one of `tests.faults.deaths`, as text.
"""

from __future__ import annotations

import sys

import viewkeeper
from tests.borrowed_spark import borrow_session
from tests.faults.deaths import arm


def main(folder: str, step: str, *views: str) -> None:
    with viewkeeper.open(folder, spark=borrow_session()) as project:
        arm(step)
        project.refresh(full_refresh=views)
    print("survived", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
