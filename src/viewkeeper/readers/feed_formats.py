"""A feed as lines of JSON: our own, or those of Debezium.

Values are exact, as `viewkeeper query --format json` writes them. Every line is one JSON object.

*json* says what the feed says: a line per event, and per changed row its signed count.

*debezium* is the envelope that Debezium's connectors write, for programs that read those. It has no
counts, so a row that comes or goes n times has n lines; first what goes, then what comes. An update
is only known by a key: where the user names columns that are one, and a ts takes away one row and
brings one row of the same key, that is one line. The rows with which a feed begins are *reads*, a
reset is a *truncate*, and the end of a ts is the END of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, assert_never

import pyarrow as pa

from viewkeeper.engine.query.arrow_answer import shown_rows
from viewkeeper.engine.query.exact_values import as_json
from viewkeeper.errors import DefinitionError
from viewkeeper.readers.view_feed import (
    FeedChanges,
    FeedColumns,
    FeedEnd,
    FeedEvent,
    FeedPlace,
    FeedReset,
)
from viewkeeper.updates.source_protocol import COUNT

Row = dict[str, object]


class FeedFormat(Protocol):
    """How the events of a feed are written."""

    def write_event(self, event: FeedEvent) -> Iterator[str]:
        """The lines of an event, without their ends."""


class JsonLines:
    """Our own lines."""

    def __init__(self, view: str) -> None:
        self._view = view

    def write_event(self, event: FeedEvent) -> Iterator[str]:
        match event:
            case FeedReset():
                yield as_json({"event": "reset", "view": self._view, "origin": event.origin})
            case FeedColumns():
                types = {field.name: str(field.type) for field in event.schema}
                yield as_json({"event": "columns", "view": self._view, "columns": types})
            case FeedChanges():
                for count, row in counted_rows(event.rows):
                    yield as_json({"event": "change", "ts": event.ts, "count": count, "row": row})
            case FeedEnd():
                facts = {"event": "end", "ts": event.place.ts, "since": str(event.place)}
                yield as_json(facts)
            case _:
                assert_never(event)


class DebeziumLines:
    """The envelopes of Debezium."""

    def __init__(
        self, view: str, project: str, keys: Sequence[str], now: Callable[[], float]
    ) -> None:
        """`project` is what the source of the changes is called; `keys` are columns that are one
        key together, none if no key is known."""
        self._view = view
        self._project = project
        self._keys = tuple(keys)
        self._now = now
        self._events = 0

    def write_event(self, event: FeedEvent) -> Iterator[str]:
        match event:
            case FeedReset():
                facts = self._source_facts(FeedPlace(0, event.origin), self._now(), "true")
                yield self._envelope("t", None, None, facts)
            case FeedColumns():
                self._check_keys(event.schema)
            case FeedChanges():
                yield from self._write_changes(event)
            case FeedEnd():
                yield self._write_end(event.place)
            case _:
                assert_never(event)

    def _check_keys(self, schema: pa.Schema) -> None:
        for name in self._keys:
            if name not in schema.names:
                raise DefinitionError(
                    f'view "{self._view}": no column {name}, which is named as a key',
                    hint=f"columns: {', '.join(schema.names)}",
                )

    def _write_changes(self, event: FeedChanges) -> Iterator[str]:
        snapshot = "true" if event.is_body else "false"
        facts = self._source_facts(FeedPlace(event.ts), event.committed_at, snapshot)
        for before, after in paired_rows(counted_rows(event.rows), self._keys):
            match before, after:
                case None, _:
                    word = "r" if event.is_body else "c"
                case _, None:
                    word = "d"
                case _:
                    word = "u"
            self._events += 1
            yield self._envelope(word, before, after, facts)

    def _source_facts(self, place: FeedPlace, at: float, snapshot: str) -> dict[str, Any]:
        return {
            "connector": "viewkeeper",
            "name": self._project,
            "db": self._project,
            "table": self._view,
            "snapshot": snapshot,
            "ts_ms": round(at * 1000),
            "ts": place.ts,
        }

    def _envelope(
        self, word: str, before: Row | None, after: Row | None, source: dict[str, Any]
    ) -> str:
        body: dict[str, object] = {"before": before, "after": after, "source": source, "op": word}
        body["ts_ms"] = round(self._now() * 1000)
        if word != "t":
            number = {"total_order": self._events, "data_collection_order": self._events}
            body["transaction"] = {"id": str(source["ts"]), **number}
        return as_json(body)

    def _write_end(self, place: FeedPlace) -> str:
        events, self._events = self._events, 0
        collections = [{"data_collection": self._view, "event_count": events}] if events else []
        return as_json(
            {
                "status": "END",
                "id": str(place.ts),
                "event_count": events,
                "data_collections": collections,
                "ts_ms": round(self._now() * 1000),
                "since": str(place),
            }
        )


def counted_rows(rows: pa.Table) -> Iterator[tuple[int, Row]]:
    """The signed rows by the names of their columns, those with negative counts first."""
    ordered = rows.take(pa.compute.sort_indices(rows, [(COUNT, "ascending")]))
    names = [name for name in rows.schema.names if name != COUNT]
    shown = shown_rows(ordered.select(names)) if names else [()] * rows.num_rows
    for count, values in zip(ordered[COUNT].to_numpy().tolist(), shown, strict=True):
        yield count, dict(zip(names, values, strict=True))


def paired_rows(
    signed: Iterator[tuple[int, Row]], keys: Sequence[str]
) -> Iterator[tuple[Row | None, Row | None]]:
    """What each row was before and is after; two rows of one key are one where both are alone.

    >>> signed = [(-1, {"id": 1, "n": 5}), (-1, {"id": 2, "n": 5}), (1, {"id": 1, "n": 6})]
    >>> list(paired_rows(iter(signed), ["id"]))
    [({'id': 1, 'n': 5}, {'id': 1, 'n': 6}), ({'id': 2, 'n': 5}, None)]
    """
    gone: list[Row] = []
    come: list[Row] = []
    for count, row in signed:
        (gone if count < 0 else come).extend([row] * abs(count))
    by_key = {_key_of(row, keys): row for row in come} if keys else {}
    is_paired = keys and _are_unique(gone, keys) and _are_unique(come, keys)
    paired = set[str]()
    for row in gone:
        key = _key_of(row, keys)
        after = by_key.get(key) if is_paired else None
        if after is not None:
            paired.add(key)
        yield row, after
    for row in come:
        if _key_of(row, keys) not in paired:
            yield None, row


def _key_of(row: Row, keys: Sequence[str]) -> str:
    return as_json([row[name] for name in keys]) if keys else ""


def _are_unique(rows: Sequence[Row], keys: Sequence[str]) -> bool:
    return len({_key_of(row, keys) for row in rows}) == len(rows)
