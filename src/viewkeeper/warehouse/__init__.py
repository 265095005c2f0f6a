"""Delta Lake tables: plan, record, redo, read as of, compact, publish.

What needs Spark is in `frames`, `compact` and `publish`, which are imported by name, so that
reading a head, a state or the ledger starts no JVM and imports no PySpark.
"""

from viewkeeper.warehouse.lake.data_files import stored_schema, write_rows, write_stream
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import Head, ViewHead, read_head
from viewkeeper.warehouse.metadata.plan_files import (
    BatchPlan,
    Ledger,
    LedgerEntry,
    load_ledger,
    read_commits,
)
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
from viewkeeper.warehouse.retention import clean_warehouse
from viewkeeper.warehouse.rows.view_state import (
    read_counted,
    read_state,
    read_stored,
    read_view_changes,
)
from viewkeeper.warehouse.store import Store

__all__ = [
    "Advance",
    "BatchPlan",
    "Create",
    "DataFile",
    "Drop",
    "Head",
    "Ledger",
    "LedgerEntry",
    "Record",
    "Redefine",
    "Resume",
    "Rewrite",
    "Stop",
    "Store",
    "ViewChange",
    "ViewHead",
    "clean_warehouse",
    "load_ledger",
    "merge_tail",
    "read_commits",
    "read_counted",
    "read_head",
    "read_state",
    "read_stored",
    "read_view_changes",
    "stored_schema",
    "write_rows",
    "write_stream",
]
