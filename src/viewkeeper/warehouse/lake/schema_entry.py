"""The Delta Lake log entry that gives a table another schema and, perhaps, more files.

The `deltalake` library changes a schema only when it replaces all files, so this entry is composed
here: the table's metadata with another schema, the added files, and our application transaction,
last, as in every entry of ours. What the protocol asks for is little.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from viewkeeper.warehouse.lake import delta_log
from viewkeeper.warehouse.metadata.record import DataFile

_FEATURES = {"timestamp_ntz": "timestampNtz"}


@dataclass(frozen=True, slots=True)
class LakeTableMetadata:
    """What a table says of itself: its metadata, and the features that it has declared."""

    metadata: dict[str, Any]
    reader_features: frozenset[str]
    writer_features: frozenset[str]


def encode_schema_entry(
    n: int, at_ms: int, known: LakeTableMetadata, schema: str, adds: Sequence[tuple[DataFile, str]]
) -> bytes:
    """The entry of record n; `adds` are files with their statistics."""
    lines: list[dict[str, Any]] = [_commit_info(n, at_ms), *_protocol_lines(known, schema)]
    lines.append({"metaData": {**known.metadata, "schemaString": schema}})
    lines += [_add_line(file, stats, at_ms) for file, stats in adds]
    lines.append({"txn": {"appId": delta_log.APPLICATION, "version": n, "lastUpdated": at_ms}})
    return "\n".join(json.dumps(line, separators=(",", ":")) for line in lines).encode()


def _commit_info(n: int, at_ms: int) -> dict[str, Any]:
    return {
        "commitInfo": {"timestamp": at_ms, "operation": "CHANGE SCHEMA", delta_log.APPLICATION: n}
    }


def _protocol_lines(known: LakeTableMetadata, schema: str) -> list[dict[str, Any]]:
    """The features that a type of the new schema needs and the table has not declared yet."""
    needed = {feature for kind, feature in _FEATURES.items() if f'"{kind}"' in schema}
    if needed <= known.reader_features & known.writer_features:
        return []
    features = {
        "readerFeatures": sorted(known.reader_features | needed),
        "writerFeatures": sorted(known.writer_features | needed),
    }
    return [{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}]


def _add_line(file: DataFile, stats: str, at_ms: int) -> dict[str, Any]:
    facts = {"path": file.path, "partitionValues": {}, "size": file.size}
    return {"add": {**facts, "modificationTime": at_ms, "dataChange": True, "stats": stats}}
