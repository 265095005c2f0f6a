"""Viewkeeper: materialized views over many databases, kept incrementally correct and fresh.

    import viewkeeper

    project = viewkeeper.open("shop")
    report = project.refresh()
    project.view("order_lines").df().show()

A name is imported when it is first used, so that a command that needs no Spark, and a Spark task
that needs no SQL parser, start without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viewkeeper.engine.operations.verification import Verification
    from viewkeeper.engine.project import Project
    from viewkeeper.engine.project import open_project as open
    from viewkeeper.engine.report import BatchReport, Observer, Report
    from viewkeeper.engine.view import View
    from viewkeeper.errors import ViewkeeperError
    from viewkeeper.readers.spark_source import ViewkeeperDataSource

__all__ = [
    "BatchReport",
    "Observer",
    "Project",
    "Report",
    "Verification",
    "View",
    "ViewkeeperDataSource",
    "ViewkeeperError",
    "open",
]


def __dir__() -> list[str]:
    """What there is to use, for those who look with the tab key."""
    return list(__all__)


def __getattr__(name: str) -> Any:
    homes = {
        "BatchReport": "viewkeeper.engine.report",
        "Observer": "viewkeeper.engine.report",
        "Project": "viewkeeper.engine.project",
        "Report": "viewkeeper.engine.report",
        "Verification": "viewkeeper.engine.operations.verification",
        "View": "viewkeeper.engine.view",
        "ViewkeeperDataSource": "viewkeeper.readers.spark_source",
        "ViewkeeperError": "viewkeeper.errors",
        "open": "viewkeeper.engine.project",
    }
    if name not in homes:
        raise AttributeError(f"module 'viewkeeper' has no attribute {name!r}")
    return getattr(import_module(homes[name]), "open_project" if name == "open" else name)
