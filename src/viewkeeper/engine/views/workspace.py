"""The workspace: what everybody who maintains the views of a project works with.

A project file, an open warehouse, the views, the sources, Spark and somebody who watches belong
together from the moment the warehouse's lock is taken until it is given back. They are one value,
made once, and each part of the engine takes from it what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.report import Observer
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.engine.views.view_catalogue import ViewCatalogue
from viewkeeper.warehouse.store import Store


@dataclass(frozen=True, slots=True)
class Workspace:
    """One project at work; used by the thread that holds the lock."""

    settings: Settings
    store: Store
    catalogue: ViewCatalogue
    connections: Connections
    spark: SparkHandle
    observer: Observer
