"""Parquet files whose names say what is in them.

The name of such a file ends with two digests: of its footer, and of all its bytes. Whoever has the
name can tell whether the file is still what was written, without keeping anything else. A file is
written under its first name and gets the other one when it is whole (`write_parquet`).

Reading a whole file compares all of it. Reading parts of one compares its footer, and its pages by
the checksums that Parquet keeps with them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.storage import disk

_DIGESTS = re.compile(r"-(?P<footer>[0-9a-f]{12})(?P<whole>[0-9a-f]{24})\.parquet\Z")
_END = b"PAR1"
_TAIL_BYTES = 64 << 10


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

    def hex_digest(self) -> str:
        return self._digest.hexdigest()


@dataclass(slots=True)
class DigestNamedFile:
    """A file that is being written; `path` is its last name once it is whole."""

    writer: pq.ParquetWriter
    path: Path

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        with disk.translate_os_errors("write", self.path):
            self.writer.write(rows)

    def take_name(self, path: Path) -> None:
        """The file is whole, and has its last name."""
        self.path = path


def digest_name(path: Path, stem: str) -> str:
    """The name that a whole file is to have, by the beginning of it and what is in the file."""
    with open(path, "rb") as file:
        whole = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{stem}-{footer_digest(path)}{whole[:24]}.parquet"


def final_path_of(first: Path, whole: str) -> Path:
    """The name for a file that is whole, by its first name and the digest of its bytes."""
    return first.with_name(f"{first.stem}-{footer_digest(first)}{whole[:24]}.parquet")


@contextmanager
def write_parquet(
    first: Path, schema: pa.Schema, *, durable: bool = True
) -> Iterator[DigestNamedFile]:
    """Write a Parquet file with page checksums; it gets its last name when it is whole."""
    with disk.open_new(first) as file:
        sink = DigestSink(file)
        try:
            made = cast("BinaryIO", sink)
            with pq.ParquetWriter(
                made, schema, compression="zstd", write_page_checksum=True
            ) as writer:
                written = DigestNamedFile(writer, first)
                yield written
            if durable:
                os.fsync(file.fileno())
            written.take_name(first.rename(final_path_of(first, sink.hex_digest())))
        except BaseException:
            with suppress(FileNotFoundError):
                first.unlink()
            raise
    if durable:
        disk.sync_folder(first.parent)


def has_own_footer(path: Path) -> bool:
    """Whether a file's footer is the one that its name says; true if its name says nothing."""
    found = _DIGESTS.search(path.name)
    return found is None or footer_digest(path) == found["footer"]


def has_own_bytes(path: Path, data: bytes | None = None) -> bool:
    """Whether a file's bytes are those that its name says; true if its name says nothing."""
    found = _DIGESTS.search(path.name)
    if found is None:
        return True
    if data is not None:
        return hashlib.sha256(data, usedforsecurity=False).hexdigest()[:24] == found["whole"]
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:24] == found["whole"]


def footer_digest(path: Path) -> str:
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
