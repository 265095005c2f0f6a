"""How Spark's processes are started: what is dropped from the path, and what is not passed on."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pytest

from viewkeeper.engine.batch.worker_daemon import without_zips
from viewkeeper.engine.settings.project_file import SparkSettings, read_settings
from viewkeeper.engine.spark.jvm_launch import NOISE, pass_on
from viewkeeper.errors import ProjectError


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
        pass_on(reading, screen.fileno())
    assert (tmp_path / "screen").read_bytes() == b"one\ntwo: \xff\nno end"


def test_a_start_is_fast_or_plain(tmp_path: Path) -> None:
    file = tmp_path / "viewkeeper.yml"
    minimal = "warehouse: w\nsources: {a: {kind: sqlite, path: a.db}}\nspark: {start: %s}\n"
    file.write_text(minimal % "fast")
    assert read_settings(tmp_path).spark == SparkSettings(start="fast")
    file.write_text(minimal % "slow")
    with pytest.raises(ProjectError, match=r'"spark\.start" must be plain or fast'):
        read_settings(tmp_path)
