"""A process that dies in the middle of a load: `python -m tests.engine.killed_load PROJECT PARTS`.

It loads in ranges of a few keys, and kills itself as soon as so many parts are done. How a load is
divided is decided in the driver, so this needs nothing of its workers.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any
from unittest import mock

import viewkeeper
from tests.borrowed_spark import borrow_session
from viewkeeper.engine.load import scan_parts, view_recomputation

ROWS = 4
"""So many keys a range has."""


def main(folder: str, parts: int) -> None:
    run_tasks = scan_parts._run_tasks

    def run_some(spark: Any, tasks: Any, write: Any, courier: Any) -> Any:
        run_tasks(spark, tasks[:parts], write, courier)
        print(len(tasks), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    with (
        mock.patch.object(scan_parts, "_run_tasks", run_some),
        mock.patch.object(view_recomputation, "ROWS_PER_TASK", ROWS),
        mock.patch.object(view_recomputation, "ROWS_PER_PART", ROWS),
        viewkeeper.open(folder, spark=borrow_session()) as project,
    ):
        project.refresh()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
