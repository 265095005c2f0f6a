"""Views loaded without Spark: their rows by SQLite, written and committed as a load does it.

A session of Spark costs more than everything that many tests are about.
"""

from __future__ import annotations

import pyarrow as pa

import viewkeeper
from tests.engine.shop import Shop
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import SilentObserver
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake.data_files import write_rows
from viewkeeper.warehouse.metadata.record import Create


def load_by_hand(shop: Shop) -> None:
    """Load all views of a shop that nobody writes to just now."""
    with viewkeeper.open(shop.folder) as project:
        load_views(project, shop)
        assert not project.spark.is_started


def load_views(project: Project, shop: Shop) -> None:
    with project.open_maintainer("test", SilentObserver()) as keeper:
        keeper.start_run()
        keeper.see_commits()
        store = keeper.store
        for name, sql in shop.views.items():
            view = project.catalogue.stored[name]
            schema, ts = view.schema, store.ledger.next_ts - 1
            assert schema is not None, f"{name} needs Spark"
            rows = [[*row, count, ts] for row, count in shop.recomputed(sql).items()]
            columns = [*schema.names, COUNT, TS]
            types = [*schema.types, pa.int64(), pa.int64()]
            arrays = [
                pa.array([row[number] for row in rows], kind) for number, kind in enumerate(types)
            ]
            table = store.new_table(name)
            number = store.head.record + 1
            found = pa.table(arrays, names=columns)
            file = write_rows(store.table_folder(table), schema, found, number, 0)
            positions = {source: keeper.lookout.sightings.known[source] for source in view.sources}
            text = project.catalogue.text_of(name)
            store.commit([Create(name, table, text, schema, ts, positions, (file,))])
