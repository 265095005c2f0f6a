"""Fuzzing of readers that a native library can bring down: in a process of their own.

A segmentation fault or an abort would end the whole run of tests, and a loop in native code could
not be interrupted by it. In another process it is a failure of one test, which names the folder
with the last input. One process reads all inputs of a fuzzer: starting it costs as much as 500.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.figures import DONE, FuzzFigures

ROOT = Path(__file__).parent.parent.parent
SAID = "said.txt"
"""Inputs are long; whole ones are in a file."""


def fuzz_isolated(module: str, scratch: Path, kept: Path) -> None:
    """Call `attack(scratch)` of a module of tests; if it fails, its files are in `kept`."""
    code = f"from tests.fuzz.isolation import run_attack; run_attack({module!r}, {str(scratch)!r})"
    # Threads of the library that reads logs cost more than it does: one has nobody to wait for.
    environment = {**os.environ, "TOKIO_WORKER_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if ended.returncode != 0:
        shutil.copytree(scratch, kept, dirs_exist_ok=True, symlinks=True)
        (kept / SAID).write_text(ended.stderr)
        said = "\n".join(line[:500] for line in ended.stderr.splitlines()[-50:])
        message = f"ended with {ended.returncode}; its files and all that it said are in {kept}"
        raise AssertionError(f"{message}\n{said}")
    DONE.extend(FuzzFigures(**json.loads(line)) for line in ended.stdout.splitlines())


def run_attack(module: str, scratch: str) -> None:
    """What the process does: attack, and say what it cost."""
    faulthandler.enable()
    attack: Callable[[Path], None] = __import__(module, fromlist=["attack"]).attack
    attack(Path(scratch))
    for figures in DONE:
        print(json.dumps(asdict(figures)))
