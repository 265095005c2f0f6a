"""Count the house: names, classes, folders, lengths, and the files that one change passes.

    .venv/bin/python scripts/house_figures.py             # the road of a change needs Spark
    .venv/bin/python scripts/house_figures.py --files     # and lists the files on it
    .venv/bin/python scripts/house_figures.py --functions # and the functions
    .venv/bin/python scripts/house_figures.py --no-road   # only what is counted from the text

The rules behind the figures are those of `tests/house/rules.py`, before their exceptions.

The road of a change has the functions that its data passes, from the look that sees it to its
acknowledgement, and the files in which they are. It is counted by following the calls of a running
project while one row is updated. A function is on the road

1. if what it is given or returns *carries* the change: the new value itself, a value that stands
   for the transaction on its way (`CARRIERS`), or a collection that has one of these;
2. if it is called by a source's `acknowledge_position`, which is given a position and nothing else;
3. if it is on the stack of such a call: it leads there.

Everything else that runs meanwhile is not on the road, and is counted as "all that is called": the
next looks that see nothing, health, leases, names, connections and upkeep. Who watches for what is
in danger (`StateWatch`) reads the ledger every few seconds, whether a change comes or not: that is
health too.
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
from types import CodeType, FrameType
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
        for node in module.nodes
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
MARK = "a-note-that-is-nowhere-else"
CHANGE = f"UPDATE orders SET note = '{MARK}' WHERE id = 1"
WAIT_SECONDS = 180
CARRIERS = {
    "Boundary",
    "StreamedTransaction",
    "DecodedTransaction",
    "LedgerEntry",
    "BatchPlan",
    "RelationChanges",
    "BatchChanges",
    "UpdateQueue",
    "Batch",
    "PartTask",
    "PartResult",
    "Lookup",
    "Answer",
    "BatchOutcome",
    "Advance",
    "Record",
    "DataFile",
    "Table",
    "RecordBatch",
}
"""Classes whose values stand for the transaction: in a source, in a batch, in the warehouse."""
DEPTH = 2
WATCHERS = {"StateWatch.compare_states"}
"""What looks at everything from time to time, beside the road."""


def carries_change(value: object, depth: int = DEPTH) -> bool:
    """Whether a value has the change in it."""
    if isinstance(value, str | bytes | bytearray):
        return (MARK if isinstance(value, str) else MARK.encode()) in value
    if type(value).__name__ in CARRIERS:
        return True
    if depth and isinstance(value, list | tuple | dict):
        each = value.values() if isinstance(value, dict) else value
        return any(carries_change(one, depth - 1) for one in list(each)[:20])
    return False


class Road:
    """The functions of src that threads call while `is_open`, and those among them on the road."""

    def __init__(self) -> None:
        self.is_open = False
        self.called: set[tuple[str, str]] = set()
        self.functions: set[tuple[str, str]] = set()

    def follow_call(self, frame: FrameType, event: str, given: Any) -> None:
        code = frame.f_code
        if not self.is_open or not is_function(code):
            return
        if event == "call":
            self.called.add(name_of_code(code))
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            values = [frame.f_locals[name] for name in names if name not in ("self", "cls")]
            if any(map(carries_change, values)) or is_acknowledgement(frame):
                self.add_stack(frame)
        elif event == "return" and carries_change(given):
            self.add_stack(frame)

    def add_stack(self, frame: FrameType | None) -> None:
        """A call and all that led to it are on the road, unless somebody watches from beside."""
        if is_watching(frame):
            return
        while frame is not None:
            if is_function(frame.f_code):
                self.functions.add(name_of_code(frame.f_code))
            frame = frame.f_back

    @property
    def files(self) -> list[str]:
        return sorted({file for file, _ in self.functions})


def is_function(code: CodeType) -> bool:
    """Whether it is a function of src, and not a comprehension or lambda inside of one."""
    return code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<")


def name_of_code(code: CodeType) -> tuple[str, str]:
    return code.co_filename.removeprefix(PACKAGE), code.co_qualname


def is_watching(frame: FrameType | None) -> bool:
    """Whether a call is inside of one of `WATCHERS`."""
    while frame is not None:
        if frame.f_code.co_qualname in WATCHERS:
            return True
        frame = frame.f_back
    return False


def is_acknowledgement(frame: FrameType | None) -> bool:
    """Whether a call is inside of a source's `acknowledge_position`."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "acknowledge_position" and "/sources/" in code.co_filename:
            return True
        frame = frame.f_back
    return False


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
    while project.view("lines").arrow()["note"].to_pylist() != [MARK]:
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
        files = {file for file, _ in road.called}
        counted = f"{len(road.files)} files, {len(road.functions)} functions"
        counted += f" (all that is called: {len(files)} files, {len(road.called)} functions)"
        print(f"the road of one {kind} change{'':<{25 - len(kind)}}       {counted}")
        if "--files" in arguments:
            print("\n".join(f"    {file}" for file in road.files))
        if "--functions" in arguments:
            print("\n".join(f"    {file} {name}" for file, name in sorted(road.functions)))


if __name__ == "__main__":
    main(sys.argv[1:])
