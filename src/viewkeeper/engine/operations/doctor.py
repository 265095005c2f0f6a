"""What is wrong with a project's surroundings: every source, every view's SQL, Java.

Nothing is started and nothing is changed. A source is asked for everything that it can find out
about itself, given the tables that the views read of it; a view that cannot be bound is a finding
of its own, and its tables are looked at as far as its SQL names them.

Only Spark knows for sure what a report means and whether the types in a view fit. What it has said
of the same text over the same tables before is kept, so it need not be asked; where it was never
asked, names and types are looked at as far as they are certain, and the finding is that Spark has
yet to check the view.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from viewkeeper.engine.compile.report_compiler import KeptAnswers
from viewkeeper.engine.connections.open_sources import Connections, reader_of, tables_by_source
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.views.bound_view import parse_as_kept
from viewkeeper.engine.views.refused_column import explain_refusal
from viewkeeper.engine.views.view_catalogue import ViewCatalogue
from viewkeeper.engine.views.view_files import RefusedView
from viewkeeper.errors import NotCompiledError, SourceError, ViewkeeperError, WarehouseError
from viewkeeper.sources.kinds import is_clock
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import require_facts
from viewkeeper.updates.source_protocol import Finding, finding_of_error
from viewkeeper.upstream import leases
from viewkeeper.upstream.leases import Lease
from viewkeeper.view.definition import Field, Graph, Relation, ViewDefinition
from viewkeeper.warehouse.metadata.definition_version import DefinitionTable
from viewkeeper.warehouse.metadata.head import Head
from viewkeeper.warehouse.metadata.warehouse_identity import make_identity

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


def examine_identity(root: StoragePath) -> tuple[str, Finding]:
    """What the project is called at its sources, from now on: what is granted and published by our
    advice is what a run then uses."""
    try:
        return make_identity(root), Finding("folder", "good", "it can be written")
    except (WarehouseError, OSError) as error:
        hint = error.hint if isinstance(error, WarehouseError) else f"make {root} writable"
        text = f"it cannot be written: {str(error).splitlines()[0]}"
        return reader_of(root), Finding("folder", "bad", text, hint)


def examine_project(
    settings: Settings,
    catalogue: ViewCatalogue,
    connections: Connections,
    told: Callable[[str], None] = lambda _: None,
) -> list[Diagnosis]:
    """Everything, one finding after the other; what fails does not hide the rest."""
    views, bound = ViewExamination(settings, catalogue, connections), list[ViewDefinition]()
    found, refused = [], catalogue.written.refused
    for name in (name for name in catalogue if name not in refused):
        told(f"view {name}")
        found.append(Diagnosis("view", name, (views.examine_view(name),)))
        bound += [catalogue.bindings[name].view] if name in catalogue.bindings else []
    found += [Diagnosis("view", n, (refusal_finding(r),)) for n, r in refused.items()]
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
    for name, source in connections.settings.items():
        if is_clock(source) and name not in read:
            continue
        told(f"source {name}")
        findings = _source_findings(connections, name, tables.get(name, {}))
        sources.append(Diagnosis("source", name, tuple(findings)))
    return [*sources, *found, Diagnosis("machine", "java", (examine_java(),))]


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


class ViewExamination:
    """Looks at the views of one project, as they are written, without Spark."""

    def __init__(
        self, settings: Settings, catalogue: ViewCatalogue, connections: Connections
    ) -> None:
        self._kept = KeptAnswers(settings)
        self._catalogue = catalogue
        self._connections = connections
        self._unchecked: set[str] = set()
        self._found: dict[str, Finding] = {}
        catalogue.use_compiler(self._find_graph, self._note_unchecked)

    def _find_graph(self, name: str, text: str, tables: Sequence[DefinitionTable]) -> Graph:
        answer = self._kept.answer_on(name, text, tables)
        graph = answer.graph
        if graph is None:
            raise answer.refusal or NotCompiledError(name)
        return graph

    def _note_unchecked(self, name: str, text: str, tables: Sequence[DefinitionTable]) -> None:
        answer = self._kept.answer_on_types(text, tables)
        if not answer.is_checked:
            if (refusal := answer.refusal) is not None:
                raise refusal
            self._unchecked.add(name)

    def examine_view(self, name: str) -> Finding:
        """What can be said of a view's definition."""
        if name not in self._found:
            try:
                self._found[name] = self._bind_view(name)
            except SourceError as error:
                # What mends it is in the list of the source.
                text = f'it waits for what is wrong with source "{error.source}", see there'
                self._found[name] = Finding("definition", "bad", text)
            except ViewkeeperError as error:
                self._found[name] = finding_of_error("definition", error)
        return self._found[name]

    def _bind_view(self, name: str) -> Finding:
        for parent in self._catalogue.parents_of(name):
            if self.examine_view(parent).state == "bad":
                text = f'it reads view "{parent}", which is wrong, see there'
                return Finding("definition", "bad", text)
            if parent not in self._catalogue.bindings:
                return _leave_to_spark(name, f'it reads view "{parent}", which is not compiled yet')
        if not self._catalogue.can_bind(name):
            text = "it reads a view whose columns only its load tells: `viewkeeper run` loads it"
            return Finding("definition", "unchecked", text)
        try:
            view = self._catalogue.bind_view(name, self._connections)
        except NotCompiledError:
            self._check_text(name)
            return _leave_to_spark(name, "not compiled yet")
        if name in self._unchecked:
            self._check_text(name)
            return _leave_to_spark(name, "the types of its expressions are not checked yet")
        is_recomputed = view.graph is not None and view.graph.recomputed
        how = "computed again" if is_recomputed else "maintained incrementally"
        many = len(view.places)
        over = "one relation" if many == 1 else f"{many} relations"
        return Finding("definition", "good", f"{how} over {over}")

    def _check_text(self, name: str) -> None:
        """A DefinitionError if a view is wrong for sure, although Spark was not asked about it."""
        from viewkeeper.engine.views.report_names import names_of_report
        from viewkeeper.engine.views.type_families import find_misfit

        tables = self._catalogue.tables_met[name]
        written = self._catalogue.written.parsed[name]
        parsed = parse_as_kept(written, self._connections, self._catalogue)
        by_relation = {Relation(each.source, each.table): each.fields for each in tables}

        def schema(relation: Relation) -> tuple[Field, ...]:
            return tuple(Field(field.name, field.type) for field in by_relation[relation])

        names = None if parsed.report is None else names_of_report(parsed, schema)
        unknown = None if names is None else names.find_unknown()
        found = unknown or find_misfit(parsed, schema, names)
        if found is not None:
            raise explain_refusal(parsed, self._connections, found)


def _leave_to_spark(name: str, text: str) -> Finding:
    text = f"{text}: `viewkeeper explain {name}` checks it with Spark"
    return Finding("definition", "unchecked", text)


def refusal_finding(refused: RefusedView) -> Finding:
    """What is wrong with the file of a view."""
    error = refused.error
    where = "" if refused.path is None or refused.path in error.message else f"{refused.path}: "
    detail = "" if error.detail is None else f": {error.detail}"
    return Finding("definition", "bad", f"refused: {where}{error.message}{detail}", error.hint)


def _source_findings(
    connections: Connections, name: str, tables: dict[str, list[str]]
) -> list[Finding]:
    try:
        return connections.get_source(name).diagnose_source(tables)
    except ViewkeeperError as error:
        return [finding_of_error("reachable", error)]


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
