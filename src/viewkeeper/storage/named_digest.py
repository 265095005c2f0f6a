"""Parquet files whose names say what is in them.

The name of such a file ends with two digests: of its footer, and of all its bytes. Whoever has the
name can tell whether the file is still what was written, without keeping anything else. A file is
written under its first name and gets the other one when it is whole (`write_parquet`).

Reading a whole file compares all of it. Reading parts of one compares its footer, and its pages by
the checksums that Parquet keeps with them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.storage import disk
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import begin_file, storage_of, sync_folder

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
    path: StoragePath

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        with disk.translate_os_errors("write", self.path):
            self.writer.write(rows)

    def take_name(self, path: StoragePath) -> None:
        """The file is whole, and has its last name."""
        self.path = path


def final_name_of(first: Path, whole: str, stem: str | None = None) -> str:
    """The name for a file that is whole, by the digest of its bytes; it begins like its first name,
    or with `stem`."""
    return f"{stem or first.stem}-{footer_digest(first)}{whole[:24]}.parquet"


@contextmanager
def write_parquet(
    first: StoragePath, schema: pa.Schema, *, stem: str | None = None, durable: bool = True
) -> Iterator[DigestNamedFile]:
    """Write a Parquet file with page checksums; it gets its last name when it is whole."""
    file = begin_file(first.parent, first.name)
    try:
        sink = DigestSink(file.sink)
        with disk.translate_os_errors("write", first):
            writer = pq.ParquetWriter(
                cast("BinaryIO", sink), schema, compression="zstd", write_page_checksum=True
            )
        try:
            written = DigestNamedFile(writer, first)
            yield written
        except BaseException:
            # What went wrong first is what counts.
            with suppress(OSError, pa.ArrowException, ValueError):
                writer.close()
            raise
        with disk.translate_os_errors("write", first):
            writer.close()
            whole = sink.hex_digest()
            written.take_name(
                file.finish_file(lambda path: final_name_of(path, whole, stem), durable=durable)[0]
            )
    except BaseException:
        file.abandon_file()
        raise
    if durable:
        sync_folder(first.parent)


@dataclass(frozen=True, slots=True)
class FooterFacts:
    """A Parquet file's size, and whether its footer is the one that its name says."""

    size: int
    is_own: bool


def stems_of(name: str) -> set[str]:
    """What a file may have been called when it was begun: its name without digests; or with them,
    if it was written before names had any.

    >>> sorted(stems_of("7-price.parquet")), len(stems_of(f"7-price-{'0' * 36}.parquet"))
    (['7-price'], 2)
    """
    return {each.removesuffix(".parquet") for each in (_DIGESTS.sub("", name), name)}


def has_digests(name: str) -> bool:
    """Whether a file's name says what is in it."""
    return _DIGESTS.search(name) is not None


def read_footer_facts(path: StoragePath) -> FooterFacts:
    """What the end of a file tells; its name has digests. A ValueError if it has no footer."""
    found = _DIGESTS.search(path.name)
    assert found is not None
    digest, size = _digest_footer(path)
    return FooterFacts(size, digest == found["footer"])


def has_own_footer(path: StoragePath) -> bool:
    """Whether a file's footer is the one that its name says; true if its name says nothing."""
    return not has_digests(path.name) or read_footer_facts(path).is_own


def has_own_bytes(path: StoragePath, data: bytes | None = None) -> bool:
    """Whether a file's bytes are those that its name says; true if its name says nothing."""
    found = _DIGESTS.search(path.name)
    if found is None:
        return True
    if data is None and isinstance(path, Path):
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:24] == found["whole"]
    data = path.read_bytes() if data is None else data
    return hashlib.sha256(data, usedforsecurity=False).hexdigest()[:24] == found["whole"]


def footer_digest(path: StoragePath) -> str:
    """The digest of a Parquet file's footer; a ValueError if it has none."""
    return _digest_footer(path)[0]


def _digest_footer(path: StoragePath) -> tuple[str, int]:
    storage = storage_of(path)
    tail, size = storage.read_end(path, _TAIL_BYTES)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if tail[-4:] != _END or length > size:
        raise ValueError("it does not end like a Parquet file")
    if length > len(tail):
        tail, _ = storage.read_end(path, length)
    return hashlib.sha256(tail[-length:], usedforsecurity=False).hexdigest()[:12], size
