"""What a proposed definition would do to a view's rows, computed and thrown away.

The view is computed under the proposed definition, as of where the ledger stands, and compared with
what is stored, while the maintainer and the writers go on. Where the stored rows stay as they are
nothing is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from viewkeeper.engine.connections.open_sources import Connections, hold_logs, prepare_openers
from viewkeeper.engine.evolution.proposals import Proposed
from viewkeeper.engine.load.load_job import StoredParents, StoredRows, row_schema
from viewkeeper.engine.load.view_recomputation import recompute_view
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.spark.job_control import limit_job
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.engine.spark.task_errors import Courier
from viewkeeper.engine.views.bound_view import bind_again
from viewkeeper.updates.source_protocol import COUNT
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.warehouse.metadata.head import ViewHead, read_head
from viewkeeper.warehouse.metadata.plan_files import load_ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Preview:
    """How many rows come and go, and some of them: the view's columns and `_count`.

    None for `sample` where no row is touched, or where all are written anew.
    """

    came: int
    went: int
    sample: pa.Table | None = None


def preview_proposal(
    settings: Settings, spark: SparkHandle, connections: Connections, proposed: Proposed
) -> Preview | None:
    """What would change; None if a source that the definition needs is not followed yet."""
    views = read_head(settings.warehouse).views
    head = views[proposed.view]
    if proposed.adaptation in ("nothing", "restate"):
        return Preview(0, 0)
    view = bind_again(proposed.version, None).view
    courier = Courier()
    with hold_logs(connections, view.sources):
        positions = _preview_positions(settings, view, head)
        if positions is None:
            return None
        with (
            prepare_openers(connections, positions, [view]) as openers,
            limit_job(spark.get_session(), f"changes of {view.name}", settings.spark.job_minutes),
        ):
            parents = StoredParents(spark, settings.warehouse, views)
            frame = recompute_view(
                spark.get_session(), view, openers, positions, courier, parents.frame_of
            )
            if proposed.adaptation == "reload":
                return Preview(_count_rows(frame, courier), head.rows)
            stored = StoredRows(settings.warehouse, head, spark.staging_folder)
            old = stored.stored_frame(spark.get_session(), row_schema(frame, view))
            return _compare_rows(frame, old, courier)


def _preview_positions(
    settings: Settings, view: ViewDefinition, head: ViewHead
) -> dict[str, int] | None:
    ledger = load_ledger(settings.warehouse)
    found: dict[str, int] = {}
    for source in view.sources:
        at = ledger.position_at(source, ledger.next_ts)
        at = head.positions.get(source) if at is None else at
        if at is None:
            return None
        found[source] = at
    return found


def _compare_rows(frame: DataFrame, stored: DataFrame, courier: Courier) -> Preview:
    from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

    from viewkeeper.warehouse.rows.spark_frames import exact_column, sum_counts

    names = [name for name in frame.columns if name != COUNT]
    columns = [exact_column(name) for name in names]
    old = stored.select(*columns, (-F.col(COUNT)).alias(COUNT))
    both = sum_counts(frame.select(*columns, F.col(COUNT)).unionAll(old), names).persist()
    try:
        came, went = (_count_rows(both.where(F.col(COUNT) * sign > 0), courier) for sign in (1, -1))
        sample = courier.run_job(lambda: both.limit(SHOWN).toArrow())
    finally:
        both.unpersist()
    return Preview(came, -went, sample)


def _count_rows(frame: DataFrame, courier: Courier) -> int:
    found: Any = courier.run_job(lambda: frame.agg({COUNT: "sum"}).collect())
    return int(found[0][0] or 0)
