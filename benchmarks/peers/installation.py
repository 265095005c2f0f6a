"""Environments of the contestants: one folder each below `.tools/peers`, made by uv when missing.

Viewkeeper and Spark run in the project's own environment. A peer that cannot be installed here has
no environment, and its row in the table says why.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / ".tools" / "peers"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A system in the race: its program, with its arguments, and what it needs installed."""

    name: str
    program: str
    arguments: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()


CONTESTANTS = (
    Contestant("viewkeeper, refresh()", "viewkeeper_views", ("refresh",)),
    Contestant("viewkeeper run", "viewkeeper_views", ("run",)),
    Contestant("pathway", "pathway_tables", (), ("pathway==0.33.0",)),
    Contestant("flink", "flink_sql", (), ("apache-flink==2.3.0",)),
    Contestant(
        "duckdb, recomputed", "duckdb_recomputation", (), ("duckdb==2.0.0", "pyarrow>=26,<27")
    ),
    Contestant("spark, recomputed", "spark_recomputation"),
)


class InstallationError(Exception):
    """A peer's environment could not be made."""


def python_of(contestant: Contestant) -> Path:
    """The Python that runs a contestant; its environment is made if it is not there yet."""
    if not contestant.requirements:
        return Path(sys.executable)
    folder = FOLDER / contestant.program
    python, stamp = folder / "bin" / "python", folder / "requirements"
    wanted = "\n".join(contestant.requirements)
    if not stamp.exists() or stamp.read_text() != wanted:
        FOLDER.mkdir(parents=True, exist_ok=True)
        _run_uv("venv", "-q", "--clear", "--python", sys.executable, str(folder))
        _run_uv("pip", "install", "-q", "--python", str(python), *contestant.requirements)
        stamp.write_text(wanted)
    return python


def _run_uv(*arguments: str) -> None:
    command = [str(ROOT / ".tools" / "uv"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise InstallationError(lines[-1])


def _environment() -> dict[str, str]:
    """uv reads none of pip's settings; it is told pip's index, as in scripts/setup."""
    if {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & {*os.environ}:
        return dict(os.environ)
    pip = [f"{sys.base_prefix}/bin/python3", "-m", "pip", "config", "get", "global.index-url"]
    told = subprocess.run(pip, capture_output=True, text=True, check=False).stdout.strip()
    index = os.environ.get("PIP_INDEX_URL", told)
    return {**os.environ, **({"UV_DEFAULT_INDEX": index} if index else {})}
