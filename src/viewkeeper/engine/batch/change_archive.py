"""Kept changes: what `history:` remembers so that past states can be verified.

The changes of every relation that the views read are kept as Parquet files for a while, by ts. An
index says, per relation, from which ts to which ts everything is there, with which columns. Writing
is idempotent by ts: a batch that is replayed after a crash finds its rows already kept. Files are
synced before the index counts them, so what it says holds after a power cut too. A plan whose
record was never written may be gone with its ts, so a start forgets what lies beyond the ledger.

A small commit takes the changes that led to it along into the journal, so they are as durable as
it is, and no file is written for them: they are *held*. The flush writes one file per relation for
all commits since the last one, so changes are kept about a second later than the commit. What a
process has left in the journal when it died is found by the next start.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import CorruptError
from viewkeeper.storage import disk
from viewkeeper.storage.named_digest import has_own_bytes, write_parquet
from viewkeeper.storage.sealed_json import seal_body, translate_decode_errors, unseal_or_plain
from viewkeeper.storage.typed_json import read_typed
from viewkeeper.updates.queue import BatchChanges, RelationChanges
from viewkeeper.updates.source_protocol import COUNT, POSITION, TS
from viewkeeper.view.definition import Relation

HELD_BYTES = 8 << 20
"""Beyond so much, changes are written at once."""

_HEAD_END = b"\n"


@dataclass(frozen=True, slots=True)
class ChangeSpan:
    """The changes of a relation with `after` < ts <= `until`, and perhaps older ones."""

    relation: Relation
    changes: RelationChanges
    after: int
    until: int

    def join_following(self, following: ChangeSpan) -> ChangeSpan | None:
        """Both together; None if there is a gap between them, or they have other columns."""
        if following.until <= self.until:
            return self
        one, other = self.changes.table, following.changes.table
        if following.after != self.until or one.schema != other.schema:
            return None
        joined = pa.concat_tables([one, other.filter(pc.greater(other[TS], pa.scalar(self.until)))])
        rows = RelationChanges(joined.num_rows, joined)
        return ChangeSpan(self.relation, rows, self.after, following.until)


def spans_of(changes: BatchChanges, after: int, until: int) -> list[ChangeSpan]:
    """The changes of a batch, by relation."""
    return [ChangeSpan(r, found, after, until) for r, found in changes.relations.items()]


def can_be_held(spans: Iterable[ChangeSpan]) -> bool:
    """Whether changes are in memory, and few."""
    changes = [span.changes for span in spans]
    return all(each.file is None for each in changes) and (
        sum(each.table.nbytes for each in changes) < HELD_BYTES // 8
    )


def encode_span(span: ChangeSpan) -> bytes:
    """A line of JSON that says what it is, then Arrow's stream format."""
    facts = [span.relation.source, span.relation.table, span.after, span.until]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, span.changes.table.schema) as stream:
        stream.write_table(span.changes.table)
    return json.dumps(facts).encode() + _HEAD_END + sink.getvalue().to_pybytes()


def decode_span(data: bytes) -> ChangeSpan:
    """What `encode_span` has made."""
    at = data.index(_HEAD_END)
    source, table, after, until = json.loads(data[:at])
    rows = pa.ipc.open_stream(data[at + 1 :]).read_all()
    return ChangeSpan(Relation(source, table), RelationChanges(rows.num_rows, rows), after, until)


class HeldChanges:
    """What waits for the next flush, by relation."""

    def __init__(self) -> None:
        self._spans: dict[Relation, ChangeSpan] = {}

    @property
    def size(self) -> int:
        """How many bytes they take."""
        return sum(span.changes.table.nbytes for span in self._spans.values())

    def add_spans(self, spans: Sequence[ChangeSpan]) -> bool:
        """Hold more; False, and nothing more is held, where they do not follow what is there."""
        joined = dict(self._spans)
        for span in spans:
            known = joined.get(span.relation)
            both = span if known is None else known.join_following(span)
            if both is None:
                return False
            joined[span.relation] = both
        self._spans = joined
        return True

    def take_spans(self) -> list[ChangeSpan]:
        """Everything; nothing is held any more."""
        found, self._spans = list(self._spans.values()), {}
        return found


_INDEX = "index.json"


@dataclass(frozen=True, slots=True)
class ArchivedSpan:
    """Of a relation: all changes with `since` < ts <= `through`, with these columns.

    `files` is in how many files they are; not known where an earlier version began to keep them.
    """

    since: int
    through: int
    columns: tuple[str, ...]
    files: int | None = None

    def is_counted(self, file: Path) -> bool:
        """Whether a file is one of those that are counted."""
        return self.since < _file_span(file)[1] <= self.through

    def files_left(self, files: int) -> int | None:
        """How many files are left when so many go."""
        return None if self.files is None else self.files - files


