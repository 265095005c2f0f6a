"""JSON files that say whether they can be believed.

Head, plans and records are small JSON objects in an envelope: what they are, the format's version,
and a checksum of the body. A file that does not parse, has another kind, or whose checksum differs
is a `CorruptError` that names the file and the way out; after the check, reading the body cannot
fail except by a mistake of ours.
"""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa

from viewkeeper.errors import CorruptError, WarehouseError

FORMAT = 1

Body = dict[str, Any]


def seal(kind: str, body: Body) -> bytes:
    """The envelope of a body, as one line of JSON."""
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    check = zlib.crc32(text.encode())
    return f'{{"kind":"{kind}","format":{FORMAT},"check":{check},"body":{text}}}\n'.encode()


def unseal(path: Path, kind: str, way_out: str) -> Body:
    """The body of a file that holds what it should; FileNotFoundError if there is none."""
    data = path.read_bytes()
    try:
        envelope = json.loads(data)
        found, version, check = envelope["kind"], envelope["format"], envelope["check"]
        body: Body = envelope["body"]
    except (ValueError, KeyError, TypeError) as error:
        raise corrupt(path, kind, f"it does not parse: {error}", way_out) from error
    if version != FORMAT:
        raise WarehouseError(
            f'warehouse file "{path}": format {version}, this program knows {FORMAT}',
            hint="use the version of Viewkeeper that wrote it, or a newer one",
        )
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    if found != kind or check != zlib.crc32(text.encode()):
        raise corrupt(path, kind, "its checksum or kind is wrong", way_out)
    return body


def corrupt(path: Path, kind: str, detail: str, way_out: str) -> CorruptError:
    """The error for a file that cannot be believed."""
    return CorruptError(
        f'warehouse file "{path}": not a {kind} that can be believed', detail=detail, hint=way_out
    )


def schema_text(schema: pa.Schema) -> str:
    """An Arrow schema as text, exactly."""
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def schema_of(text: str) -> pa.Schema:
    """The inverse of `schema_text`."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
