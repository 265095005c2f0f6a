"""The rows of TPC-H, by the generator that is on PyPI, in an environment of its own.

It is a program, not a library of ours, so it is no dependency: it is installed once, by the `uv` of
`make setup`, below `.tools`.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.tpch.tables import TABLES

TOOLS = Path(__file__).parent.parent.parent / ".tools"
PACKAGE = "tpchgen-cli==4.0.0"


def generate_tables(scale: float) -> dict[str, pa.Table]:
    """The rows of every relation at a scale factor, with our types."""
    program = _install_generator()
    with tempfile.TemporaryDirectory(prefix="viewkeeper-tpch-") as folder:
        command = [program, "parquet", "-s", f"{scale:g}", "--output-dir", folder]
        subprocess.run(command, check=True, capture_output=True)
        return {
            table.relation: pq.read_table(
                Path(folder, f"{table.name}.parquet"), columns=list(table.names)
            ).cast(table.schema)
            for table in TABLES
        }


def _install_generator() -> str:
    """The path of the generator, which is installed if it is not there."""
    home = TOOLS / "tpch"
    program = home / "bin" / "tpchgen-cli"
    if not program.exists():
        uv = str(TOOLS / "uv")
        subprocess.run([uv, "venv", "-q", "--clear", str(home)], check=True)
        environment = {**os.environ, "VIRTUAL_ENV": str(home)}
        subprocess.run([uv, "pip", "install", "-q", PACKAGE], check=True, env=environment)
    return str(program)
