"""Verification: what is stored against recomputation from the sources, while writers go on.

The newest state is compared with scans at new cuts: what the scans saw beyond the view's positions
is in their tails and is taken back, so both sides stand for the same source states. For every
state, the changes that `history:` keeps are played against the scans: base rows with lifetimes, one
temporal join, compared per (row, ts) over the whole window. A report has no such join: the user's
text runs over the base tables as of the first, the last and some ts in between. A view that reads
other views is computed from the sources, through their texts.

Doubles that a report adds up come out of Spark in any order of their terms, so they are compared
up to a relative difference that no order can make.

While it reads, verification holds the sources' logs with a lease, so that a maintainer that runs
beside it does not trim what the scans still have to take back.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from viewkeeper.check.temporal_join import expected_changes, signed_differences
from viewkeeper.engine.batch.change_archive import (
    archive_files,
    check_archive_files,
    oldest_kept_ts,
)
from viewkeeper.engine.connections.open_sources import (
    Connections,
    Openers,
    hold_logs,
    prepare_openers,
)
from viewkeeper.engine.evolution.anchors import anchored_lines
from viewkeeper.engine.load.view_recomputation import (
    count_report_rows,
    count_view_rows,
    scan_relation,
)
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.spark.job_control import limit_job
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.engine.spark.task_errors import Courier
from viewkeeper.engine.views.bound_view import columns_of
from viewkeeper.engine.views.edited_sql import refuse_edits
from viewkeeper.engine.views.view_catalogue import ViewCatalogue, follow_parents
from viewkeeper.errors import HorizonError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import local_folder, storage_of
from viewkeeper.updates.queue import change_schema
from viewkeeper.updates.source_protocol import COUNT, POSITION, TS
from viewkeeper.view.definition import PROJECT, Field, Relation, ViewDefinition
from viewkeeper.view.render import quote_name
from viewkeeper.warehouse.metadata.head import ViewHead, read_head
from viewkeeper.warehouse.rows.view_state import files_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN = 20
ROUNDED = 10_000
"""So many rows that differ are looked at for doubles that differ in their last digits only."""
SAMPLES = 20
"""At so many ts between the first and the last the states of a report are compared."""
HISTORY_SECONDS = 10.0
"""For so long the changes behind the newest state are waited for, which a flush brings."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict on one view: the states from `since` to `ts`, and what differs.

    A difference has the view's columns, `_count` (positive: missing in the view; negative: too much
    there) and, where every state was checked, `_ts`. `project.verify()` returns one for each view:

    >>> nothing = pa.table({"city": pa.array([], pa.string()), "_count": pa.array([], pa.int64())})
    >>> found = Verification("cities", 3, 3, 1, rows=2, differences=nothing, seconds=0.1)
    >>> found.ok, found.view, found.states
    (True, 'cities', 1)
    >>> missing = pa.table({"city": ["Ulm"], "_count": [1]})
    >>> found = Verification("cities", 3, 3, 1, rows=2, differences=missing, seconds=0.1)
    >>> found.ok, found.differences.to_pylist()
    (False, [{'city': 'Ulm', '_count': 1}])
    """

    view: str
    since: int
    ts: int
    states: int
    rows: int
    differences: pa.Table
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the view equals its recomputation."""
        return self.differences.num_rows == 0


def verify_views(
    settings: Settings,
    catalogue: ViewCatalogue,
    spark: SparkHandle,
    connections: Connections,
    names: Sequence[str],
    every_state: bool,
    since: int | None,
    told: Callable[[str], None],
) -> list[Verification]:
    """Verify these views, one after the other, all as of the head at the beginning."""
    head = read_head(settings.warehouse)
    for name in names:
        _refuse_stopped(head.require_view(name))
    catalogue.adopt_versions(head)
    refuse_edits(catalogue, head)
    used = sorted({s for name in names for s in catalogue.bind_view(name, connections).sources})
    asked = _Asked(every_state, since)
    with hold_logs(connections, used):
        head = read_head(settings.warehouse)
        catalogue.adopt_versions(head)
        definitions = {name: catalogue.bind_view(name, connections) for name in catalogue.bindings}
        definitions |= {name: catalogue.bind_view(name, connections) for name in names}
        return [
            _verify_view(
                settings,
                spark,
                connections,
                ancestry_of(definitions, name),
                head.require_view(name),
                asked,
                told,
            )
            for name in names
        ]


def ancestry_of(definitions: Mapping[str, ViewDefinition], name: str) -> list[ViewDefinition]:
    """A view, and all views of the project that it is made from."""
    return [definitions[n] for n in follow_parents(name, lambda n: definitions[n].parents)]


def _refuse_stopped(view: ViewHead) -> None:
    if view.stopped is not None:
        raise HorizonError(
            f'view "{view.view}": it has stopped, and what it reads may be gone',
            detail=view.stopped.splitlines()[0],
            hint="mend that first, as `viewkeeper status` says, and run again",
        )


