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

__all__ = [
    "BatchReport",
    "Observer",
    "Project",
    "Report",
    "Verification",
    "View",
    "ViewkeeperError",
    "open",
]


def __getattr__(name: str) -> Any:
    homes = {
        "BatchReport": "viewkeeper.engine.report",
        "Observer": "viewkeeper.engine.report",
        "Project": "viewkeeper.engine.project",
        "Report": "viewkeeper.engine.report",
        "Verification": "viewkeeper.engine.operations.verification",
        "View": "viewkeeper.engine.view",
        "ViewkeeperError": "viewkeeper.errors",
        "open": "viewkeeper.engine.project",
    }
    if name not in homes:
        raise AttributeError(f"module 'viewkeeper' has no attribute {name!r}")
    return getattr(import_module(homes[name]), "open_project" if name == "open" else name)
