"""This project as a member of a group: where it is assigned, and what it has said of that.

The registry decides which projects must agree. A member joins with what it reads, again every few
seconds and whenever that changes, and may find itself in another group. Then it takes the order of
the old one to its end first, so that its children find every number that they wait for; only when
all of that is in the ledger does a new span begin.

A source is a database, which has one name for all members of the group, or another project, which
is a member itself. The registry makes groups of members from these facts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from viewkeeper.engine.connections.open_sources import reader_of
from viewkeeper.engine.settings.project_file import read_settings
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import IdentityError, ProjectError
from viewkeeper.order.global_id import base_name
from viewkeeper.order.mediator import ParentView, RegisteredBase, Upstream
from viewkeeper.order.member_groups import bases_behind
from viewkeeper.order.registry_protocol import Assignment, GroupMember, MemberFacts, Registry
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.upstream import leases
from viewkeeper.upstream.any_source import is_parent
from viewkeeper.warehouse.metadata.coordination import (
    Coordination,
    GroupSpan,
    needed_spans,
    read_coordination,
    write_coordination,
)


class ProjectReads:
    """The sources of one project that is a member."""

    def __init__(self, workspace: Workspace) -> None:
        assert workspace.settings.registry is not None
        self._settings = workspace.settings
        self._catalogue = workspace.catalogue
        self._warehouse = reader_of(workspace.store.root)
        self.member = workspace.settings.registry.member
        self.parents = self._parent_members()
        """The members behind the sources that are other projects."""

    def base_name(self, source: str) -> str:
        """What the database behind a source is called in ids."""
        found = self._settings.sources[source]
        return base_name(self.member, found.name, found.kind, found.global_name)

    def member_facts(self) -> MemberFacts:
        """What the views read now: tables of databases, and other members."""
        sources: dict[str, tuple[str, ...]] = {}
        parents: list[str] = []
        for view in self._catalogue:
            for relation in self._catalogue.relations_of(view):
                if relation.is_own:
                    # What that view reads is listed with it.
                    continue
                if relation.source in self.parents:
                    parents.append(self.parents[relation.source])
                    continue
                name = self.base_name(relation.source)
                sources[name] = (*sources.get(name, ()), name_of_handle(relation.table))
        assert self._settings.registry is not None
        label = self._settings.registry.together
        return MemberFacts(sources, tuple(parents), label, warehouse=self._warehouse)

    def _parent_members(self) -> dict[str, str]:
        """The members behind the sources that are other projects."""
        found = {}
        for name, source in self._settings.sources.items():
            if not is_parent(source):
                continue
            parent = read_settings(source.read_path()).registry
            if parent is None:
                raise ProjectError(
                    f'source "{name}": the project in {source.read_path()} has no registry, '
                    "and this "
                    "one has",
                    hint="name the same registry in both, or in neither",
                )
            found[name] = parent.member
        return found


JOIN_SECONDS = 3.0
NOTE_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class JoinResult:
    """Whether the registry was asked, and whether the members or their facts have changed."""

    asked: bool
    changed: bool


class Membership:
    """Which order is taken now; every call of the registry may fail and is made again."""

    def __init__(self, workspace: Workspace, registry: Registry) -> None:
        self._store = workspace.store
        self._registry = registry
        self._reads = ProjectReads(workspace)
        self.member = self._reads.member
        self._told = read_coordination(self._store.root) or Coordination(self.member)
        self._members: tuple[GroupMember, ...] = ()
        self._upstreams: dict[str, Upstream] = {}
        """What sources are among these members; it is asked for many times in every look."""
        self._next: Assignment | None = None
        self._joined: tuple[float, MemberFacts] | None = None
        self._noted = 0.0

    @property
    def span(self) -> GroupSpan | None:
        """The part of the ledger that is being written now; None before the first join."""
        return self._told.spans[-1] if self._told.spans else None

    @property
    def members(self) -> tuple[GroupMember, ...]:
        """The members of the group whose order is taken now."""
        return self._members

    @property
    def has_other_group(self) -> bool:
        """Whether this project belongs to another group now."""
        return self._next is not None

    def join_group(self, now: bool, awaits: Mapping[str, int]) -> JoinResult:
        """Say what is read, if that is due."""
        facts = replace(self._reads.member_facts(), awaits=awaits)
        if self._joined is not None and self._joined[1] == facts and not now:
            late = time.monotonic() - self._joined[0] >= JOIN_SECONDS
            if not late:
                return JoinResult(False, False)
        span = self.span
        found, missed = self._ask_assignment(facts, span)
        if missed:
            self._begin_span(found)
        elif span is not None and found.identity == span.identity:
            missed = self._meet_members(found.members)
            if span.opened != found.opened:
                # A version of before did not write it down.
                self._put_span(replace(span, opened=found.opened))
        elif span is not None:
            missed = not self._members and self._meet_members(
                self._registry.fetch_members(span.group)
            )
            self._next = found
        self._joined = time.monotonic(), facts
        return JoinResult(True, missed)

    def _ask_assignment(
        self, facts: MemberFacts, span: GroupSpan | None
    ) -> tuple[Assignment, bool]:
        """What the registry says, and whether it says it to somebody who comes for the first time.

        Where nothing is stored, nothing stands for an order that was lost with another registry.
        """
        if span is None:
            return self._registry.join_registry(self.member, facts), True
        try:
            return self._registry.join_registry(self.member, facts, span.identity), False
        except IdentityError:
            if self._store.head.maintained_views:
                raise
            return self._registry.join_registry(self.member, facts), True

    def begin_next_span(self) -> None:
        """The order is taken to its end, and all of it is in the ledger: begin the next span."""
        assert self._next is not None
        self._begin_span(self._next)
        self._next = None

    def _begin_span(self, found: Assignment) -> None:
        root, ts = self._store.root, self._store.ledger.next_ts - 1
        span = GroupSpan(found.group, found.identity, ts, 0, ts, found.is_alone, found.opened)
        spans = needed_spans((*self._told.spans, span), leases.find_oldest_ts(root, time.time()))
        self._told = Coordination(self.member, spans)
        write_coordination(root, self._told)
        self._meet_members(found.members)

    def _meet_members(self, members: tuple[GroupMember, ...]) -> bool:
        before = {member.name: member.facts for member in self._members}
        self._members = members
        self._upstreams.clear()
        return before != {member.name: member.facts for member in members}

    def taken_number(self) -> int:
        """The number up to which everything is in the ledger, as far as that is written down."""
        span = self.span
        assert span is not None
        later = self._store.ledger.entries_between(span.since, self._store.ledger.next_ts)
        return max(span.n, max((entry.n for entry in later), default=0))

    def note_taken(self, n: int, now: bool = False) -> bool:
        """Write down that everything up to a number is in the ledger; whether that was due."""
        span, ts = self.span, self._store.ledger.next_ts - 1
        assert span is not None
        late = time.monotonic() - self._noted >= NOTE_SECONDS
        if span.n == n or not (late or now):
            return False
        self._noted = time.monotonic()
        self._put_span(replace(span, n=n, ts=ts))
        return True

    def _put_span(self, span: GroupSpan) -> None:
        """Write the newest span down again."""
        self._told = replace(self._told, spans=(*self._told.spans[:-1], span))
        write_coordination(self._store.root, self._told)

    def committed_number(self, n: int) -> int:
        """The number up to which all views are committed, if the order is taken up to `n`."""
        span, ledger = self.span, self._store.ledger
        assert span is not None
        at = [view.ts for view in self._store.head.maintained_views.values() if not view.stopped]
        later = ledger.entries_between(min(at, default=0), ledger.next_ts)
        # Before the span began, numbers are those of another order.
        waits = [entry.n if entry.ts > span.since else 1 for entry in later]
        return min((each for each in waits if each), default=n + 1) - 1

    def report_reached(self, n: int) -> None:
        """Tell the registry how far all views have come; only for people who look there."""
        span = self.span
        assert span is not None
        self._registry.note_reached(span.group, self.member, n)

    def upstream_of(self, source: str) -> Upstream:
        """What a source is in the group: a base, or views of another member."""
        if source not in self._upstreams:
            self._upstreams[source] = self._found_upstream(source)
        return self._upstreams[source]

    def _found_upstream(self, source: str) -> Upstream:
        parent = self._reads.parents.get(source)
        if parent is None:
            return RegisteredBase(self._reads.base_name(source))
        if parent in {member.name for member in self._members}:
            return ParentView(bases_behind(parent, self._members))
        return RegisteredBase(parent)

    def tables_of_others(self, base: str) -> list[str]:
        """What other members read of a base."""
        others = [member.facts for member in self._members if member.name != self.member]
        return sorted({table for facts in others for table in facts.sources.get(base, ())})
