"""Shells complete commands and options by the script that `viewkeeper completion` prints."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import call
from viewkeeper.cli.main import COMMANDS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_says_where_it_belongs(shell: str) -> None:
    result = call("completion", shell)
    assert result.exit_code == 0
    first, _, script = result.stdout.partition("\n")
    assert first.startswith("# In ~/.")
    assert f"viewkeeper completion {shell}" in first
    assert f"_VIEWKEEPER_COMPLETE={shell}_complete" in script


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    script = tmp_path / "completion.bash"
    script.write_text(call("completion", "bash").stdout)

    def complete(*words: str) -> list[str]:
        typed = " ".join(f"'{word}'" for word in words)
        lines = f"""
            export PATH="{Path(sys.executable).parent}:$PATH"
            . "{script}" 2> /dev/null
            COMP_WORDS=({typed}) COMP_CWORD={len(words) - 1}
            _viewkeeper_completion viewkeeper
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        done = subprocess.run([bash, "-c", lines], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert complete("viewkeeper", "") == list(COMMANDS)
    assert complete("viewkeeper", "re") == [name for name in COMMANDS if name.startswith("re")]
    assert "--full-refresh" in complete("viewkeeper", "run", "--f")
    assert complete("viewkeeper", "completion", "z") == ["zsh"]


def test_another_shell_is_refused() -> None:
    result = call("completion", "powershell")
    assert result.exit_code == 2
    assert "bash" in result.stderr
