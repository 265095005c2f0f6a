"""Verification: what is stored against recomputation from the sources, while writers go on.

The newest state is compared with scans at new cuts: what the scans saw beyond the view's positions
is in their tails and is taken back, so both sides stand for the same source states. For every
state, the changes that `history:` keeps are played against the scans: base rows with lifetimes, one
temporal join, compared per (row, ts) over the whole window.

While it reads, verification holds the sources' logs with a lease, so that a maintainer that runs
beside it does not trim what the scans still have to take back.
"""

from __future__ import annotations

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
from viewkeeper.engine.batch.snapshot_openers import Openers, prepare_openers
from viewkeeper.engine.connections.log_lease import hold_logs
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.evolution.anchors import anchored_lines
from viewkeeper.engine.load.view_recomputation import recompute_view, scan_relation
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.spark.job_control import limit_job
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.engine.spark.task_errors import Courier
from viewkeeper.engine.views.view_catalogue import ViewCatalogue
from viewkeeper.errors import HorizonError
from viewkeeper.updates.queue import change_schema
from viewkeeper.updates.source_protocol import COUNT, POSITION, TS
from viewkeeper.view.definition import Relation, ViewDefinition
from viewkeeper.view.render import quote_name
from viewkeeper.warehouse.metadata.head import ViewHead, read_head
from viewkeeper.warehouse.rows.view_state import files_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict on one view: the states from `since` to `ts`, and what differs.

    A difference has the view's columns, `_count` (positive: missing in the view; negative: too much
    there) and, where every state was checked, `_ts`.
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
    used = sorted({s for name in names for s in catalogue.bind_view(name, connections).sources})
    asked = _Asked(every_state, since)
    with hold_logs(connections, used):
        head = read_head(settings.warehouse)
        catalogue.adopt_versions(head)
        definitions = {name: catalogue.bind_view(name, connections) for name in names}
        return [
            _verify_view(
                settings,
                spark,
                connections,
                definitions[name],
                head.require_view(name),
                asked,
                told,
            )
            for name in names
        ]


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
    view: ViewDefinition,
    head: ViewHead,
    asked: _Asked,
    told: Callable[[str], None],
) -> Verification:
    with prepare_openers(connections, head.positions, [view]) as openers:
        return _verify_subject(_Subject(settings, spark, openers, view, head), asked, told)


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
    courier: Courier = field(default_factory=Courier)

    @property
    def spark(self) -> SparkSession:
        return self.handle.get_session()

    @property
    def root(self) -> Path:
        return self.settings.warehouse

    @property
    def history(self) -> Path:
        return self.root / "history"


def _verify_subject(subject: _Subject, asked: _Asked, told: Callable[[str], None]) -> Verification:
    started = time.perf_counter()
    head = subject.head
    oldest = oldest_verifiable_ts(subject, asked.since) if asked.every_state else head.ts
    told(f"{head.view}: states from ts {oldest} to {head.ts}")
    for line in anchored_lines(head) if asked.every_state else ():
        told(f"{head.view}: {line}")
    with limit_job(subject.spark, f"verify {head.view}", subject.settings.spark.job_minutes):
        found = (
            _state_differences(subject, oldest)
            if oldest < head.ts
            else _newest_differences(subject)
        )
        table = subject.courier.run_job(lambda: found.limit(SHOWN).toArrow())
    return Verification(
        head.view,
        oldest,
        head.ts,
        head.ts - oldest + 1,
        head.rows,
        table,
        time.perf_counter() - started,
    )


def oldest_verifiable_ts(subject: _Subject, since: int | None) -> int:
    """The oldest ts from which on every state can be checked; HorizonError if asked for more."""
    head, view = subject.head, subject.view
    columns = {r: [f.name for f in view.fields_of(r)] for r in view.relations}
    kept = oldest_kept_ts(subject.history, columns, head.ts)
    # Before `exact_ts` several transactions share a state, which is not that of each of them.
    oldest = head.ts if kept is None else min(head.ts, max(kept, head.horizon, head.exact_ts))
    if since is not None and since < oldest:
        raise HorizonError(
            f'view "{head.view}": states before ts {oldest} cannot be verified any more',
            detail=f"asked for ts {since}; changes are kept from ts {oldest} on",
            hint="a longer `history:` in viewkeeper.yml keeps more from now on",
        )
    return oldest if since is None else min(since, head.ts)


def _newest_differences(subject: _Subject) -> DataFrame:
    expected = recompute_view(
        subject.spark,
        subject.view,
        subject.openers,
        subject.head.positions,
        subject.courier,
    )
    return signed_differences(expected, _stored_rows(subject).drop(TS))


def _state_differences(subject: _Subject, oldest: int) -> DataFrame:
    view, head = subject.view, subject.head
    bases = {relation: _signed_relation(subject, relation, oldest) for relation in view.relations}
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


def _signed_relation(subject: _Subject, relation: Relation, oldest: int) -> DataFrame:
    """A relation as signed rows with a ts: its state at `oldest`, then every change since.

    The state at `oldest` is the state now minus all changes since.
    """
    view, head = subject.view, subject.head
    fields = view.fields_of(relation)
    names = [quote_name(field.name) for field in fields]
    now = scan_relation(
        subject.spark,
        relation,
        fields,
        subject.openers[relation.source],
        head.positions[relation.source],
        subject.courier,
    )
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
