"""One call of the program: which project is meant, and which Spark session, if one is given.

The project is the one that `--project` names, or that of the nearest folder upwards which has a
project file, as git finds its repository. Everything heavy is imported when it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.cli.deferred_pandas import defer_pandas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeeper.engine.project import Project
    from viewkeeper.engine.settings.project_file import Settings
    from viewkeeper.engine.views.view_catalogue import ViewCatalogue

PROJECT_FILE = "viewkeeper.yml"


@dataclass
class Invocation:
    """What the options before the command say; `spark` is a session that somebody else owns."""

    path: Path | None = None
    debug: bool = False
    verbose: bool = False
    spark: SparkSession | None = None

    def take_options(self, path: Path | None, debug: bool) -> None:
        """The options before the command were read."""
        self.path, self.debug = path, debug

    def take_verbose(self) -> None:
        """The user wants to see more."""
        self.verbose = True

    @property
    def log_level(self) -> str:
        """What is logged where nothing else is asked for."""
        return "debug" if self.verbose else "info"

    @property
    def folder(self) -> Path:
        """Where the project is, or would be."""
        if self.path is not None:
            return self.path
        here = Path.cwd()
        around = (folder for folder in (here, *here.parents) if (folder / PROJECT_FILE).is_file())
        return next(around, here)

    def read_settings(self) -> Settings:
        """The project's settings alone."""
        defer_pandas()
        from viewkeeper.engine.settings.project_file import read_settings

        return read_settings(self.folder)

    def open_project(self, algorithm: str | None = None, level: str | None = None) -> Project:
        """The project, with its views parsed; no source is touched and no Spark is started.

        `algorithm` and `level` are for all views, instead of what the project file says.
        """
        defer_pandas()
        from viewkeeper.engine.project import Project, open_project

        def adjust(settings: Settings) -> Settings:
            return settings.with_algorithm(algorithm, level)

        project = open_project(self.folder, self.spark)
        settings = adjust(project.settings)
        return Project(settings, project.catalogue, self.spark, adjust=adjust)

    def start_compiler(self, settings: Settings, catalogue: ViewCatalogue) -> Project:
        """Let reports of a catalogue be compiled, which starts Spark when one is."""
        from viewkeeper.engine.project import Project

        return Project(settings, catalogue, self.spark)
