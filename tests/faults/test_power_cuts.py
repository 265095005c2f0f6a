"""The power is cut while a pass of maintenance writes, and the next one starts from the medium.

The warehouse is on a disk of its own (`tests.faults.medium`). A pass over it is frozen after its
changing system calls, one after the other. Each time the medium is copied as it is; the copy is
mounted, which replays its journal; the judge looks, a pass goes on from it, and the judge looks
again. What a source was told to forget must be there; what readers saw must be there.

Every system call is met at random strides, and every way of journalling has a seed of its own.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.medium import NotAllowedError, make_medium, mounted
from tests.faults.passes import JOURNAL, TABLES, Passes, pass_server
from tests.faults.shop import copy_project
from tests.faults.system_calls import KINDS
from tests.faults.tally import Faults
from tests.faults.writer import write_some

pytestmark = pytest.mark.campaign

SETTINGS = "history: 1h\n"
OPTIONS = ((), ("data=writeback",), ("commit=300",), ("data=journal",))
PASSES = int(os.environ.get("VIEWKEEPER_FAULT_PASSES", "3"))


@pytest.fixture(scope="module", params=[JOURNAL, TABLES])
def passes(request: pytest.FixtureRequest) -> Iterator[Passes]:
    with pass_server(request.param) as server:
        yield server


@pytest.fixture
def room() -> Iterator[Path]:
    """A place for images and mounts; skips where mounting is not allowed."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="viewkeeper-", dir=place) as folder:
        try:
            make_medium(Path(folder) / "try.img")
            with mounted(Path(folder) / "try.img", Path(folder) / "try"):
                pass
        except NotAllowedError as error:
            pytest.skip(f"power cuts need a loop mount, which is not allowed here: {error}")
        yield Path(folder)


@pytest.mark.parametrize("seed", range(len(OPTIONS)))
def test_power_cut_after_changing_calls(
    seed: int, passes: Passes, reporting: Path, room: Path, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(seed)
    faults = Faults(f"power cut, {', '.join(OPTIONS[seed]) or 'ordered'}")
    project, image = room / "shop", room / "shop.img"
    make_medium(image)
    copy_project(reporting, project, SETTINGS)
    prepared = project.rename(room / "prepared")
    shutil.copytree(prepared, project, ignore=shutil.ignore_patterns("warehouse"))
    with mounted(image, project / "warehouse"):
        shutil.copytree(prepared / "warehouse", project / "warehouse", dirs_exist_ok=True)
    with mounted(image, project / "warehouse", OPTIONS[seed]):
        assert passes.run(project).code == 0
        for _ in range(PASSES):
            write_some(project, rng, ("shop", "crm", "cat"), 2)
            faults.add(*passes.cut(project, stops(rng), image))
    faults.check(f".venv/bin/python -m pytest -m campaign '{request.node.nodeid}'")


def stops(rng: random.Random) -> list[str]:
    """Stop at every so manieth call of every kind, in every thread."""
    arguments = ["-f"]
    for kind, names in KINDS.items():
        stride = 40 if kind == "write" else rng.randint(2, 4)
        when = f"{rng.randint(1, stride)}+{stride}"
        arguments += ["-e", f"inject={','.join(names)}:signal=STOP:when={when}"]
    traced = ",".join(",".join(names) for names in KINDS.values())
    return ["-e", f"trace={traced}", *arguments]
