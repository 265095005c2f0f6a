"""Imports go down only, and each outside library is used where it belongs.

The tables say which package is above which, and which may touch what; `tests.imports` reads the
source. Each check is run over the project and, further down, over planted files.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.imports import TOP, Module, part_of, read_modules, starts

SOURCE = Path(__file__).parent.parent / "src" / "viewkeeper"

# From the top down. "viewkeeper" stands for the package's own __init__, the public interface.
LEVELS = (
    ("__main__",),
    ("cli",),
    ("web",),
    ("demo",),
    ("testing",),
    (TOP,),
    ("readers",),
    ("engine", "simulate"),
    ("check", "evolution", "upstream"),
    ("order",),
    ("partition",),
    ("stages",),
    ("maintain", "sources", "warehouse"),
    ("updates",),
    ("delta",),
    ("view",),
    ("storage",),
    ("errors",),
)
# The same inside the engine; parts on one level know nothing of each other.
ENGINE = f"{TOP}.engine"
ENGINE_LEVELS = (
    ("project",),
    ("operations", "query", "view"),
    ("kept_session", "loop"),
    ("reload",),
    ("maintainer", "upkeep"),
    ("requests",),
    ("evolution", "plan_runner", "state_watch"),
    ("algorithms", "group", "lanes", "load"),
    ("batch",),
    ("capture",),
    ("views",),
    ("compile",),
    ("event_hooks",),
    ("event_log",),
    ("connections", "report", "spark", "warehouse_lease"),
    ("repeated_work", "settings"),
)
PURE = (
    "maintain delta view updates evolution partition order.global_id"
    " stages.fold stages.fold_calls stages.fold_layout stages.accumulator stages.extreme"
    " stages.extreme_course stages.exact_numbers stages.exact_floats stages.group_step"
)
ORDER = (
    "order.store.stored_order order.store.sqlite_store order.store.postgres_store"
    " order.service upstream.source"
)
KINDS = ("delta_lake", "files", "mariadb", "postgres", "sqlite")
VENDOR_SQL = re.compile(r"\b(ALTER (TABLE|SYSTEM)|PRAGMA|REPLICA IDENTITY|SET GLOBAL)\b", re.I)
WAREHOUSE = (
    "warehouse.activity warehouse.compact warehouse.group_commit"
    " warehouse.lake warehouse.lasting_recovery warehouse.merge warehouse.metadata.coordination"
    " warehouse.metadata.head warehouse.metadata.plan_files"
    " warehouse.metadata.record warehouse.metadata.unfinished_load"
    " warehouse.metadata.warehouse_identity warehouse.publish"
    " warehouse.recovery warehouse.redo warehouse.retention warehouse.rows.file_search"
    " warehouse.rows.lookup warehouse.rows.stored_actions warehouse.rows.touched_rows"
    " warehouse.rows.view_state warehouse.scrub warehouse.store"
)
"""All but what Spark reads from a disk by itself."""
LAKE = "warehouse sources.delta_lake.table_version demo.writers.lake_writer"


@dataclass(frozen=True, slots=True)
class Rule:
    """Names that parts other than `only`, or the parts `never`, must not refer to.

    All are words with blanks between them; `fine` are exceptions from `names`.
    """

    what: str
    names: str
    advice: str
    only: str = ""
    never: str = ""
    fine: str = ""

    def covers(self, module: Module) -> bool:
        if self.never:
            return within(module.name, self.never)
        return not within(module.name, self.only)

    def forbids(self, name: str) -> bool:
        # `import random` is no use yet: what is then taken from it decides.
        holders = {word.rpartition(".")[0] for word in self.fine.split()}
        allowed = name in holders or any(starts(name, word) for word in self.fine.split())
        return not allowed and any(starts(name, word) for word in self.names.split())


RULES = (
    Rule(
        "threads",
        "threading _thread multiprocessing concurrent asyncio",
        "return an action and let the engine run it",
        only=f"engine cli web demo sources readers.connect {ORDER}",
    ),
    Rule(
        "clocks",
        "time datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today"
        " datetime.date.today",
        "take the time as a parameter; the engine reads the clock",
        only=f"engine cli web demo testing sources readers.connect {ORDER}",
    ),
    Rule(
        "chance",
        "random secrets uuid.uuid1 uuid.uuid4 numpy.random",
        "take a random.Random as a parameter, so that a seed replays the run",
        never=f"{PURE} simulate",
        fine="random.Random",
    ),
    Rule(
        "input and output",
        "os io.open open socket subprocess shutil tempfile http urllib sqlite3 pyspark deltalake",
        "return an action or take the data as a parameter; sources and warehouse do the reading",
        never=PURE,
    ),
    Rule(
        "Spark",
        "pyspark py4j",
        "move what touches Spark into one of the places that may",
        only=(
            "warehouse.rows.spark_frames warehouse.compact warehouse.publish check engine readers"
            " cli demo testing.standalone_cluster"
        ),
    ),
    Rule(
        "the operating system's files",
        "os fcntl shutil tempfile glob mmap",
        "ask the storage of the path, by viewkeeper.storage.stored_files",
        never="warehouse",
    ),
    Rule(
        "paths of a disk",
        "pathlib",
        "take a StoragePath: the warehouse may lie in object storage",
        never=WAREHOUSE,
    ),
    Rule("Delta Lake", "deltalake", "ask the warehouse package for it", only=LAKE),
    Rule(
        "kinds of sources",
        f"{' '.join(f'{TOP}.sources.{kind}' for kind in KINDS)}"
        f" {TOP}.upstream.source {TOP}.upstream.snapshot",
        "ask the Source protocol, sources.kinds or upstream.any_source",
        never="engine",
    ),
)


def within(module: str, places: str) -> bool:
    return any(starts(module, f"{TOP}.{place}") for place in places.split())


def upward_imports(
    modules: list[Module], package: str = TOP, levels: tuple[tuple[str, ...], ...] = LEVELS
) -> list[str]:
    """Imports inside a package that do not go down, and parts that have no level."""
    depths = {part: depth for depth, level in enumerate(levels) for part in level}
    inside = [each for each in modules if starts(each.name, package)]
    if package != TOP:
        inside = [each for each in inside if each.name != package]
    complaints = [
        f"{module.name}: has no level; give {part_of(module.name, package)!r} a place in LEVELS"
        for module in inside
        if part_of(module.name, package) not in depths
    ]
    for module in inside:
        part = part_of(module.name, package)
        for reference in module.references:
            target = part_of(reference.name, package)
            if not reference.imported or not starts(reference.name, package):
                continue
            if target != part and depths.get(target, 0) <= depths.get(part, 99):
                complaints.append(f"{module.name}:{reference.line} imports {reference.name}")
    return complaints


def broken(rule: Rule, modules: list[Module]) -> list[str]:
    """References that `rule` forbids where they stand."""
    found = {
        f"{module.name}:{reference.line} uses {reference.name}"
        for module in modules
        if rule.covers(module)
        for reference in module.references
        if rule.forbids(reference.name)
    }
    return sorted(found)


def named_kinds(path: Path) -> list[str]:
    """Where a file compares with the name of a kind of source, or writes SQL of one."""
    found = []
    tree = ast.parse(path.read_text(), str(path))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in prose:
                if text in KINDS or VENDOR_SQL.search(text):
                    found.append(f"{path.name}:{node.lineno} has {text!r}")
            case ast.Compare(
                left=ast.Name(id="kind") | ast.Attribute(attr="kind"),
                comparators=[ast.Constant(value="warehouse")],
            ):
                found.append(f"{path.name}:{node.lineno} compares a kind with a name")
    return found


def find_cycles(modules: list[Module]) -> list[str]:
    """One shortest cycle for every knot of modules that import each other."""
    graph = {
        module.name: {
            reference.name
            for reference in module.references
            if reference.imported and starts(reference.name, TOP) and reference.name != module.name
        }
        for module in modules
    }
    cycles: list[str] = []
    seen: set[str] = set()
    for start in sorted(graph):
        if start not in seen and (path := path_back(start, graph)):
            seen.update(path)
            cycles.append(" -> ".join(path))
    return cycles


def path_back(start: str, graph: dict[str, set[str]]) -> list[str]:
    """The shortest way from `start` to itself; empty if there is none."""
    waiting = deque([[start]])
    visited: set[str] = set()
    while waiting:
        path = waiting.popleft()
        for target in sorted(graph.get(path[-1], ())):
            if target == start:
                return [*path, start]
            if target not in visited:
                visited.add(target)
                waiting.append([*path, target])
    return []


@pytest.fixture(scope="module")
def ours() -> list[Module]:
    return read_modules(SOURCE)


def test_imports_go_down_only(ours: list[Module]) -> None:
    assert ours
    complaints = "\n  ".join(upward_imports(ours))
    order = " > ".join(", ".join(level) for level in LEVELS)
    assert not complaints, f"move the shared part down; the order is {order}\n  {complaints}"


def test_imports_inside_the_engine_go_down_only(ours: list[Module]) -> None:
    complaints = "\n  ".join(upward_imports(ours, ENGINE, ENGINE_LEVELS))
    order = " > ".join(", ".join(level) for level in ENGINE_LEVELS)
    assert not complaints, f"move the shared part down; the order is {order}\n  {complaints}"


def test_no_modules_import_each_other(ours: list[Module]) -> None:
    complaints = "\n  ".join(find_cycles(ours))
    assert not complaints, f"move what both sides need into a module of its own\n  {complaints}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.what)
def test_outside_libraries_stay_in_their_place(rule: Rule, ours: list[Module]) -> None:
    complaints = "\n  ".join(broken(rule, ours))
    assert not complaints, f"{rule.what}: {rule.advice}\n  {complaints}"


def test_the_engine_names_no_kind_of_source() -> None:
    files = sorted((SOURCE / "engine").rglob("*.py"))
    complaints = "\n  ".join(complaint for path in files for complaint in named_kinds(path))
    assert not complaints, f"hints come from the source, or from sources.kinds\n  {complaints}"


@pytest.mark.parametrize(
    "text",
    [
        'if settings.kind == "files":\n    pass',
        'if kind != "warehouse":\n    pass',
        'INDEXED = ("mariadb", "postgres")',
        'hint = f"ALTER TABLE {name} REPLICA IDENTITY FULL"',
        'hint = "`PRAGMA journal_mode = WAL` helps"',
    ],
)
def test_the_checker_sees_a_kind_of_source_that_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "asker.py"
    path.write_text(f'"""Prose may speak of PRAGMA."""\n\nroot = "warehouse"\n{text}\n')
    assert named_kinds(path)


def plant(folder: Path, sources: dict[str, str]) -> list[Module]:
    for name, text in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_modules(folder)


HIDDEN = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "


@pytest.mark.parametrize(
    "text",
    [
        "import viewkeeper.engine.loop",
        "from viewkeeper.engine.loop import run",
        "from viewkeeper.engine import loop",
        "from viewkeeper import engine",
        "from ..engine import loop",
        "from viewkeeper import View",
        "from viewkeeper.sources import shop",
        "def f():\n    from viewkeeper.engine import loop",
        HIDDEN + "from viewkeeper.engine.loop import run",
        'import importlib\nimportlib.import_module("viewkeeper.engine.loop")',
    ],
)
def test_the_checker_sees_an_import_that_does_not_go_down(tmp_path: Path, text: str) -> None:
    sources = {"__init__.py": "", "engine/__init__.py": "", "engine/loop.py": ""}
    sources |= {
        "sources/__init__.py": "",
        "sources/shop.py": "",
        "maintain/sweep_family/sweep.py": text,
    }
    (complaint,) = upward_imports(plant(tmp_path, sources))
    assert complaint.startswith("viewkeeper.maintain.sweep_family.sweep:")


@pytest.mark.parametrize(
    ("path", "text", "seen"),
    [
        ("engine/batch/barrier.py", "from viewkeeper.engine.load.loader import Loader", 1),
        (
            "engine/group/received_sources.py",
            "def f():\n    from viewkeeper.engine.load import loader",
            1,
        ),
        ("engine/views/odd.py", HIDDEN + "from viewkeeper.engine import loop", 1),
        ("engine/extras/odd.py", "", 1),
        ("engine/loop.py", "from viewkeeper.engine.load.loader import Loader", 0),
        ("engine/load/job.py", "from viewkeeper.engine.load import loader", 0),
        ("engine/settings/file.py", "from viewkeeper.sources import shop", 0),
    ],
)
def test_the_checker_sees_an_import_inside_the_engine_that_does_not_go_down(
    tmp_path: Path, path: str, text: str, seen: int
) -> None:
    sources = {"engine/__init__.py": "", "engine/loop.py": "", "engine/load/loader.py": ""}
    modules = plant(tmp_path, {**sources, "sources/shop.py": "", path: text})
    assert len(upward_imports(modules, ENGINE, ENGINE_LEVELS)) == seen


def test_the_checker_allows_imports_that_go_down_or_stay_inside(tmp_path: Path) -> None:
    text = (
        "from viewkeeper.errors import E\nfrom . import row\nfrom viewkeeper.view import join_tree"
    )
    sources = {"errors.py": "", "view/join_tree.py": "", "delta/row.py": "", "delta/sum.py": text}
    assert upward_imports(plant(tmp_path, sources)) == []


def test_the_checker_wants_a_level_for_every_part(tmp_path: Path) -> None:
    assert "LEVELS" in upward_imports(plant(tmp_path, {"extras/odd.py": ""}))[0]


def test_the_checker_lists_cycles(tmp_path: Path) -> None:
    sources = {
        "view/__init__.py": "from viewkeeper.view.a import x",
        "view/a.py": "from viewkeeper.view import b",
        "view/b.py": "def f():\n    from viewkeeper.view.c import y",
        "view/c.py": HIDDEN + "from .a import x",
        "view/apart.py": "from viewkeeper.view import apart",
    }
    assert find_cycles(plant(tmp_path, sources)) == [
        "viewkeeper.view.a -> viewkeeper.view.b -> viewkeeper.view.c -> viewkeeper.view.a"
    ]


def test_the_checker_sees_a_package_that_its_own_module_names(tmp_path: Path) -> None:
    sources = {
        "view/__init__.py": "from viewkeeper.view.a import x",
        "view/a.py": "from viewkeeper.view import x",
    }
    assert find_cycles(plant(tmp_path, sources)) == [
        "viewkeeper.view -> viewkeeper.view.a -> viewkeeper.view"
    ]


@pytest.mark.parametrize(
    ("what", "path", "text"),
    [
        ("threads", "check/shop.py", "from concurrent.futures import Future"),
        ("threads", "maintain/sweep_family/sweep.py", "def f():\n    import threading"),
        ("clocks", "warehouse/shop.py", "from time import sleep"),
        ("clocks", "view/a.py", "from datetime import datetime as d\nd.now()"),
        ("clocks", "view/a.py", "import datetime as dt\ndt.date.today()"),
        ("chance", "delta/a.py", "import random\nrandom.random()"),
        ("chance", "simulate/a.py", "from random import choice"),
        ("chance", "updates/a.py", "import uuid\nuuid.uuid4()"),
        ("input and output", "view/a.py", "import os.path"),
        ("input and output", "view/a.py", "open('f')"),
        ("input and output", "delta/a.py", HIDDEN + "import sqlite3"),
        ("input and output", "partition/pyco.py", "import sqlite3"),
        ("clocks", "partition/message_cost.py", "import time"),
        ("Spark", "warehouse/metadata/record.py", "from pyspark.sql import SparkSession"),
        ("Spark", "sources/shop.py", "import pyspark.sql.functions as F"),
        ("Delta Lake", "engine/loop.py", "import deltalake"),
    ],
)
def test_the_checker_sees_a_library_out_of_place(
    tmp_path: Path, what: str, path: str, text: str
) -> None:
    modules = plant(tmp_path, {path: text})
    assert [rule.what for rule in RULES if what == rule.what and broken(rule, modules)] == [what]


@pytest.mark.parametrize(
    "text",
    [
        "from viewkeeper.sources.files import FilesSource",
        "from viewkeeper.sources import files",
        HIDDEN + "from viewkeeper.upstream.source import WarehouseSource",
    ],
)
def test_the_checker_sees_a_kind_of_source_in_the_engine(tmp_path: Path, text: str) -> None:
    known = {"sources/files/__init__.py": "", "upstream/source.py": ""}
    modules = plant(tmp_path, {**known, "engine/loop.py": text})
    (rule,) = (rule for rule in RULES if rule.what == "kinds of sources")
    assert broken(rule, modules)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("engine/loop.py", "import threading, time, pyspark\ntime.time()"),
        ("warehouse/rows/spark_frames.py", "import deltalake\nfrom pyspark.sql import DataFrame"),
        ("sources/shop.py", "import sqlite3, os"),
        (
            "simulate/a.py",
            "import random\ndef f(r: random.Random) -> float:\n    return r.random()",
        ),
        ("view/a.py", "from datetime import datetime\ndatetime(2020, 1, 1)\nself.open()"),
    ],
)
def test_the_checker_allows_a_library_in_its_place(tmp_path: Path, path: str, text: str) -> None:
    modules = plant(tmp_path, {path: text})
    assert [complaint for rule in RULES for complaint in broken(rule, modules)] == []