class ChangeArchive:
    """The history folder of a warehouse, as its writer uses it.

    The index on disk is the only one. It shrinks before files are removed and grows after they are
    written, so a process that dies in between leaves files that the index does not count.

    Changes are kept and held by the thread that maintains views, and what is held is written by
    that of the flush.
    """

    def __init__(self, folder: Path, guard: disk.Guard = disk.no_guard) -> None:
        self._folder = folder
        self._guard = guard
        self._tidy: dict[Relation, ArchivedSpan] = {}
        """Relations whose files are those that the index counts, as of these spans."""
        self._held = HeldChanges()
        self._mutex = threading.RLock()

    def keep_changes(self, changes: BatchChanges, after: int, until: int) -> None:
        """Keep the changes with `after` < ts <= `until`, unless they already are."""
        with self._mutex:
            self.write_held()
            self._keep_spans(spans_of(changes, after, until))

    def hold_changes(self, changes: BatchChanges, after: int, until: int) -> list[bytes]:
        """Keep changes with the next flush; what the journal shall have of them until then.

        Nothing where they are many: then they are kept at once.
        """
        spans = spans_of(changes, after, until)
        if not can_be_held(spans):
            self.keep_changes(changes, after, until)
            return []
        with self._mutex:
            if self._held.size > HELD_BYTES or not self._held.add_spans(spans):
                self.write_held()
                self._held.add_spans(spans)
        return [encode_span(span) for span in spans]

    def write_held(self) -> None:
        """Write what is held."""
        with self._mutex:
            if spans := self._held.take_spans():
                self._keep_spans(spans)

    def recover_archive(self, left: Iterable[bytes], last: int) -> None:
        """Make good after a process that died: forget what lies after the last ts of the ledger,
        and keep what it had `left` in the journal."""
        self._forget_after(last)
        for data in left:
            self._keep_spans([decode_span(data)])

    def _keep_spans(self, spans: Sequence[ChangeSpan]) -> None:
        tidy, self._tidy = self._tidy, {}
        with disk.translate_os_errors("write", self._folder / _INDEX):
            self._guard()
            found = read_index(self._folder)
            index = dict(found)
            for span in spans:
                kept = found.get(span.relation)
                if kept is not None and not (
                    span.until <= kept.through or _can_continue(kept, span.changes, span.after)
                ):
                    del index[span.relation]
            if index != found:
                self._write_index(index)
            before = dict(index)
            for span in spans:
                kept = index.get(span.relation)
                is_tidy = kept is not None and tidy.get(span.relation) == kept
                index[span.relation] = self._keep_relation(span, kept, is_tidy)
            if index != before:
                self._write_index(index)
            self._tidy = {span.relation: index[span.relation] for span in spans}

    def forget_before(self, horizon: int) -> None:
        """Drop what lies at or before a ts."""
        with disk.translate_os_errors("write", self._folder / _INDEX):
            index = read_index(self._folder)
            old = [relation for relation, kept in index.items() if kept.since < horizon]
            for relation in old:
                kept = index[relation]
                going = [
                    f
                    for f in _relation_files(self._folder, relation)
                    if _file_span(f)[1] <= horizon
                ]
                left = kept.files_left(sum(map(kept.is_counted, going)))
                index[relation] = ArchivedSpan(
                    horizon, max(kept.through, horizon), kept.columns, left
                )
            self._write_index(index)
            for file in (
                file for relation in old for file in _relation_files(self._folder, relation)
            ):
                if _file_span(file)[1] <= horizon:
                    self._guard()
                    file.unlink(missing_ok=True)

    def _forget_after(self, ts: int) -> None:
        """Drop what lies after a ts: its plan was never made durable.

        A flush may have written such changes into one file with older ones. It goes as a whole,
        and the older ones are still in the journal, which the flush had not shortened yet.
        """
        index = read_index(self._folder)
        beyond = {relation: kept for relation, kept in index.items() if kept.through > ts}
        for relation, kept in beyond.items():
            going = [
                file
                for file in _relation_files(self._folder, relation)
                if kept.is_counted(file) and _file_span(file)[1] > ts
            ]
            through = min([ts, *(_file_span(file)[0] for file in going)])
            since, left = min(kept.since, through), kept.files_left(len(going))
            index[relation] = ArchivedSpan(since, through, kept.columns, left)
        if beyond:
            with disk.translate_os_errors("write", self._folder / _INDEX):
                self._write_index(index)

    def clear_archive(self) -> None:
        """Forget everything; what is not kept without a gap is not kept at all."""
        if (self._folder / _INDEX).exists():
            (self._folder / _INDEX).unlink()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _keep_relation(
        self, span: ChangeSpan, kept: ArchivedSpan | None, is_tidy: bool
    ) -> ArchivedSpan:
        if kept is not None and span.until <= kept.through:
            return kept
        changes = span.changes
        kept = kept or ArchivedSpan(span.after, span.after, _value_columns(changes), 0)
        if not is_tidy:
            self._remove_uncounted(span.relation, kept)
        if changes.rows:
            self._write_file(span.relation, changes, kept.through, span.until)
        left = kept.files_left(-1 if changes.rows else 0)
        return ArchivedSpan(kept.since, span.until, kept.columns, left)

    def _remove_uncounted(self, relation: Relation, kept: ArchivedSpan) -> None:
        """Remove files of a window that has ended, or of a process that died before it said so."""
        for file in _relation_files(self._folder, relation):
            if not kept.is_counted(file):
                self._guard()
                file.unlink(missing_ok=True)

    def _write_file(
        self, relation: Relation, changes: RelationChanges, after: int, until: int
    ) -> None:
        home = _relation_folder(self._folder, relation)
        disk.make_folder(home)
        first = home / f"h{until:020d}-{after:020d}.parquet"
        # Left by a process that died before it had written all of it.
        first.unlink(missing_ok=True)
        with write_parquet(first, changes.table.schema) as file:
            for piece in changes.read_pieces():
                stamps = piece[TS].to_numpy()
                file.write(piece.filter(pa.array((stamps > after) & (stamps <= until))))

    def _write_index(self, index: Mapping[Relation, ArchivedSpan]) -> None:
        body = [[r.source, r.table, asdict(kept)] for r, kept in index.items()]
        disk.replace_file(self._folder / _INDEX, seal_body("index", body), self._guard)


