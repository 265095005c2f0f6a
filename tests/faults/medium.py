"""A warehouse on a disk of its own, whose medium can be copied at any moment.

The disk is an image file behind a loop device, with ext4 on it. What the file system has not
written yet is in memory only; the image file has what a power cut leaves. A copy of it, mounted
anew, replays its journal as after a power cut.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

IMAGE_BYTES = 32 << 20
_SETTLED_TRIES = 20


class NotAllowedError(Exception):
    """This machine does not let us mount."""


def make_medium(image: Path) -> None:
    """An empty file system in a file."""
    with open(image, "wb") as file:
        file.truncate(IMAGE_BYTES)
    _run("mkfs.ext4", "-q", "-F", str(image))


@contextmanager
def mounted(image: Path, folder: Path, options: Sequence[str] = ()) -> Iterator[None]:
    """The file system of an image at a folder."""
    folder.mkdir(exist_ok=True)
    _run("mount", "-o", ",".join(["loop", *options]), str(image), str(folder))
    try:
        yield
    finally:
        _run("umount", str(folder))


def copy_medium(image: Path, copy: Path) -> None:
    """What is on the medium now; a copy during which something was written does not count."""
    for _ in range(_SETTLED_TRIES):
        shutil.copyfile(image, copy)
        if filecmp.cmp(image, copy, shallow=False):
            return
    raise AssertionError("the medium is never quiet")


def _run(*command: str) -> None:
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    if done.returncode:
        raise NotAllowedError(f"{' '.join(command)}: {done.stderr.strip()}")
