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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.errors import CorruptError, reload_hint
from viewkeeper.storage.named_digest import has_own_bytes, has_own_footer

PATTERN = "b*.parquet"

_NAME = re.compile(r"b\d{20}-\d+-[0-9a-f]{32}(-[0-9a-f]{36})?\.parquet")


def new_data_file_name(batch: int, part: int) -> str:
    """A name that no other attempt can have, for a file that is being written."""
    return f"b{batch:020d}-{part}-{uuid.uuid4().hex}.parquet"


def is_data_file_name(name: str) -> bool:
    """Whether a data file of ours may be called so."""
    return _NAME.fullmatch(name) is not None


def check_size(path: Path, size: int, view: str) -> None:
    """A CorruptError unless a file is there with that size; what costs next to nothing."""
    with translate_read_errors(path, view):
        found = path.stat().st_size
        if found != size:
            raise ValueError(f"it has {found} bytes; {size} were written")


def check_footer(path: Path, size: int, view: str) -> None:
    """A CorruptError unless a file has its size and its footer."""
    check_size(path, size, view)
    with translate_read_errors(path, view):
        if not has_own_footer(path):
            raise ValueError("its footer is not the one that was written")


def read_file(path: Path, size: int, view: str) -> pa.Buffer:
    """All bytes of a file, compared with its name; a CorruptError if it is not what was written."""
    check_size(path, size, view)
    with translate_read_errors(path, view):
        data = path.read_bytes()
        if len(data) != size or not has_own_bytes(path, data):
            raise ValueError("its bytes are not those that were written")
    return pa.py_buffer(data)


def read_whole(path: Path, view: str) -> None:
    """Read every page of a file; a CorruptError if it is not what was written."""
    with translate_read_errors(path, view):
        data = path.read_bytes()
        if not has_own_bytes(path, data):
            raise ValueError("its bytes are not those that were written")
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as parquet:
            for _ in parquet.iter_batches():
                pass


def restore_hint(what: str, view: str) -> str:
    """How a damaged part of a view's table is mended."""
    return f"restore the {what} from a backup, or {reload_hint([view])}"


@contextmanager
def translate_read_errors(path: Path, view: str) -> Iterator[None]:
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
