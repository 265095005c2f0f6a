"""Fuzzing of readers that a native library can bring down: in a process of their own.

A segmentation fault or an abort would end the whole run of tests. In another process it is a
failure of one test, which names the file with the last input.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def fuzz_isolated(module: str, folder: Path) -> None:
    """Call `attack(folder)` of a module of tests; what it tried last lies in that folder."""
    code = f"import pathlib; from {module} import attack; attack(pathlib.Path({str(folder)!r}))"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    message = f"ended with {ended.returncode}; the input is in {folder}\n{ended.stderr[-8000:]}"
    assert ended.returncode == 0, message
