"""What came of the cases of one database, as it was seen: their endings, and what was wrong.

What goes wrong with a case is written down under its name, so that one case does not hide another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.live.shapes.case import Case, Ending, Moment
from tests.live.shapes.databases import Database
from viewkeeper.engine.report import SilentObserver
from viewkeeper.errors import ViewkeeperError


class Troubles(SilentObserver):
    """An observer that keeps what maintenance says of trouble and of shapes."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_schema_change(self, view: str, what: str) -> None:
        self.told.append(f"{view}: {what}")

    def on_trouble(self, error: ViewkeeperError) -> None:
        self.told.append(f"trouble: {error}")


@dataclass(slots=True)
class Lived:
    """What came of every case: its ending per moment, and what was wrong, if anything."""

    database: Database
    cases: Sequence[Case]
    endings: dict[tuple[str, Moment], Ending] = field(default_factory=dict)
    wrong: dict[tuple[str, Moment], str] = field(default_factory=dict)
    held: set[tuple[str, Moment]] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    """What failed for writers, and views that wait at the end and should not."""
    died: list[str] = field(default_factory=list)
    """What maintainers died of."""
    stayed: list[str] = field(default_factory=list)
    """Views that did not go on after another one of their source had stopped."""
    versions: dict[str, int] = field(default_factory=dict)
    verified: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """What verification found to differ, per view that it looked at."""
    told: list[str] = field(default_factory=list)

    def complain(self, case: Case, moment: Moment, what: str) -> None:
        known = self.wrong.get((case.name, moment))
        self.wrong[case.name, moment] = f"{known}; {what}" if known else what
