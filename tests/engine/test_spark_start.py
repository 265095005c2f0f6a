"""How Spark's processes are started: what is dropped from the path, and what is not passed on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from viewkeeper.engine.batch.worker_daemon import without_zips
from viewkeeper.engine.settings.project_file import SparkSettings, read_settings
from viewkeeper.engine.spark.class_archive import (
    MAKER,
    archive_options,
    archive_path,
    begin_archive,
)
from viewkeeper.engine.spark.jvm_launch import FAST, NOISE, PAUSES, launch_jvm, pass_on
from viewkeeper.engine.spark.spark_session import SparkHandle, is_fast_start
from viewkeeper.errors import ProjectError, SparkUnavailableError


def install_zips(site: Path) -> list[str]:
    library = site / "pyspark" / "python" / "lib"
    library.mkdir(parents=True)
    (site / "pyspark" / "__init__.py").touch()
    return [str(library / name) for name in ("pyspark.zip", f"py4j-{version('py4j')}-src.zip")]


def test_zips_of_the_installation_are_dropped(tmp_path: Path) -> None:
    zips = install_zips(tmp_path / "site")
    others = ["", str(tmp_path / "site"), str(tmp_path / "mine.zip")]
    assert without_zips([*zips, *others]) == others


def test_zips_of_another_installation_stay(tmp_path: Path) -> None:
    zips = install_zips(tmp_path / "spark")
    assert without_zips([*zips, str(tmp_path / "site")]) == [*zips, str(tmp_path / "site")]


def test_a_zip_of_another_py4j_stays(tmp_path: Path) -> None:
    site = tmp_path / "site"
    own, _ = install_zips(site)
    other = str(Path(own).with_name("py4j-0.1-src.zip"))
    assert without_zips([own, other, str(site)]) == [other, str(site)]


def test_all_but_the_noise_is_passed_on(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one\n" + NOISE[0] + b"\ntwo: \xff\nno end")
    os.close(writing)
    with (tmp_path / "screen").open("wb") as screen:
        said = deque[bytes](maxlen=2)
        pass_on(reading, screen.fileno(), said)
    assert (tmp_path / "screen").read_bytes() == b"one\ntwo: \xff\nno end"
    assert list(said) == [b"two: \xff\n", b"no end"]


class Launches:
    """In place of PySpark's launch of a JVM: each says its words on stderr, and ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
        self.words = list(words)
        self.pauses: list[float] = []
        self.settings: dict[str, str] = {}
        monkeypatch.setattr(SparkContext, "_gateway", None)
        monkeypatch.setattr("pyspark.java_gateway.launch_gateway", self.launch)
        monkeypatch.setattr(time, "sleep", self.pauses.append)

    def launch(self, conf: SparkConf, popen: dict[str, int]) -> None:
        self.settings = dict(conf.getAll())
        os.write(popen["stderr"], self.words.pop(0).encode())
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})


def test_the_last_words_of_java_are_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = Launches(monkeypatch, "Unrecognized VM option 'x'\n\tat java.base/y\nError: no VM\n")
    with pytest.raises(SparkUnavailableError, match="Spark could not be started") as found:
        launch_jvm({"spark.master": "local[1]"})
    detail = str(found.value.detail)
    assert detail.endswith("Java said: Unrecognized VM option 'x'\nError: no VM")
    assert "Java gateway process exited" in detail
    assert launches.pauses == []


def test_a_machine_without_room_is_given_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    full = "OutOfMemoryError: unable to create native thread: possibly out of memory\n"
    # One that is killed for its memory has no time to say so.
    launches = Launches(monkeypatch, full, "", "the third\n", "the fourth\n")
    with pytest.raises(SparkUnavailableError) as found:
        launch_jvm({"spark.master": "local[1]"})
    assert str(found.value.detail).endswith("Java said: the third")
    assert launches.pauses == list(PAUSES)


def test_no_secret_is_in_the_arguments_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = Launches(monkeypatch, "over\n")
    secret = {
        "spark.authenticate.secret": "a",
        "spark.connect.authenticate.token": "b",
        "spark.executorEnv.PGPASSWORD": "c",
        "spark.hadoop.fs.s3a.access.key": "d",
    }
    with pytest.raises(SparkUnavailableError):
        launch_jvm({"spark.driver.memory": "1g", **secret})
    assert launches.settings == {"spark.driver.memory": "1g"}


def test_a_start_is_fast_or_plain(tmp_path: Path) -> None:
    file = tmp_path / "viewkeeper.yml"
    minimal = "warehouse: w\nsources: {a: {kind: sqlite, path: a.db}}\nspark: {start: %s}\n"
    file.write_text(minimal % "fast")
    assert read_settings(tmp_path).spark == SparkSettings(start="fast") == SparkSettings()
    file.write_text(minimal % "slow")
    with pytest.raises(ProjectError, match=r'"spark\.start" must be plain or fast'):
        read_settings(tmp_path)


