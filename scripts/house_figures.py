"""Count the house: names, classes, folders, lengths, and the files that one change passes.

    .venv/bin/python scripts/house_figures.py             # the road of a change needs Spark
    .venv/bin/python scripts/house_figures.py --files     # and lists the files on it
    .venv/bin/python scripts/house_figures.py --no-road   # only what is counted from the text

The rules behind the figures are those of `tests/house/rules.py`, before their exceptions. A road is
counted by following the calls of a running project: the files of `src` in which a function is
called from the look that sees a change to its acknowledgement.
"""

from __future__ import annotations

import ast
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.house import rules  # noqa: E402 - the folder of the tests is named first
from tests.house.source_index import SourceFunction, SourceIndex  # noqa: E402 - as above

PACKAGE = str(rules.PACKAGE) + "/"
LABORATORY = ("demo/", "testing/")


def count_names(index: SourceIndex) -> list[tuple[str, str]]:
    functions = [f for f in index.functions if not f.name.startswith("__")]
    two_words = [f for f in functions if "_" in f.name.strip("_")]
    poor = [f for f in functions if not f.is_property and is_poor(f)]
    public = [f for f in poor if f.is_public]
    names = Counter(found.name for found in index.classes)
    shared = sum(count for count in names.values() if count > 1)
    found_variables = sum(
        isinstance(node, ast.Name) and node.id == "found" and isinstance(node.ctx, ast.Store)
        for module in index.modules
        for node in ast.walk(module.tree)
    )
    return [
        ("functions", f"{len(functions):,}"),
        ("  of two words or more", f"{len(two_words) / len(functions):.1%}"),
        ("  called by a bare participle, public", str(len(public))),
        (
            "  called by a bare participle, private",
            f"{(len(poor) - len(public)) / len(functions):.2%}",
        ),
        ("classes", f"{len(index.classes):,}"),
        ("  that share their name", f"{shared} ({shared / len(index.classes):.1%})"),
        ("assignments to a variable called found", str(found_variables)),
    ]


def is_poor(function: SourceFunction) -> bool:
    name = function.name.strip("_")
    return "_" not in name and rules.is_participle(name)


def count_structure(index: SourceIndex) -> list[tuple[str, str]]:
    folders = Counter(m.folder for m in index.modules if m.name != "__init__")
    fullest, modules = folders.most_common(1)[0]
    inherited = len({each.key for each in rules.classes_are_composed(index)})
    large = len({each.key for each in rules.classes_are_small(index)})
    foreign = len(list(rules.nobody_writes_foreign_attributes(index)))
    return [
        ("modules in the fullest folder", f"{modules} ({fullest})"),
        ("classes that inherit from a concrete class of ours", str(inherited)),
        ("limits of size that classes exceed", str(large)),
        ("foreign attribute writes", str(foreign)),
        ("names of a kind of source in engine", str(len(list(rules.engine_names_no_kind(index))))),
        (
            "first lines of docstrings in dialect",
            str(len(list(rules.first_lines_are_plain(index)))),
        ),
        ("names in docstrings that do not exist", str(len(list(rules.ticked_names_exist(index))))),
    ]


def count_lengths(index: SourceIndex) -> list[tuple[str, str]]:
    sizes = {module.path: module.text.count("\n") for module in index.modules}
    product = sum(size for path, size in sizes.items() if not path.startswith(LABORATORY))
    files = [size for path, size in sizes.items() if not path.endswith("__init__.py")]
    functions = [
        (f.node.end_lineno or f.node.lineno) - f.node.lineno + 1 - docstring_lines(f)
        for f in index.functions
    ]
    return [
        ("files", str(len(files))),
        ("lines of src", f"{sum(sizes.values()):,}"),
        ("  without demo and testing", f"{product:,}"),
        ("file lines p50 / p90 / max", quantiles(files, 50, 90, 100)),
        ("function lines p50 / p90 / p99 / max", quantiles(functions, 50, 90, 99, 100)),
        ("functions over 50 lines", str(sum(length > 50 for length in functions))),
    ]


def docstring_lines(function: SourceFunction) -> int:
    first = function.node.body[0]
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return (first.end_lineno or first.lineno) - first.lineno + 1 if is_text else 0


