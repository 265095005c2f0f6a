"""The Spark session: made with good settings when none is given, in the background when possible.

Starting a JVM takes seconds, so whoever needs Spark holds a `SparkHandle`, which can begin to start
in a thread of its own and is waited for only when a job is there. Starting in a thread also keeps
PySpark from replacing the process's Ctrl-C handler.

What SQL means depends on settings of the session that reads it. So whatever we run goes through a
session in which those settings are ours (`PINNED`). A session that is given to us stays as it is:
jobs run in a child of it, with the same context and its other settings.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.engine.settings.project_file import SparkSettings
from viewkeeper.engine.spark.class_archive import archive_options, begin_archive
from viewkeeper.engine.spark.jvm_launch import FAST, has_java_ended, launch_jvm, start_error
from viewkeeper.engine.spark.known_classes import remember_classes
from viewkeeper.engine.spark.worker_check import require_able_workers
from viewkeeper.errors import SparkUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONFIG: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",
    # A load does not keep the batches of other views waiting.
    "spark.scheduler.mode": "FAIR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Thousands of small files are normal here: list them in the driver, and pack them into tasks.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    "spark.sql.files.openCostInBytes": "65536",
}

PINNED: Mapping[str, str] = {
    # Spark would put settings and environment variables into every text that has ${...} in it.
    "spark.sql.variable.substitute": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",
    "spark.sql.legacy.setopsPrecedence.enabled": "false",
    # It fails on an existence in a select list over a union, as a load of a full join has it.
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughUnion"
    ),
}
"""What views and queries mean must not depend on who starts Spark; the project's own settings do
not win over these."""


class SparkHandle:
    """A Spark session that is there, or can be."""

    def __init__(self, settings: SparkSettings, given: SparkSession | None = None) -> None:
        self._settings = settings
        self._given: SparkSession | None = None
        self._session: SparkSession | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._error: SparkUnavailableError | None = None
        self._scratch: str | None = None
        self._staging: str | None = None
        if given is not None:
            self._take_session(given)

    @property
    def is_started(self) -> bool:
        return self._session is not None

    @property
    def is_given(self) -> bool:
        """Whether somebody else has made the session."""
        return self._given is not None

    def begin_start(self) -> None:
        """Begin to start the session in the background, if nobody has."""
        with self._starting:
            if self._session is None and self._thread is None:
                self._thread = threading.Thread(
                    target=self._start_session, name="spark-start", daemon=True
                )
                self._thread.start()

    def get_session(self) -> SparkSession:
        """The session; waits until it has started. One that was given must be able to run tasks."""
        self.begin_start()
        if self._thread is not None:
            self._thread.join()
        if self._session is None:
            assert self._error is not None
            raise self._error
        if self._given is not None:
            require_running(self._given)
            require_able_workers(self._given.sparkContext)
        return self._session

    def get_shared(self) -> SparkSession:
        """The session of DataFrames that are handed out: the given one, or ours."""
        return self._given or self.get_session()

    @property
    def staging_folder(self) -> Path:
        """A folder for files that DataFrames still read; removed when the handle is stopped."""
        if self._staging is None:
            self._staging = tempfile.mkdtemp(prefix="viewkeeper-staging-")
        return Path(self._staging)

    def speed_up_next_start(self) -> None:
        """Have what the next session needs prepared in the background, if ours was started."""
        if self._given is None and self.is_started and is_fast_start(self._settings):
            begin_archive(FAST)

    def stop_session(self) -> None:
        """Stop the session, unless it was given to us."""
        if self._thread is not None:
            self._thread.join()
        if self._session is not None and self._given is None:
            if not has_java_ended(self._session):
                self._session.stop()
            self._session = None
        for folder in (self._scratch, self._staging):
            if folder:
                shutil.rmtree(folder, ignore_errors=True)

    def _take_session(self, given: SparkSession) -> None:
        """Work beside a session that somebody else has made, and will stop."""
        refuse_connect(given)
        require_running(given)
        prepare_session(given)
        self._given, self._session = given, child_session(given)

    def _start_session(self) -> None:
        try:
            found = find_session()
            if found is not None:
                self._take_session(found)
                return
            self._scratch = tempfile.mkdtemp(prefix="viewkeeper-spark-")
            session = start_session(self._settings, Path(self._scratch))
            session.sparkContext.setLogLevel("ERROR")
            prepare_session(session)
            self._session = session
        except SparkUnavailableError as error:
            self._error = error


def find_session() -> SparkSession | None:
    """The session that this program has already, if it has one: a process has only one context, so
    ours would be the same one, and end with us."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException:
        return None


