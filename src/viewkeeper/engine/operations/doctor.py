"""What is wrong with a project's surroundings: every source, every view's SQL, Java.

Nothing is started and nothing is changed. A source is asked for everything that it can find out
about itself, given the tables that the views read of it; a view that cannot be bound is a finding
of its own, and its tables are looked at as far as its SQL names them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from viewkeeper.engine.batch.snapshot_openers import tables_by_source
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.views.view_catalogue import ViewCatalogue
from viewkeeper.errors import ViewkeeperError
from viewkeeper.sources.kinds import is_clock
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import require_facts
from viewkeeper.updates.source_protocol import Finding
from viewkeeper.upstream import leases
from viewkeeper.upstream.leases import Lease
from viewkeeper.view.definition import Relation, ViewDefinition
from viewkeeper.warehouse.metadata.head import Head

JAVA_OLDEST = 17
STILL_SECONDS = 86400.0
"""A lease that does not move for so long, although there is something newer, is worth a look."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at: `source`, `view` or `machine`, its name, what was found."""

    what: str
    name: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return all(finding.state != "bad" for finding in self.findings)


def examine_project(
    catalogue: ViewCatalogue,
    connections: Connections,
    told: Callable[[str], None] = lambda _: None,
) -> list[Diagnosis]:
    """Everything, one finding after the other; what fails does not hide the rest."""
    bound: list[ViewDefinition] = []
    views = []
    for name in catalogue:
        told(f"view {name}")
        views.append(Diagnosis("view", name, (_view_finding(catalogue, connections, name, bound),)))
    tables = tables_by_source(bound)
    for name in (name for name in catalogue if name not in catalogue.bindings):
        for relation in catalogue.relations_of(name):
            if relation.is_own:
                continue
            known = tables.setdefault(relation.source, {})
            if relation.table not in known:
                known[relation.table] = _table_columns(connections, relation)
    sources = []
    read = {source for name in catalogue for source in catalogue.sources_of(name)}
    for name, settings in connections.settings.items():
        if is_clock(settings) and name not in read:
            continue
        told(f"source {name}")
        found = _source_findings(connections, name, tables.get(name, {}))
        sources.append(Diagnosis("source", name, tuple(found)))
    return [*sources, *views, Diagnosis("machine", "java", (examine_java(),))]


def examine_children(root: StoragePath, head: Head, now: float) -> Diagnosis:
    """The projects that read this one's views, and what is kept for them."""
    newest = max((view.ts for view in head.views.values()), default=0)
    found = [_lease_finding(root, lease, newest, now) for lease in leases.active_leases(root, now)]
    none = Finding("leases", "good", "no other project needs the past of its views")
    return Diagnosis("warehouse", str(root), tuple(found) or (none,))


def _lease_finding(root: StoragePath, lease: Lease, newest: int, now: float) -> Finding:
    file = leases.lease_file_of(root, lease.child)
    text = f"states from ts {lease.ts} on are kept for {lease}, {max(newest - lease.ts, 0)} behind"
    try:
        still = now - require_facts(file).changed_at
    except FileNotFoundError:
        # It ended while we looked.
        still = 0.0
    if lease.ts >= newest or still < STILL_SECONDS:
        return Finding("lease", "good", text)
    text += f"; it has not moved for {still / 86400:.1f} days, and nothing newer is folded"
    return Finding("lease", "warning", text, f"if that project is gone for good: rm '{file}'")


def _table_columns(connections: Connections, relation: Relation) -> list[str]:
    """All columns of a table, for want of knowing which of them a view will use."""
    try:
        fields = connections.get_source(relation.source).describe_table(relation.table).fields
    except ViewkeeperError:
        # What is wrong with the source or the table is one of the source's own findings.
        return []
    return [field.name for field in fields]


def _view_finding(
    catalogue: ViewCatalogue, connections: Connections, name: str, bound: list[ViewDefinition]
) -> Finding:
    if catalogue.needs_compiler(name):
        text = "a report: `viewkeeper explain` has Spark say how it is maintained"
        return Finding("definition", "good", text)
    try:
        bound.append(catalogue.bind_view(name, connections))
    except ViewkeeperError as error:
        text = error.message if error.detail is None else f"{error.message}: {error.detail}"
        return Finding("definition", "bad", text, error.hint)
    relations = len(bound[-1].places)
    over = "one relation" if relations == 1 else f"{relations} relations"
    return Finding("definition", "good", f"maintained incrementally over {over}")


def _source_findings(
    connections: Connections, name: str, tables: dict[str, list[str]]
) -> list[Finding]:
    try:
        return connections.get_source(name).diagnose_source(tables)
    except ViewkeeperError as error:
        return [Finding("reachable", "bad", error.message, error.hint)]


def examine_java() -> Finding:
    """The Java that Spark would start; small batches do without, loads do not."""
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    mend = "sudo apt-get install -y openjdk-17-jre-headless"
    if program is None or not os.path.exists(program):
        return Finding("version", "bad", "there is no Java, which Spark needs", mend)
    done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', done.stderr)
    if found is None or int(found.group(1)) < JAVA_OLDEST:
        return Finding("version", "bad", f"{program} is older than Java {JAVA_OLDEST}", mend)
    return Finding("version", "good", f"Java {found.group(1)}")