def quantiles(sizes: list[int], *percents: int) -> str:
    ordered = sorted(sizes)
    return " / ".join(str(ordered[(len(ordered) - 1) * percent // 100]) for percent in percents)


# -- the road of a change --------------------------------------------------------------------------

VIEW = """CREATE MATERIALIZED VIEW lines AS
SELECT o.id, o.note, i.amount FROM shop.orders o JOIN shop.item i ON i.order_id = o.id
"""
TABLES = (
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT)",
    "CREATE TABLE item (id INTEGER PRIMARY KEY, order_id INTEGER, amount INTEGER)",
    "INSERT INTO orders VALUES (1, 'first')",
    "INSERT INTO item VALUES (1, 1, 10)",
)
FULL_IMAGES = tuple(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in ("orders", "item"))
CHANGE = "UPDATE orders SET note = 'second' WHERE id = 1"
WAIT_SECONDS = 180


class Road:
    """The functions of src that threads call while `is_open`."""

    def __init__(self) -> None:
        self.is_open = False
        self.functions: set[tuple[str, str]] = set()

    def follow_call(self, frame: FrameType, event: str, _: Any) -> None:
        if self.is_open and event == "call":
            code = frame.f_code
            if code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
                self.functions.add((code.co_filename.removeprefix(PACKAGE), code.co_qualname))

    @property
    def files(self) -> list[str]:
        return sorted({file for file, _ in self.functions})


def follow_change(folder: Path, settings: str, execute: Callable[[str], None]) -> Road:
    """Run a project over one source, change a row once it is loaded, and follow that."""
    import viewkeeper

    (folder / "views").mkdir(parents=True)
    (folder / "views" / "lines.sql").write_text(VIEW)
    (folder / "viewkeeper.yml").write_text(
        f"warehouse: ./warehouse\nsources:\n  shop: {settings}\n"
    )
    road, stop = Road(), threading.Event()
    project = viewkeeper.open(folder)
    project.refresh()
    threading.setprofile(road.follow_call)
    thread = threading.Thread(target=lambda: project.run(stop=stop))
    thread.start()
    try:
        wait_for_change(project, road, execute)
    finally:
        road.is_open = False
        stop.set()
        thread.join()
        threading.setprofile(None)
    project.close()
    return road


def wait_for_change(project: Any, road: Road, execute: Callable[[str], None]) -> None:
    # Long enough that it has bound its views, looked in vain, and only a change moves it.
    time.sleep(5)
    road.is_open = True
    execute(CHANGE)
    end = time.monotonic() + WAIT_SECONDS
    while project.view("lines").arrow()["note"].to_pylist() != ["second"]:
        assert time.monotonic() < end, "the change did not arrive"
        time.sleep(0.05)
    # The acknowledgement comes after the commit.
    time.sleep(3)


def follow_sqlite(folder: Path) -> Road:
    def execute(statement: str) -> None:
        connection = sqlite3.connect(folder.parent / "shop.db")
        with connection:
            connection.execute(statement)
        connection.close()

    for statement in TABLES:
        execute(statement)
    return follow_change(folder, f"{{kind: sqlite, path: {folder.parent / 'shop.db'}}}", execute)


def follow_postgres(folder: Path) -> Road:
    import psycopg

    from viewkeeper.testing.private_servers import PrivatePostgres

    server = PrivatePostgres(folder.parent / "server")
    server.start()

    def execute(statement: str) -> None:
        with psycopg.connect(server.url_of()) as connection:
            connection.execute(statement)

    try:
        for statement in (*TABLES, *FULL_IMAGES):
            execute(statement)
        return follow_change(folder, f'{{kind: postgres, url: "{server.url_of()}"}}', execute)
    finally:
        server.stop()


def show_rows(title: str, rows: list[tuple[str, str]]) -> None:
    print(title)
    for name, value in rows:
        print(f"  {name:<52} {value}")


def main(arguments: list[str]) -> None:
    index = rules.read_source()
    show_rows("names", count_names(index))
    show_rows("structure", count_structure(index))
    show_rows("lengths", count_lengths(index))
    if "--no-road" in arguments:
        return
    for kind, follow in (("SQLite", follow_sqlite), ("PostgreSQL", follow_postgres)):
        with tempfile.TemporaryDirectory(prefix="viewkeeper-house-") as folder:
            road = follow(Path(folder) / "project")
        counted = f"{len(road.files)} files, {len(road.functions)} functions"
        print(f"the road of one {kind} change{'':<{25 - len(kind)}}       {counted}")
        if "--files" in arguments:
            print("\n".join(f"    {file}" for file in road.files))


if __name__ == "__main__":
    main(sys.argv[1:])
