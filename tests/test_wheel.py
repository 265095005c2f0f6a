"""The wheel and the source distribution, used as a stranger would: without the checkout.

Both are built by the locked environment. The wheel is installed into a fresh environment that has
the packages which the wheel itself asks for, and no others: they are links to those of the locked
environment, so that nothing is downloaded, and what the metadata forget to ask for is missing.
"""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SETTINGS = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
UV = ROOT / ".tools" / "uv"
EXTRAS = {"postgres", "mariadb", "s3", "web", "connect"}
SECONDS = 300.0


@dataclass(frozen=True)
class Distributions:
    """What a build leaves."""

    wheel: Path
    source: Path

    @property
    def wheel_files(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())

    @property
    def source_files(self) -> set[str]:
        """Without the folder that the archive has around everything."""
        with tarfile.open(self.source) as archive:
            return {name.partition("/")[2] for name in archive.getnames()}

    @property
    def metadata(self) -> Message:
        with zipfile.ZipFile(self.wheel) as archive:
            [name] = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
            return email.message_from_bytes(archive.read(name))


@dataclass(frozen=True)
class FreshEnvironment:
    """A virtual environment with the wheel, and a folder to work in."""

    folder: Path
    work: Path

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, with nothing that leads to the checkout."""
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SPARK_HOME", "PYSPARK_PYTHON")
        known = {name: value for name, value in os.environ.items() if name not in hidden}
        return subprocess.run(
            [str(self.folder / "bin" / words[0]), *words[1:]],
            cwd=cwd or self.work,
            env={**known, "PYTHONSAFEPATH": "1", "COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    def call(self, *words: str, cwd: Path | None = None) -> str:
        """Run `viewkeeper`, which must end well, and return what it prints."""
        run = self.run("viewkeeper", *words, cwd=cwd)
        assert run.returncode == 0, run.stderr
        return run.stdout


def build(folder: Path, *kinds: str, root: Path = ROOT) -> None:
    words = [word for kind in kinds for word in ("-t", kind)]
    command = [sys.executable, "-m", "hatchling", "build", *words, "-d", str(folder)]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=SECONDS)
    assert run.returncode == 0, run.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    folder = tmp_path_factory.mktemp("dist")
    build(folder, "wheel", "sdist")
    [wheel] = folder.glob("*.whl")
    [source] = folder.glob("*.tar.gz")
    return Distributions(wheel, source)


@pytest.fixture(scope="module")
def plain(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    """With the wheel alone, no extra."""
    return make_environment(tmp_path_factory.mktemp("plain"), built, set())


def make_environment(folder: Path, built: Distributions, extras: set[str]) -> FreshEnvironment:
    place = folder / "venv"
    uv = [str(UV), "--offline", "--quiet"]
    commands = [
        [*uv, "venv", "--python", sys.executable, str(place)],
        [*uv, "pip", "install", "--python", str(place), "--no-deps", str(built.wheel)],
    ]
    for command in commands:
        run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        assert run.returncode == 0, run.stderr
    [packages] = place.glob("lib/python*/site-packages")
    wanted = [Requirement(text) for text in built.metadata.get_all("Requires-Dist", [])]
    for name in sorted(needed_names(wanted, extras)):
        link_files(metadata.distribution(name), packages)
    work = folder / "work"
    work.mkdir()
    return FreshEnvironment(place, work)


def needed_names(wanted: list[Requirement], extras: set[str]) -> set[str]:
    """The distributions that an installer would bring, by what each of them asks for."""
    waiting = [(each, extras) for each in wanted]
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement, asked = waiting.pop()
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in {"", *asked}):
            continue
        known = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if known not in done:
            done.add(known)
            texts = metadata.distribution(known[0]).requires or []
            waiting += [(Requirement(text), requirement.extras) for text in texts]
    return {name for name, _ in done}


def link_files(distribution: metadata.Distribution, packages: Path) -> None:
    """Let an environment have a package by links to what the package has at its top."""
    files = distribution.files or []
    for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
        link = packages / top
        if not link.exists():
            link.symlink_to(str(distribution.locate_file(top)))


def test_the_wheel_has_the_package_and_nothing_else(built: Distributions) -> None:
    folder = ROOT / "src"
    wanted = {
        file.relative_to(folder).as_posix()
        for file in (folder / "viewkeeper").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {"viewkeeper/py.typed", "viewkeeper/web/page/page.js"} < wanted
    assert "viewkeeper/engine/spark/log4j2.properties" in wanted
    found = {name for name in built.wheel_files if ".dist-info/" not in name}
    assert found == wanted


def test_the_wheel_says_what_it_is(built: Distributions) -> None:
    facts = built.metadata
    assert facts["Name"] == "viewkeeper"
    assert f'version = "{facts["Version"]}"' in SETTINGS
    assert set(facts.get_all("Provides-Extra", [])) == EXTRAS
    assert facts["License-Expression"] == "Apache-2.0"
    assert any(name.endswith("licenses/LICENSE") for name in built.wheel_files)
    python = facts["Requires-Python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {python}" in facts.get_all("Classifier", [])


def test_the_source_distribution_is_complete(built: Distributions, tmp_path: Path) -> None:
    """The wheel that is built from it is the same, and nothing that Git ignores is in it."""
    wanted = {"README.md", "LICENSE", "CHANGELOG.md", "Makefile", "requirements.lock", "PKG-INFO"}
    assert wanted | {"src/viewkeeper/py.typed", "scripts/setup"} < built.source_files
    ignored = re.compile(r"(^|/)(\.venv|\.tools|__pycache__|build|dist|spark-warehouse)/")
    assert [name for name in built.source_files if ignored.search(name)] == []
    with tarfile.open(built.source) as archive:
        archive.extractall(tmp_path, filter="data")
    [folder] = tmp_path.iterdir()
    build(tmp_path / "again", "wheel", root=folder)
    [again] = (tmp_path / "again").glob("*.whl")
    assert Distributions(again, built.source).wheel_files == built.wheel_files


def test_nothing_of_the_checkout_is_used(plain: FreshEnvironment) -> None:
    program = "import sys, viewkeeper; print(viewkeeper.__file__); print(*sys.path, sep='\\n')"
    run = plain.run("python", "-c", program)
    assert run.returncode == 0, run.stderr
    file, *path = run.stdout.splitlines()
    assert Path(file).is_relative_to(plain.folder)
    assert not any(Path(each).is_relative_to(ROOT) for each in path if each), path


def test_the_version_is_that_of_the_wheel(plain: FreshEnvironment, built: Distributions) -> None:
    assert built.metadata["Version"] in plain.call("--version")


def test_a_project_is_made_loaded_and_read(plain: FreshEnvironment) -> None:
    """By the commands that `init` itself names, in a folder outside of the checkout."""
    plain.call("init", "sample")
    folder = plain.work / "sample"
    loaded = plain.run("viewkeeper", "run", "--once", cwd=folder)
    assert loaded.returncode == 0, loaded.stderr
    assert "loaded berlin_bulk (3 rows), customer_totals (4 rows)" in loaded.stderr
    query = "SELECT customer, cents FROM customer_totals ORDER BY customer LIMIT 1"
    [row] = json.loads(plain.call("query", "--format", "json", query, cwd=folder))
    assert row == {"customer": "Ada", "cents": 1020}
    ranked = "SELECT rank() OVER (ORDER BY cents) AS place FROM customer_totals LIMIT 1"
    asked = plain.run("viewkeeper", "query", "--format", "json", ranked, cwd=folder)
    assert json.loads(asked.stdout) == [{"place": 1}]
    # Nothing of Spark's own noise: only that it is started, which takes its time.
    assert asked.stderr.startswith("starting Spark: ")
    assert asked.stderr.count("\n") == 1
    status = json.loads(plain.call("status", "--json", cwd=folder))
    assert {view["name"] for view in status["views"]} >= {"order_lines", "customer_totals"}


@pytest.mark.parametrize(
    ("extra", "settings", "words"),
    [
        ("web", {}, ["run", "--web"]),
        ("postgres", {"kind": "postgres", "url": "postgresql://a@127.0.0.1:1/a"}, ["status"]),
        ("mariadb", {"kind": "mariadb", "url": "mariadb://a@127.0.0.1:1/a"}, ["status"]),
    ],
)
def test_a_missing_extra_is_named(
    plain: FreshEnvironment, tmp_path: Path, extra: str, settings: dict[str, str], words: list[str]
) -> None:
    source = settings or {"kind": "sqlite", "path": "a.db"}
    (tmp_path / "views").mkdir()
    view = "CREATE MATERIALIZED VIEW a AS SELECT id FROM a.a\n"
    (tmp_path / "views" / "a.sql").write_text(view)
    (tmp_path / "viewkeeper.yml").write_text(
        yaml.safe_dump({"warehouse": "./warehouse", "sources": {"a": source}})
    )
    run = plain.run("viewkeeper", *words, cwd=tmp_path)
    assert re.search(rf"pip install ['\"]viewkeeper\[{extra}\]['\"]", run.stdout + run.stderr), run


def test_with_all_extras_everything_is_imported(built: Distributions, tmp_path: Path) -> None:
    """Every module of the wheel, so that what an extra forgets to ask for is missed."""
    environment = make_environment(tmp_path, built, EXTRAS)
    names = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in built.wheel_files
        if name.endswith(".py") and not name.endswith("__main__.py")
    )
    program = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    run = environment.run("python", "-c", program)
    assert run.returncode == 0, run.stderr
