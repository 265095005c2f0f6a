"""Makes the project of layers in a new folder, over the databases of the sample project.

python examples/layers/make.py FOLDER
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def make(folder: Path) -> None:
    """Make the sample, and put the views and settings of this example in the place of its own."""
    sample = [sys.executable, "-m", "viewkeeper.cli.main", "init", str(folder)]
    subprocess.run(sample, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(folder / "views")
    shutil.copytree(HERE / "views", folder / "views")
    shutil.copy(HERE / "viewkeeper.yml", folder / "viewkeeper.yml")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
