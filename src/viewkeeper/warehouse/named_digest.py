"""Data files whose names say what is in them.

The name of a data file ends with two digests: of its footer, and of all its bytes. Whoever has the
name, from a record, a Delta Lake log or a checkpoint, can tell whether the file is still what was
written, and the head keeps a digest of the list of names (`file_list`). So damage anywhere below
the head is found from the head alone, and nothing more has to be kept, folded or cleaned up.

Reading a whole file compares all of it. Reading parts of a file compares its footer here, and its
pages by the checksums that Parquet has in them. Files of before have neither; their sizes, and the
number of rows, are all that can be compared.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from viewkeeper.errors import CorruptError

PATTERN = "b*.parquet"
MEND = (
    "restore the file from a backup, or load its view again: viewkeeper run --full-refresh {view}"
)

_NAME = re.compile(
    r"b\d{20}-\d+-[0-9a-f]{32}(?:-(?P<footer>[0-9a-f]{12})(?P<whole>[0-9a-f]{24}))?\.parquet"
)
_END = b"PAR1"
_TAIL_BYTES = 64 << 10


def new_name(batch: int, part: int) -> str:
    """A name that no other attempt can have, for a file that is being written."""
    return f"b{batch:020d}-{part}-{uuid.uuid4().hex}.parquet"


def name_of(name: str, path: Path, whole: str) -> str:
    """The name for a file that is written, by its first name and the digest of its bytes."""
    return f"{name.removesuffix('.parquet')}-{_footer_digest(path)}{whole[:24]}.parquet"


def is_name(name: str) -> bool:
    """Whether a data file of ours may be called so."""
    return _NAME.fullmatch(name) is not None


def has_digest(name: str) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and found["whole"] is not None


class DigestSink:
    """A file that is written through to the end, and digested on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256(usedforsecurity=False)
        self._at = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._digest.update(view)
        left = view
        while left:
            left = left[self._file.write(left) :]
        self._at += len(view)
        return len(view)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """The file stays open: its owner syncs and closes it."""

    @property
    def closed(self) -> bool:
        return self._file.closed

    def digest(self) -> str:
        return self._digest.hexdigest()


def check_size(path: Path, size: int, view: str) -> None:
    """A CorruptError unless a file is there with that size; what costs next to nothing."""
    with believing(path, view):
        found = path.stat().st_size
    if found != size:
        raise damaged(path, view, f"it has {found} bytes; {size} were written")


def check_footer(path: Path, size: int, view: str) -> None:
    """A CorruptError unless a file has its size and its footer."""
    check_size(path, size, view)
    name = _NAME.fullmatch(path.name)
    if name is not None and name["footer"]:
        with believing(path, view):
            found = _footer_digest(path)
        if found != name["footer"]:
            raise damaged(path, view, "its footer is not the one that was written")


def read_file(path: Path, size: int, view: str) -> pa.Buffer:
    """All bytes of a file, compared with its name; a CorruptError if it is not what was written."""
    check_size(path, size, view)
    with believing(path, view):
        data = path.read_bytes()
    name = _NAME.fullmatch(path.name)
    if name is not None and name["whole"]:
        found = hashlib.sha256(data, usedforsecurity=False).hexdigest()[:24]
        if len(data) != size or found != name["whole"]:
            raise damaged(path, view, "its bytes are not those that were written")
    return pa.py_buffer(data)


@contextmanager
def believing(path: Path, view: str) -> Iterator[None]:
    """Turn whatever reading a data file stumbles over into the error for that file."""
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        text = str(error).splitlines()[0][:500] if str(error) else type(error).__name__
        raise damaged(path, view, text) from error


def damaged(path: Path, view: str, detail: str) -> CorruptError:
    """The error for a data file that is not what was written."""
    return CorruptError(
        f'warehouse file "{path}": a data file of view "{view}" that cannot be believed',
        detail=detail,
        hint=f"if it is missing, the reader took longer than the retention: read again; "
        f"otherwise {MEND.format(view=view)}",
    )


def _footer_digest(path: Path) -> str:
    """The digest of a Parquet file's footer; a ValueError if it has none."""
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        tail = os.pread(file.fileno(), min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if tail[-4:] != _END or length > size:
            raise ValueError("it does not end like a Parquet file")
        if length > len(tail):
            tail = os.pread(file.fileno(), length, size - length)
    return hashlib.sha256(tail[-length:], usedforsecurity=False).hexdigest()[:12]
