"""The data files of a view, read only if they are what was written.

Names come from a record, a Delta Lake log or a checkpoint, and say what is in the files
(`storage.named_digest`); the head keeps a digest of the list of names (`list_digest`). So damage
anywhere below the head is found from the head alone, and nothing more has to be kept, folded or
cleaned up. Files of before have no digests in their names; of them the size, the number of rows,
and page checksums where there are any, are all that can be compared.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.errors import CorruptError, reload_hint
from viewkeeper.storage.named_digest import has_digests, has_own_bytes, read_footer_facts
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import file_size, storage_of

PATTERN = "b*.parquet"


class SizedFile(Protocol):
    """What a log says of a file's size."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...


_NAME = re.compile(r"b\d{20}-\d+-[0-9a-f]{32}(-[0-9a-f]{36})?\.parquet")


def new_data_file_name(batch: int, part: int, epoch: int = 0) -> str:
    """A name that no other attempt can have, for a file that is being written.

    `epoch` is that of the lock, where names have to tell it.
    """
    unique = uuid.uuid4().hex
    return f"b{batch:020d}-{part}-{f'{epoch:08x}{unique[8:]}' if epoch else unique}.parquet"


def epoch_of_name(name: str) -> int:
    """The epoch under which a data file was named.

    >>> epoch_of_name(new_data_file_name(7, 0, epoch=12))
    12
    """
    return int(name.split("-")[2][:8], 16)


def is_data_file_name(name: str) -> bool:
    """Whether a data file of ours may be called so."""
    return _NAME.fullmatch(name) is not None


def check_size(path: StoragePath, size: int, view: str) -> None:
    """A CorruptError unless a file is there with that size; what costs next to nothing."""
    with translate_read_errors(path, view):
        found = file_size(path)
        if found != size:
            raise ValueError(f"it has {found} bytes; {size} were written")


def check_sizes(folder: StoragePath, files: Iterable[SizedFile], view: str) -> None:
    """The same of many files, for which object storage is asked once."""
    storage = storage_of(folder)
    found = storage.file_sizes(folder) if storage.has_lasting_journal else None
    for file in files:
        if found is None:
            check_size(folder / file.path, file.size, view)
            continue
        with translate_read_errors(folder / file.path, view):
            if found.get(file.path) != file.size:
                raise ValueError(f"it has {found.get(file.path)} bytes; {file.size} were written")


def check_footer(path: StoragePath, size: int, view: str) -> None:
    """A CorruptError unless a file has its size and its footer."""
    if not has_digests(path.name):
        check_size(path, size, view)
        return
    with translate_read_errors(path, view):
        found = read_footer_facts(path)
        if found.size != size:
            raise ValueError(f"it has {found.size} bytes; {size} were written")
        if not found.is_own:
            raise ValueError("its footer is not the one that was written")


def read_file(path: StoragePath, size: int, view: str) -> pa.Buffer:
    """All bytes of a file, compared with its name; a CorruptError if it is not what was written."""
    with translate_read_errors(path, view):
        data = path.read_bytes()
        if len(data) != size:
            raise ValueError(f"it has {len(data)} bytes; {size} were written")
        if not has_own_bytes(path, data):
            raise ValueError("its bytes are not those that were written")
    return pa.py_buffer(data)


def read_whole(path: StoragePath, view: str) -> None:
    """Read every page of a file; a CorruptError if it is not what was written."""
    with translate_read_errors(path, view):
        data = path.read_bytes()
        if not has_own_bytes(path, data):
            raise ValueError("its bytes are not those that were written")
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as parquet:
            for _ in parquet.iter_batches():
                pass


@contextmanager
def open_parquet(path: StoragePath) -> Iterator[pq.ParquetFile]:
    """A Parquet file, of which pages are compared with their checksums."""
    source = storage_of(path).parquet_source(path)
    with pq.ParquetFile(source, page_checksum_verification=True) as file:
        yield file


def read_footer(path: StoragePath) -> pq.FileMetaData:
    """The footer of a Parquet file."""
    return pq.read_metadata(storage_of(path).parquet_source(path))


def restore_hint(what: str, view: str) -> str:
    """How a damaged part of a view's table is mended."""
    return f"restore the {what} from a backup, or {reload_hint([view])}"


@contextmanager
def translate_read_errors(path: StoragePath, view: str) -> Iterator[None]:
    """Turn whatever reading a data file stumbles over into the error for that file."""
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        text = str(error).splitlines()[0][:500] if str(error) else type(error).__name__
        raise CorruptError(
            f'warehouse file "{path}": a data file of view "{view}" that cannot be believed',
            detail=text,
            hint="if it is missing, the reader took longer than the retention: read again; "
            f"otherwise {restore_hint('file', view)}",
        ) from error