def test_an_archive_is_of_one_java_one_set_of_jars_and_their_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = install_java(tmp_path, monkeypatch)
    paths = [archive_path(FAST), archive_path(("-XX:Other",))]
    (home / "jars" / "more.jar").write_bytes(b"x")
    paths.append(archive_path(FAST))
    (home / "bin" / "java").write_bytes(b"another")
    paths.append(archive_path(FAST))
    assert None not in paths
    assert len({*paths}) == 4
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert archive_path(FAST) is None
    assert archive_options(FAST) == ()


def test_an_archive_is_used_once_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_java(tmp_path, monkeypatch)
    assert archive_options(FAST) == ()
    path = archive_path(FAST)
    assert path is not None
    path.parent.mkdir(parents=True)
    path.touch()
    assert archive_options(FAST)[:2] == (f"-XX:SharedArchiveFile={path}", "-Xshare:auto")
    assert not begin_archive(FAST)
    assert is_fast_start(SparkSettings())
    assert not is_fast_start(SparkSettings(start="plain"))
    assert not is_fast_start(SparkSettings(master="yarn"))
    assert not is_fast_start(SparkSettings(config={"spark.driver.extraJavaOptions": "-Xss1m"}))


def test_an_archive_is_begun_by_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_java(tmp_path, monkeypatch)
    begun: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: begun.append(command))
    assert begin_archive(FAST)
    assert not begin_archive(FAST)
    path = archive_path(FAST)
    assert path is not None
    assert begun == [[sys.executable, "-m", MAKER, str(path), *FAST]]
    # Whoever began long ago has died.
    os.utime(path.with_suffix(".making"), (1.0, 1.0))
    assert begin_archive(FAST)
    monkeypatch.setenv("XDG_CACHE_HOME", str(path.with_suffix(".making")))
    assert not begin_archive(FAST)


def install_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java, Spark's jars, and a cache folder, all of them empty."""
    home = tmp_path / "java"
    for folder in ("bin", "jars"):
        (home / folder).mkdir(parents=True)
    (home / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return home


@pytest.mark.campaign
def test_an_archive_is_made_and_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes about a minute. Java says whether it reads classes from it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = archive_path(FAST)
    assert path is not None
    path.parent.mkdir(parents=True)
    command = [sys.executable, "-m", MAKER, str(path), *FAST]
    subprocess.run(command, check=True, timeout=600, capture_output=True)
    assert path.stat().st_size > 10_000_000
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    shown = "-Xlog:class+load:file=" + str(tmp_path / "classes.log")
    options = " ".join([*FAST, *archive_options(FAST), shown])
    script = (
        "from pathlib import Path; import sys\n"
        "from viewkeeper.engine.settings.project_file import SparkSettings\n"
        "from viewkeeper.engine.spark.spark_session import start_session\n"
        "config = {'spark.driver.extraJavaOptions': sys.argv[1]}\n"
        "start_session(SparkSettings(config=config), Path(sys.argv[2])).range(3).count()\n"
    )
    subprocess.run(
        [sys.executable, "-c", script, options, str(tmp_path / "scratch")], check=True, timeout=300
    )
    lines = (tmp_path / "classes.log").read_text().splitlines()
    shared = [line for line in lines if "shared objects file (top)" in line]
    assert len(shared) > 5_000


def test_a_session_that_the_program_has_is_neither_changed_nor_stopped(
    spark: SparkSession,
) -> None:
    before = dict(spark.conf.getAll)
    handle = SparkHandle(SparkSettings(config={"spark.sql.shuffle.partitions": "7"}))
    assert not handle.is_started
    assert handle.get_session().sparkContext is spark.sparkContext
    assert handle.is_given
    handle.stop_session()
    assert dict(spark.conf.getAll) == before
    assert spark.range(3).count() == 3


def test_the_log_of_a_given_session_stays_as_loud_as_it_is(spark: SparkSession) -> None:
    context = spark.sparkContext
    logs: Any = context._jvm
    context.setLogLevel("FATAL")
    try:
        SparkHandle(SparkSettings(), spark).get_session()
        level = logs.org.apache.logging.log4j.LogManager.getRootLogger().getLevel()
        assert level.toString() == "FATAL"
    finally:
        context.setLogLevel("ERROR")


def test_one_session_is_started_by_whoever_asks_first(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program reads views while another thread of it runs the project: both want Spark."""
    handle, started = SparkHandle(SparkSettings()), list[str]()
    begin = threading.Thread.start

    def take_session() -> None:
        started.append(threading.current_thread().name)
        handle._session = spark

    def start_late(thread: threading.Thread) -> None:
        if thread.name == "spark-start":
            time.sleep(0.05)
        begin(thread)

    monkeypatch.setattr(handle, "_start_session", take_session)
    monkeypatch.setattr(threading.Thread, "start", start_late)
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(handle.get_session) for _ in range(4)]
        assert {id(each.result()) for each in found} == {id(spark)}
    assert started == ["spark-start"]