def _verify_view(
    settings: Settings,
    spark: SparkHandle,
    connections: Connections,
    views: Sequence[ViewDefinition],
    head: ViewHead,
    asked: _Asked,
    told: Callable[[str], None],
) -> Verification:
    with prepare_openers(connections, head.positions, views) as openers:
        ancestors = {view.name: view for view in views[1:]}
        subject = _Subject(settings, spark, openers, views[0], head, ancestors)
        return _verify_subject(subject, asked, told)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which states: the newest, or every one from `since` on."""

    every_state: bool
    since: int | None


@dataclass(frozen=True, slots=True)
class _Subject:
    settings: Settings
    handle: SparkHandle
    openers: Openers
    view: ViewDefinition
    head: ViewHead
    ancestors: Mapping[str, ViewDefinition]
    courier: Courier = field(default_factory=Courier)

    @property
    def spark(self) -> SparkSession:
        return self.handle.get_session()

    @property
    def root(self) -> StoragePath:
        return self.settings.warehouse

    @property
    def history(self) -> Path:
        return local_folder(self.root) / "history"

    @property
    def is_plain(self) -> bool:
        """Whether one temporal join shows all its states."""
        return self.view.graph is None and not self.ancestors

    @property
    def base_fields(self) -> dict[Relation, tuple[Field, ...]]:
        """What the view is made from, through all views that it reads."""
        return columns_of([self.view, *self.ancestors.values()])


def _verify_subject(subject: _Subject, asked: _Asked, told: Callable[[str], None]) -> Verification:
    started = time.perf_counter()
    head = subject.head
    oldest = oldest_verifiable_ts(subject, asked.since) if asked.every_state else head.ts
    told(f"{head.view}: states from ts {oldest} to {head.ts}")
    for line in anchored_lines(head) if asked.every_state else ():
        told(f"{head.view}: {line}")
    with limit_job(subject.spark, f"verify {head.view}", subject.settings.spark.job_minutes):
        states, table = subject.courier.run_job(lambda: _find_differences(subject, oldest))
    return Verification(
        head.view,
        oldest,
        head.ts,
        states,
        head.rows,
        table,
        time.perf_counter() - started,
    )


def _find_differences(subject: _Subject, oldest: int) -> tuple[int, pa.Table]:
    """How many states were compared, and where they differ."""
    newest = subject.head.ts
    if oldest == newest:
        return 1, _shown_differences(_newest_differences(subject))
    if subject.is_plain:
        return newest - oldest + 1, _shown_differences(_state_differences(subject, oldest))
    return _sampled_differences(subject, oldest)


def _shown_differences(found: DataFrame) -> pa.Table:
    """The first differences, without doubles that differ by the order in which they were added."""
    floats = [f.name for f in found.schema if f.dataType.typeName() in ("float", "double")]
    if not floats:
        return found.limit(SHOWN).toArrow()
    return drop_rounding(found.limit(ROUNDED).toArrow(), floats).slice(0, SHOWN)


def drop_rounding(differences: pa.Table, floats: Sequence[str]) -> pa.Table:
    """The differences without pairs, one missing and one too much, that agree in all but the last
    digits of doubles.

    >>> rows = pa.table({"g": [1, 1, 2], "x": [0.1 + 0.2, 0.3, 5.0], "_count": [1, -1, 1]})
    >>> drop_rounding(rows, ["x"]).to_pylist()
    [{'g': 2, 'x': 5.0, '_count': 1}]
    """
    rows = differences.to_pylist()
    others = [name for name in differences.column_names if name not in (*floats, COUNT)]
    open_rows: dict[tuple[object, ...], list[int]] = {}
    paired: set[int] = set()
    for number, row in enumerate(rows):
        key = tuple(row[name] for name in others)
        for other in open_rows.get(key, []):
            opposite = rows[other][COUNT] == -row[COUNT]
            if opposite and all(_is_close(row[n], rows[other][n]) for n in floats):
                open_rows[key].remove(other)
                paired |= {number, other}
                break
        else:
            open_rows.setdefault(key, []).append(number)
    return differences.take(pa.array([n for n in range(len(rows)) if n not in paired], pa.int64()))


def _is_close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    both_nan = math.isnan(one) and math.isnan(other)
    return both_nan or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


def _sampled_differences(subject: _Subject, oldest: int) -> tuple[int, pa.Table]:
    """The user's text over the base tables as of some ts, against the view as of them."""
    newest = subject.head.ts
    chosen = random.Random(newest).sample(range(oldest, newest + 1), min(SAMPLES, newest - oldest))
    signed = {
        relation: _signed_relation(subject, relation, fields, oldest)
        for relation, fields in subject.base_fields.items()
    }
    pieces = []
    states = sorted({oldest, newest, *chosen})
    for ts in states:
        bases = {r: frame.where(f"`{TS}` <= {ts}").drop(TS) for r, frame in signed.items()}
        expected = _recomputed_rows(subject, subject.view, bases)
        stored = _stored_rows(subject).where(f"`{TS}` <= {ts}").drop(TS)
        found = _shown_differences(signed_differences(expected, stored))
        pieces.append(found.append_column(TS, pa.array([ts] * found.num_rows, pa.int64())))
    return len(states), pa.concat_tables(pieces).slice(0, SHOWN)


