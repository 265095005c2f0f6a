"""JSON files that say whether they can be believed.

Everything small that is kept (head, plans, records, what a source remembers) is a JSON value in an
envelope: what kind of file it is, the format's version, and a checksum of the body, byte by byte. A
file that does not parse, is of another kind, or whose checksum differs is a `CorruptError` that
names the file and the way out. So is a body that is not what its reader expects:
`translate_decode_errors` turns whatever a reader stumbles over into that error.

Files that were written before they had an envelope are read with `unseal_or_plain`.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from viewkeeper.errors import CorruptError, ViewkeeperError, WarehouseError
from viewkeeper.storage import stored_files
from viewkeeper.storage.storage_path import StoragePath

FORMAT = 1

Body = dict[str, Any]

_HEADER = re.compile(rb'\{"kind":"([a-z_ ]{1,40})","format":(\d{1,9}),"check":(\d{1,10}),"body":')
_END = b"}\n"


def seal_body(kind: str, body: object, version: int = FORMAT) -> bytes:
    """The envelope of a body, as one line of JSON; `version` is that of the kind's format."""
    text = json.dumps(body, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    check = zlib.crc32(text)
    return b'{"kind":"%b","format":%d,"check":%d,"body":%b}\n' % (
        kind.encode(),
        version,
        check,
        text,
    )


def unseal_file(path: StoragePath, kind: str, way_out: str, newest: int = FORMAT) -> Body:
    """The body of a file that holds what it should; FileNotFoundError if there is none.

    `newest` is the newest version of the kind's format that the reader knows.
    """
    return unseal_object(path.read_bytes(), path, kind, way_out, newest)


def unseal_object(data: bytes, path: object, kind: str, way_out: str, newest: int = FORMAT) -> Body:
    """The body in the content of a file, which must be an object; `path` is what errors name."""
    body = unseal_data(data, path, kind, way_out, newest)
    if not isinstance(body, dict):
        raise corrupt_error(path, kind, "its body is not an object", way_out)
    return body


def unseal_or_plain(path: StoragePath, kind: str, way_out: str) -> Any:
    """The same of a file that may have been written before such files were sealed."""
    data = path.read_bytes()
    if data.startswith(b'{"kind":"'):
        return unseal_data(data, path, kind, way_out)
    return _parse_body(data, path, kind, way_out)


def unseal_data(data: bytes, path: object, kind: str, way_out: str, newest: int = FORMAT) -> Any:
    """The body in the content of a file, of any type; `path` is what errors name."""
    header = _HEADER.match(data)
    if header is None or not data.endswith(_END):
        raise corrupt_error(path, kind, f"its envelope is not whole ({len(data)} bytes)", way_out)
    found, version, check = header[1].decode(), int(header[2]), int(header[3])
    text = data[header.end() : -len(_END)]
    if not FORMAT <= version <= newest:
        raise WarehouseError(
            f'warehouse file "{path}": a {kind} of format {version}, this program knows {newest}',
            hint="use the version of Viewkeeper that wrote it, or a newer one; if none did, the "
            f"file is damaged: {way_out}",
        )
    if check != zlib.crc32(text):
        raise corrupt_error(path, kind, "its checksum is wrong", way_out)
    if found != kind:
        raise corrupt_error(path, kind, f"it is a {found}", way_out)
    return _parse_body(text, path, kind, way_out)


def write_sealed(
    path: StoragePath, kind: str, body: object, *, durable: bool = True, whole: bool = True
) -> None:
    """Seal a body and give it to a file; the rest as `disk.replace_file`."""
    stored_files.replace_file(path, seal_body(kind, body), durable=durable, whole=whole)


def corrupt_error(path: object, kind: str, detail: str, way_out: str) -> CorruptError:
    """The error for a file that cannot be believed."""
    return CorruptError(
        f'warehouse file "{path}": not a {kind} that can be believed', detail=detail, hint=way_out
    )


@contextmanager
def translate_decode_errors(path: object, kind: str, way_out: str) -> Iterator[None]:
    """Turn what a reader of a body stumbles over into the error for that file."""
    try:
        yield
    except (ViewkeeperError, OSError):
        raise
    except Exception as error:
        # A right checksum of a body that makes no sense: every kind of mistake is possible.
        detail = f"its content is odd: {type(error).__name__} {error}"
        raise corrupt_error(path, kind, detail[:500], way_out) from error


def _parse_body(text: bytes, path: object, kind: str, way_out: str) -> Any:
    try:
        return json.loads(
            text.decode(), parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated
        )
    except (ValueError, RecursionError) as error:
        raise corrupt_error(path, kind, f"it does not parse: {error}"[:500], way_out) from error


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number")


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> Body:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice in one object")
    return found
