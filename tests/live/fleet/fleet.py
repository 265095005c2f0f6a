"""A fleet: projects in folders, the processes that maintain them, and the registry they share.

A member is a folder with a project file and views, made from data. Its sources are read off its
SQL: what is called like a base is that base, what is called like a member is that project. Views
are loaded in the test's own process, with the Spark session of the run; then every member is a
process of its own, which can be killed and started again at any moment.
"""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession

import viewkeeper
from tests.faults.processes import Process, command, maintainer
from tests.live.fleet.bases import Base
from viewkeeper.engine.project import Project
from viewkeeper.errors import ViewkeeperError
from viewkeeper.order.member_secret import member_secret
from viewkeeper.order.registry_address import open_registry
from viewkeeper.order.registry_protocol import MemberFacts
from viewkeeper.warehouse.metadata.head import Head, read_head

PATIENCE_SECONDS = 240.0
SERVICE = "the registry's service"
_READ = re.compile(r"(?:FROM|JOIN) (\w+)\.(\w+)")


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """A project to be: its name as a member, and its views."""

    name: str
    views: Mapping[str, str]
    together: str = ""

    def read_by(self, view: str) -> list[tuple[str, str]]:
        """The tables that a view reads, each with the name of its source."""
        return _READ.findall(self.views[view])

    @property
    def reads(self) -> dict[str, set[str]]:
        """The names of its sources, bases and other members, each with what it reads there."""
        found: dict[str, set[str]] = {}
        for view in self.views:
            for source, table in self.read_by(view):
                found.setdefault(source, set()).add(table)
        return found


