"""What a demo is about: databases, a project over them, and the evidence that a judge needs.

Every database of a world has a ledger, into which each transaction puts one row, and the project
has one view over each ledger, so that the ts of every transaction can be read off. Views are loaded
in the order of their names, so the ledgers' before `order_lines`: every transaction that
`order_lines` is loaded with then has a ts at most that of its load.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from viewkeeper.demo.judge.evidence import JudgedDatabase, JudgedQuery
from viewkeeper.demo.writers.paced_writer import WriterRole

VIEW = "order_lines"

SETTINGS = """\
batch:
  # Low, so that the demo shows both: what trickles in runs inline, bursts run on Spark.
  inline_rows: 1000
spark:
  memory: 1g
  config:
    spark.sql.shuffle.partitions: 4
    # A minute is too short for the optimising compiler to pay.
    spark.driver.extraJavaOptions: >-
      -XX:+ExitOnOutOfMemoryError -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


@dataclass(frozen=True, slots=True)
class DemoSizes:
    """How many rows there are at the start, and how many orders one bulk import brings."""

    customers: int = 2_000
    orders: int = 20_000
    items: int = 60_000
    products: int = 500
    imported: int = 500


@dataclass(frozen=True, slots=True)
class WriterProgram:
    """A writer: the module that it is, its role there, and where its database is."""

    module: ModuleType
    role: WriterRole[Any]
    target: str


def ledger_view(database: str) -> str:
    return f"ledger_{database}"


class DemoWorld(ABC):
    """The folder of a demo, with everything that is in it."""

    databases: ClassVar[Mapping[str, str]]
    """Every database, with how it is captured."""
    question: ClassVar[JudgedQuery]
    """The view once more, written by hand for the judge."""
    shown: ClassVar[tuple[str, ...]]
    """The columns of the rows that are shown in the end."""

    def __init__(self, folder: Path, sizes: DemoSizes) -> None:
        self.folder = folder
        self.sizes = sizes

    @abstractmethod
    def source_settings(self) -> str:
        """The sources, for the project file."""

    @abstractmethod
    def view_statement(self) -> str:
        """The statement that makes the view."""

    def ledger_select(self, database: str) -> str:
        """What the view over a ledger selects."""
        return f"SELECT l.n FROM {database}.ledger l"

    def write_project(self) -> None:
        """The project file and the views; needs no database yet."""
        views = {VIEW: self.view_statement()}
        for name in self.databases:
            view = ledger_view(name)
            views[view] = f"CREATE MATERIALIZED VIEW {view} AS {self.ledger_select(name)}\n"
        (self.folder / "views").mkdir(parents=True)
        for name, text in views.items():
            (self.folder / "views" / f"{name}.sql").write_text(text)
        text = f"warehouse: ./warehouse\nsources:\n{self.source_settings()}{SETTINGS}"
        (self.folder / "viewkeeper.yml").write_text(text)

    @contextmanager
    def serve_databases(self) -> Iterator[None]:
        """While this lasts the databases can be reached."""
        yield

    def check_servers(self) -> None:
        """A ClickException if what `serve_databases` started has ended by itself."""
        return

    @abstractmethod
    def fill_databases(self, seed: int) -> None:
        """Make the databases, fill them, and copy them for the judge."""

    @abstractmethod
    def fill_summary(self) -> str:
        """What there is at the start, in a sentence."""

    @abstractmethod
    def writer_programs(self) -> Mapping[str, WriterProgram]:
        """The writers, by name."""

    def writer_command(self, name: str, seed: int) -> Sequence[str]:
        """What starts a writer; it ends with this process."""
        program = self.writer_programs()[name]
        options = {
            "target": program.target,
            "journal": self.journal_path(name),
            "stop": self.stop_file,
            "seed": seed,
            "parent": os.getpid(),
            "customers": self.sizes.customers,
            "products": self.sizes.products,
            "import": self.sizes.imported,
        }
        module = program.module.__name__
        given = (f"--{key}={value}" for key, value in options.items())
        return [sys.executable, "-P", "-m", module, name, *given]

    def initial_file(self, database: str) -> Path:
        """A database before the first change, as a SQLite file."""
        return self.folder / "evidence" / f"{database}.db"

    @abstractmethod
    def final_file(self, database: str) -> Path:
        """A database as it is at the end, as a SQLite file."""

    def prepare_final(self) -> None:
        """The writers have ended: see to it that the final databases can be read."""
        return

    def journal_path(self, writer: str) -> Path:
        return self.folder / "evidence" / f"{writer}.jsonl"

    def journal_paths(self) -> dict[str, list[Path]]:
        """The journals of each database."""
        found: dict[str, list[Path]] = {name: [] for name in self.databases}
        for writer, program in self.writer_programs().items():
            found[program.role.database].append(self.journal_path(writer))
        return found

    @property
    def stop_file(self) -> Path:
        """Writers end when this appears."""
        return self.folder / "evidence" / "stop"

    def judged_databases(self) -> dict[str, JudgedDatabase]:
        return {
            name: JudgedDatabase(self.initial_file(name), self.final_file(name), tuple(journals))
            for name, journals in self.journal_paths().items()
        }