def _can_continue(kept: ArchivedSpan, changes: RelationChanges, after: int) -> bool:
    """Whether changes after a ts can be added to what is kept without a gap."""
    return kept.through >= after and set(kept.columns) == set(_value_columns(changes))


def _value_columns(changes: RelationChanges) -> tuple[str, ...]:
    return tuple(n for n in changes.table.column_names if n not in (COUNT, POSITION, TS))


def read_index(folder: Path) -> dict[Relation, ArchivedSpan]:
    """What is kept, per relation; nothing if the index is not readable."""
    path = folder / _INDEX
    try:
        with translate_decode_errors(path, "index", ""):
            body = unseal_or_plain(path, "index", "")
            found = read_typed(list[tuple[str, str, ArchivedSpan]], body)
            return {Relation(source, table): kept for source, table, kept in found}
    except (OSError, CorruptError):
        # Nothing is kept that is not known to be complete.
        return {}


def oldest_kept_ts(
    folder: Path, columns: Mapping[Relation, Sequence[str]], through: int
) -> int | None:
    """The oldest ts from which on all changes of these columns are kept up to `through`."""
    index = read_index(folder)
    oldest = 0
    for relation, wanted in columns.items():
        kept = index.get(relation)
        if kept is None or kept.through < through or not set(wanted) <= set(kept.columns):
            return None
        oldest = max(oldest, kept.since)
    return oldest


def archive_files(folder: Path, relation: Relation, after: int) -> list[Path]:
    """The files that can hold changes of a relation after a ts; a CorruptError if one is gone."""
    kept = read_index(folder).get(relation)
    while kept is not None:
        files = [file for file in _relation_files(folder, relation) if kept.is_counted(file)]
        if kept.files is None or kept.files == len(files):
            return [file for file in files if after < _file_span(file)[1]]
        # Whoever forgets files says so in the index before they go.
        before, kept = kept, read_index(folder).get(relation)
        if kept == before:
            home = _relation_folder(folder, relation)
            raise _corrupt_archive(
                home, f"{before.files} files were written, {len(files)} are there"
            )
    return []


def check_archive_files(files: Iterable[Path]) -> None:
    """A CorruptError for a file of kept changes that is not what was written."""
    for file in files:
        try:
            fine = has_own_bytes(file)
        except OSError:
            fine = False
        if not fine:
            raise _corrupt_archive(file, "its bytes are not those that were written")


def _corrupt_archive(path: Path, detail: str) -> CorruptError:
    return CorruptError(
        f'warehouse file "{path}": kept changes that cannot be believed',
        detail=f"{detail}; this says nothing of the view",
        hint="remove the folder history of the warehouse: what `--every-state` can look back to "
        "begins anew; `viewkeeper verify` without it compares the newest state",
    )


def _relation_folder(folder: Path, relation: Relation) -> Path:
    return folder / f"{relation.source}.{relation.table}"


def _relation_files(folder: Path, relation: Relation) -> list[Path]:
    return sorted(_relation_folder(folder, relation).glob("h*.parquet"))


def _file_span(file: Path) -> tuple[int, int]:
    until, after = file.stem[1:].split("-")[:2]
    return int(after), int(until)