@dataclass
class Fleet:
    """Members below a folder; leaving it ends every process."""

    folder: Path
    bases: Mapping[str, Base]
    registry: str
    members: dict[str, MemberPlan] = field(default_factory=dict)
    extra: str = ""
    """More lines for every project file."""
    processes: dict[str, Process] = field(default_factory=dict)
    outputs: dict[str, list[str]] = field(default_factory=dict)
    """What every process of a member said, over its lives."""

    def add(self, plan: MemberPlan) -> None:
        """Write a project, or write it again with other views."""
        folder = self.folder / plan.name
        (folder / "views").mkdir(parents=True, exist_ok=True)
        sources = "\n".join(f"  {name}: {self._source(name)}" for name in plan.reads)
        together = f", together: {plan.together}" if plan.together else ""
        (folder / "viewkeeper.yml").write_text(
            f"warehouse: ./warehouse\nfreshness: 50ms\nbatch: {{inline_rows: 1000000}}\n"
            f"sources:\n{sources}\n"
            f"registry: {{url: '{self.registry}'{together}}}\n{self.extra}"
        )
        for name, sql in plan.views.items():
            text = f"CREATE MATERIALIZED VIEW {name} AS\n{sql};\n"
            (folder / "views" / f"{name}.sql").write_text(text)
        self.members[plan.name] = plan

    def _source(self, name: str) -> str:
        if name in self.bases:
            return self.bases[name].source()
        return f"{{kind: warehouse, path: ../{name}}}"

    def warehouse(self, member: str) -> Path:
        return self.folder / member / "warehouse"

    def head(self, member: str) -> Head:
        return read_head(self.warehouse(member))

    def enrol(self) -> None:
        """Tell the registry of all members at once, so that groups need not change at the start."""
        for name, plan in self.members.items():
            read = plan.reads
            bases = {base: tuple(read[base]) for base in read if base in self.bases}
            parents = tuple(source for source in read if source not in bases)
            with viewkeeper.open(self.folder / name) as project:
                facts = MemberFacts(bases, parents, plan.together, warehouse=project.reader_name())
                secret = member_secret(self.warehouse(name))
                with closing(open_registry(self.registry, self.folder / name, secret=secret)) as at:
                    at.join_registry(name, facts)

    # -- loading -------------------------------------------------------------------------------

    def load(self, spark: SparkSession, *names: str) -> None:
        """Load the views of these members or of all, parents first; all go on meanwhile."""
        stop, errors, threads = threading.Event(), list[BaseException](), list[threading.Thread]()
        with ExitStack() as stack:
            try:
                for name in names or tuple(self.members):
                    project = viewkeeper.open(self.folder / name, spark=spark)
                    stack.enter_context(project)
                    threads.append(threading.Thread(target=_run, args=(project, stop, errors)))
                    threads[-1].start()
                    self.wait(f"{name} to be loaded", partial(self._ready, name, errors))
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
        if errors:
            raise errors[0]

    def _ready(self, name: str, errors: list[BaseException]) -> bool:
        return bool(errors) or self.loaded(name)

    def loaded(self, name: str) -> bool:
        """Whether all views of a member are loaded."""
        return {*self.members[name].views} <= {*self.head(name).views}

    # -- processes -----------------------------------------------------------------------------

    def start(self, *names: str, program: bool = False) -> None:
        """Start these members, or all: the run as users have it, or one that starts no JVM."""
        for name in names or tuple(self.members):
            assert name not in self.processes
            folder = self.folder / name
            self.processes[name] = command(folder, "run") if program else maintainer(folder)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self.processes.pop(name)
        try:
            process.kill()
        finally:
            self._end(name, process)

    def stop(self, *names: str) -> None:
        """SIGTERM, and wait; it must have ended well."""
        for name in names or tuple(self.processes)[::-1]:
            process = self.processes.pop(name)
            try:
                code = process.stop(signal.SIGTERM)
                # One that was still starting had no time to learn about signals.
                well = (0,) if process.lines else (0, -signal.SIGTERM)
                assert code in well, f"{name} ended with {code}:\n{process.output}"
            finally:
                self._end(name, process)

    def _end(self, name: str, process: Process) -> None:
        self.outputs.setdefault(name, []).extend(process.lines)
        process.__exit__(None, None, None)

    # -- the registry --------------------------------------------------------------------------

    def serve(self, store: str = "registry.db") -> None:
        """Have a service answer for the registry, over a store; again after it was killed."""
        port = int(self.registry.rpartition(":")[2])
        listen = ["--store", str(self.folder / store), "--listen", f"127.0.0.1:{port}"]
        process = Process("viewkeeper.cli.main", ["registry", "serve", *listen])
        self.processes[SERVICE] = process
        process.wait_for("serving")

    def status(self) -> dict[str, Any]:
        """What `viewkeeper registry status` says of the open groups, by name."""
        found = json.loads(self.tell("registry", "status", self.registry, "--json"))
        return {group["name"]: group for group in found["groups"] if not group["closed"]}

    def tell(self, *arguments: str, member: str = "") -> str:
        """Run a command in a member's folder, or in any; what it said."""
        folder = self.folder / (member or next(iter(self.members)))
        with Process("viewkeeper.cli.main", arguments, folder) as process:
            assert process.ended() in (0, 1), process.output
            process.listened()
            return "\n".join(process.lines)

    # -- waiting -------------------------------------------------------------------------------

    def wait(
        self, what: str, condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Wait for a condition, as long as no process ends by itself."""
        end = time.monotonic() + seconds
        while not condition():
            for name, process in self.processes.items():
                assert process.runs, f"{name} ended by itself:\n{process.output}"
            if time.monotonic() > end:
                said = "\n".join(f"-- {n}\n{p.output}" for n, p in self.processes.items())
                raise AssertionError(f"waited {seconds:g} s for {what}:\n{said}")
            time.sleep(0.05)

    def wait_states(self, *names: str, states: int = 5) -> None:
        """Wait until members have taken so many more transactions."""
        before = {name: self._ts(name) for name in names or self.members}
        for name, ts in before.items():
            self.wait(f"{name} to go on", partial(self._is_at, name, ts + states))

    def _is_at(self, name: str, ts: int) -> bool:
        return self._ts(name) >= ts

    def _ts(self, name: str) -> int:
        return min(view.ts for view in self.head(name).views.values())

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as stack:
            for process in self.processes.values():
                stack.enter_context(process)


def _run(project: Project, stop: threading.Event, errors: list[BaseException]) -> None:
    try:
        project.run(stop=stop)
    except (ViewkeeperError, AssertionError) as error:
        errors.append(error)
