"""Viewkeeper: materialized views over many databases, kept incrementally correct and fresh.

import viewkeeper

project = viewkeeper.open("shop")
report = project.refresh()
project.view("order_lines").df().show()
"""

from viewkeeper.engine.project import Project
from viewkeeper.engine.project import open_project as open
from viewkeeper.engine.report import BatchReport, Observer, Report
from viewkeeper.engine.verify import Verification
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