def _recomputed_rows(
    subject: _Subject, view: ViewDefinition, bases: Mapping[Relation, DataFrame]
) -> DataFrame:
    """A view by its text, and by those of the views that it reads, over signed base rows."""
    found = dict(bases)
    for name in view.parents:
        parent = _recomputed_rows(subject, subject.ancestors[name], bases)
        found[Relation(PROJECT, name)] = parent
    if view.graph is not None:
        return count_report_rows(subject.spark, view, found)
    return count_view_rows(subject.spark, view, found)


def oldest_verifiable_ts(subject: _Subject, since: int | None) -> int:
    """The oldest ts from which on every state can be checked; HorizonError if asked for more."""
    head = subject.head
    columns = {r: [f.name for f in fields] for r, fields in subject.base_fields.items()}
    kept = _wait_for_history(subject, columns)
    # Before `exact_ts` several transactions share a state, which is not that of each of them.
    oldest = head.ts if kept is None else min(head.ts, max(kept, head.horizon, head.exact_ts))
    if since is not None and since < oldest:
        raise HorizonError(
            f'view "{head.view}": states before ts {oldest} cannot be verified any more',
            detail=f"asked for ts {since}; changes are kept from ts {oldest} on",
            hint="a longer `history:` in viewkeeper.yml keeps more from now on",
        )
    return oldest if since is None else min(since, head.ts)


def _wait_for_history(subject: _Subject, columns: Mapping[Relation, Sequence[str]]) -> int | None:
    """The oldest ts from which on all changes are kept; None if they are not.

    While `run` lives, the changes of small commits are kept with the next flush.
    """
    end = time.monotonic() + HISTORY_SECONDS
    while True:
        kept = oldest_kept_ts(subject.history, columns, subject.head.ts)
        is_live = storage_of(subject.root).commits.running_holder(subject.root, time.time())
        if kept is not None or is_live is None or time.monotonic() > end:
            return kept
        time.sleep(0.05)


def _newest_differences(subject: _Subject) -> DataFrame:
    bases = {
        relation: _scan_now(subject, relation, fields)
        for relation, fields in subject.base_fields.items()
    }
    expected = _recomputed_rows(subject, subject.view, bases)
    return signed_differences(expected, _stored_rows(subject).drop(TS))


def _scan_now(subject: _Subject, relation: Relation, fields: Sequence[Field]) -> DataFrame:
    """A relation as of the view's position, with signed counts."""
    return scan_relation(
        subject.spark,
        relation,
        fields,
        subject.openers[relation.source],
        subject.head.positions[relation.source],
        subject.courier,
    )


def _state_differences(subject: _Subject, oldest: int) -> DataFrame:
    view, head = subject.view, subject.head
    bases = {r: _signed_relation(subject, r, view.fields_of(r), oldest) for r in view.relations}
    expected = expected_changes(subject.spark, view, bases)
    names = [quote_name(name) for name in (*head.shown_schema.names, COUNT)]
    # What lies before the window belongs to the state that the window begins with.
    clamped = f"greatest(`{TS}`, CAST({oldest} AS BIGINT)) AS `{TS}`"
    return signed_differences(expected, _stored_rows(subject).selectExpr(*names, clamped))


def _stored_rows(subject: _Subject) -> DataFrame:
    """Every signed row that is stored of the view up to its mark, hidden columns too.

    Rows are compared by the columns of the user's own query, so counts are summed without them.
    """
    from viewkeeper.warehouse.rows.spark_frames import signed_frame

    root, head = subject.root, subject.head
    files, staging = files_until(root, head, head.ts), subject.handle.staging_folder
    return signed_frame(subject.spark, root, head, files, staging, until=head.ts)


def _signed_relation(
    subject: _Subject, relation: Relation, fields: Sequence[Field], oldest: int
) -> DataFrame:
    """A relation as signed rows with a ts: its state at `oldest`, then every change since.

    The state at `oldest` is the state now minus all changes since.
    """
    head = subject.head
    names = [quote_name(field.name) for field in fields]
    now = _scan_now(subject, relation, fields)
    from viewkeeper.warehouse.rows.spark_frames import frame_of

    schema = change_schema(fields)
    files = archive_files(subject.history, relation, oldest)
    check_archive_files(files)
    kept = frame_of(subject.spark, files, schema)
    since = kept.drop(POSITION).where(f"`{TS}` > {oldest} AND `{TS}` <= {head.ts}")
    at_oldest = f"CAST({oldest} AS BIGINT) AS `{TS}`"
    return (
        now.selectExpr(*names, f"`{COUNT}`", at_oldest)
        .unionAll(since.selectExpr(*names, f"-`{COUNT}` AS `{COUNT}`", at_oldest))
        .unionAll(since.selectExpr(*names, f"`{COUNT}`", f"`{TS}`"))
    )


def verification_json(verification: Verification) -> Mapping[str, Any]:
    """The verdict for scripts."""
    return {
        "view": verification.view,
        "ok": verification.ok,
        "since": verification.since,
        "ts": verification.ts,
        "states": verification.states,
        "rows": verification.rows,
        "differences": verification.differences.to_pylist(),
        "seconds": round(verification.seconds, 3),
    }
