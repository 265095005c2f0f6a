"""Delta Lake tables: plan, record, redo, read as of, compact, publish.

What needs Spark is in `frames`, `compact` and `publish`, which are imported by name, so that
reading a head, a state or the ledger starts no JVM and imports no PySpark.
"""

from viewkeeper.warehouse.lake.data_files import stored_schema, write_rows, write_stream
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.batch_plan import Entry, Ledger, Plan
from viewkeeper.warehouse.metadata.head import Head, ViewHead, read_head
from viewkeeper.warehouse.metadata.plan_files import commits, load_ledger
from viewkeeper.warehouse.metadata.record import (
    Advance,
    Create,
    DataFile,
    Drop,
    Record,
    Redefine,
    Resume,
    Rewrite,
    Stop,
    ViewChange,
)
from viewkeeper.warehouse.retention import clean
from viewkeeper.warehouse.rows.view_state import changes, counted, state, stored
from viewkeeper.warehouse.store import Store

__all__ = [
    "Advance",
    "Create",
    "DataFile",
    "Drop",
    "Entry",
    "Head",
    "Ledger",
    "Plan",
    "Record",
    "Redefine",
    "Resume",
    "Rewrite",
    "Stop",
    "Store",
    "ViewChange",
    "ViewHead",
    "changes",
    "clean",
    "commits",
    "counted",
    "load_ledger",
    "merge_tail",
    "read_head",
    "state",
    "stored",
    "stored_schema",
    "write_rows",
    "write_stream",
]