def start_session(settings: SparkSettings, scratch: Path) -> SparkSession:
    """Start a session with our defaults; the project's own settings win."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise SparkUnavailableError(
            "Spark needs Java 17 or newer, and there is none",
            hint="apt-get install openjdk-17-jre-headless (or `make setup`), or set JAVA_HOME",
        )
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.ERROR)
    # The setting alone is not enough: the driver reads this variable when it describes a function.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet = Path(__file__).with_name("log4j2.properties")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-Dlog4j2.configurationFile={quiet.as_uri()}")
    builder = SparkSession.builder.appName("viewkeeper").master(settings.master)
    own = {
        **_CONFIG,
        "spark.driver.memory": settings.memory,
        "spark.driver.extraJavaOptions": " ".join(_java_options(settings)),
        "spark.pyspark.python": sys.executable,
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if settings.master.startswith("local["):
        own["spark.python.daemon.module"] = "viewkeeper.engine.batch.worker_daemon"
    wanted = {**own, **_authentication_settings(settings), **settings.config, **PINNED}
    for key, value in wanted.items():
        builder = builder.config(key, value)
    try:
        named = {"spark.master": settings.master, "spark.app.name": "viewkeeper"}
        launch_jvm({**wanted, **named})
        return builder.getOrCreate()
    except (PySparkException, Py4JError, RuntimeError, OSError) as error:
        raise start_error(error) from error


def _java_options(settings: SparkSettings) -> tuple[str, ...]:
    own = ("-XX:+ExitOnOutOfMemoryError",)
    return (*own, *FAST, *archive_options(FAST)) if is_fast_start(settings) else own


def is_fast_start(settings: SparkSettings) -> bool:
    """Whether the JVM is started by our own options for a quick start."""
    has_own = "spark.driver.extraJavaOptions" in settings.config
    return settings.start == "fast" and settings.master.startswith("local") and not has_own


def _authentication_settings(settings: SparkSettings) -> Mapping[str, str]:
    """The settings by which every client of the driver's ports must know a secret.

    YARN and Kubernetes make one and hand it to their executors. A standalone cluster has its own,
    which only the project file can say; without it nobody could connect.
    """
    if settings.master.startswith("local"):
        secret = secrets.token_hex(32)
        return {"spark.authenticate": "true", "spark.authenticate.secret": secret}
    if settings.master.startswith(("yarn", "k8s://")):
        return {"spark.authenticate": "true"}
    return {}


def child_session(given: SparkSession) -> SparkSession:
    """A session beside a given one, which stays as it is: its settings, but for the pinned ones."""
    child = given.newSession()
    before = dict(child.conf.getAll)
    for key, value in {**dict(given.conf.getAll), **PINNED}.items():
        if before.get(key) != value and child.conf.isModifiable(key):
            child.conf.set(key, value)
    wrong = sorted(key for key, value in PINNED.items() if child.conf.get(key) != value)
    if wrong:
        raise SparkUnavailableError(
            f"the given Spark session does not let {', '.join(wrong)} be set",
            hint="give another session, or none",
        )
    return child


def prepare_session(session: SparkSession) -> None:
    """What every session needs before a job: classes that are found, and our package on other
    machines."""
    remember_classes(session)
    if not str(session.sparkContext.master).startswith("local["):
        session.sparkContext.addPyFile(_zip_package())


def refuse_connect(session: object) -> None:
    """A Spark Connect session has no context to broadcast with."""
    if "pyspark.sql.connect" in type(session).__module__:
        raise SparkUnavailableError(
            "a Spark Connect session cannot run maintenance jobs",
            hint="pass a classic SparkSession, or none",
        )


def require_running(given: SparkSession) -> None:
    """Refuse a session that has been stopped: its context has nothing behind it any more."""
    if given.sparkContext._jsc is None:
        raise SparkUnavailableError(
            "the given Spark session has been stopped",
            hint="open the project again with a session that runs "
            "(`SparkSession.builder.getOrCreate()` makes one), or without any",
        )


def _zip_package() -> str:
    """This package as a zip file that executors can import."""
    root = Path(__file__).parents[2]
    target = Path(tempfile.mkdtemp(prefix="viewkeeper-package-"), "viewkeeper.zip")
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted(root.rglob("*.py")):
            archive.write(file, Path("viewkeeper", file.relative_to(root)))
    return str(target)
