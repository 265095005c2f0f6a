"""Arrow schemas as text, which is how head, records and proposals keep them.

The text is Arrow's own serialization, so that a schema comes back exactly as it was: names with any
characters, decimals with their scale, timestamps with or without a zone.
"""

from __future__ import annotations

import base64

import pyarrow as pa


def schema_text(schema: pa.Schema) -> str:
    """An Arrow schema as text, exactly."""
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def schema_of(text: str) -> pa.Schema:
    """The inverse of `schema_text`; a ValueError if the text is not of a schema."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (OSError, TypeError, pa.ArrowException) as error:
        raise ValueError(f"not a schema: {error}") from error
