"""The same program on a cluster: executors in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.campaign
def test_executors_of_their_own(tmp_path: Path) -> None:
    """A process of its own, because a session that runs already cannot change its master."""
    command = [sys.executable, "-m", "tests.engine.cluster", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
