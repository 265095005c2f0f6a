"""A running project as one value of plain JSON: what the page shows, and what `/api/status` gives.

It is made of what the observer remembers and of the status that was read last, and of nothing else:
no source is asked and no file is read here, but for a view's own page, which reads the head. Names
and texts are as users and databases have them; whoever shows them escapes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from viewkeeper.engine.evolution.proposals import Proposals, Proposed
from viewkeeper.engine.evolution.text_difference import changed_lines
from viewkeeper.engine.operations.project_status import ProjectStatus, SourceStatus, ViewStatus
from viewkeeper.engine.operations.view_explanation import explain_level
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.sources.kinds import position_text_of
from viewkeeper.view.definition import PROJECT
from viewkeeper.view.graph_json import decode_graph
from viewkeeper.warehouse.metadata.head import Head, ViewHead
from viewkeeper.web.project_monitor import NotedBatch, Remembered, StatusReading, ViewTally

Facts = dict[str, Any]

STAGED_VIEWS_MAX = 30
"""Of more views the graph has no stages, only sources and views."""

BATCHES_SHOWN = 25
BEHIND_SECONDS = 1.0
"""A view that lacks nothing older than this is called fresh."""


def project_facts(settings: Settings, reading: StatusReading, heard: Remembered) -> Facts:
    """Everything that the page shows of all views and sources."""
    status, head = reading.status, reading.head
    return {
        "number": reading.number,
        "project": settings.folder.name,
        "at": None if status is None else status.at,
        "since": heard.since,
        "trouble": reading.trouble,
        "totals": {
            "batches": heard.total.batches,
            "on_spark": heard.total.on_spark,
            "transactions": heard.total.transactions,
            "changes": heard.total.changes,
            "rows": heard.total.rows,
            "lookups": heard.total.lookups,
            "errors": heard.errors,
            "change_rate": sum(heard.change_rates.values()),
        },
        "views": view_list(settings, status, head, heard),
        "sources": source_list(status, heard),
        "batches": [batch_facts(each) for each in reversed(heard.batches[-BATCHES_SHOWN:])],
        "events": [
            {"at": e.at, "kind": e.kind, "text": e.text, "hint": e.hint, "is_bad": e.is_bad}
            for e in reversed(heard.events)
        ],
    }


def view_list(
    settings: Settings, status: ProjectStatus | None, head: Head | None, heard: Remembered
) -> list[Facts]:
    views = () if status is None else status.views
    away = away_sources(status, heard)
    has_stages = len(views) <= STAGED_VIEWS_MAX
    found = []
    for view in views:
        stored = None if head is None else head.views.get(view.name)
        tally = heard.views.get(view.name, ViewTally())
        facts = view_facts(settings, view, stored, tally)
        facts["awaited"] = sorted({lag.source for lag in view.lags} & away)
        # The maintainer may know of it before the status does.
        if facts["awaited"] and facts["state"] in ("fresh", "behind"):
            facts["state"] = "waiting"
        facts["row_rate"] = heard.row_rates.get(view.name, 0.0)
        facts["stages"] = stage_list(stored) if has_stages and stored is not None else []
        found.append(facts)
    return found


def away_sources(status: ProjectStatus | None, heard: Remembered) -> set[str]:
    """The sources that do not answer: the status could not ask them, or the maintainer."""
    sources = () if status is None else status.sources
    return {each.name for each in sources if each.error is not None or each.name in heard.away}


def view_facts(
    settings: Settings, view: ViewStatus, stored: ViewHead | None, tally: ViewTally
) -> Facts:
    """A view in a list."""
    message, hint = split_hint(view.problem)
    sources = [settings.sources[lag.source] for lag in view.lags if lag.source in settings.sources]
    algorithm = settings.algorithm_of(view.name)
    level, _ = explain_level(None if view.recomputed else algorithm, sources)
    return {
        "name": view.name,
        "state": state_of(view, tally),
        "up": view.is_up,
        "problem": message,
        "hint": hint,
        "loading": tally.loading,
        "ts": view.ts,
        "rows": view.rows,
        "files": view.files,
        "bytes": view.bytes,
        "committed_at": view.committed_at,
        "lag_seconds": view.lag_seconds,
        "freshness": list(view.freshness),
        "asked_rows": view.asked_rows,
        "apart": view.apart,
        "inline": tally.inline,
        "on_spark": tally.on_spark,
        "lookups": tally.lookups,
        "level": level,
        "algorithm": "computed again" if view.recomputed else algorithm.name,
        "sources": [lag.source for lag in view.lags],
        "reads": sources_read(view, stored),
        "parents": parents_of(stored),
    }


def state_of(view: ViewStatus, tally: ViewTally) -> str:
    """The state of a view; of one that is maintained, how fresh it is, of a new one, whether it is
    being loaded."""
    if view.state == "maintained":
        return "behind" if (view.lag_seconds or 0.0) >= BEHIND_SECONDS else "fresh"
    return "loading" if view.state == "unloaded" and tally.loading else view.state


def split_hint(problem: str | None) -> tuple[str | None, str | None]:
    """What is wrong, and the way out, of a problem as `status` has it.

    >>> split_hint("gone\\n  detail: for long\\n  hint: mend it")
    ('gone\\n  detail: for long', 'mend it')
    """
    if problem is None:
        return None, None
    message, found, hint = problem.partition("\n  hint: ")
    return message, hint.replace("\n  hint: ", "\n") if found else None


def sources_read(view: ViewStatus, stored: ViewHead | None) -> list[str]:
    """The sources whose tables a view names itself; all that it depends on if it is not loaded."""
    if stored is None or not stored.versions:
        return [lag.source for lag in view.lags]
    bound = stored.versions[-1].bound
    return sorted({each.source for each in bound if each.source != PROJECT})


def parents_of(stored: ViewHead | None) -> list[str]:
    """The views of the project that a view reads."""
    bound = stored.versions[-1].bound if stored is not None and stored.versions else ()
    return [each.table for each in bound if each.source == PROJECT]


def stage_list(stored: ViewHead) -> list[Facts]:
    """The stages of a report, inputs before readers; none of a plain join."""
    graph = stored.versions[-1].graph if stored.versions else None
    return [] if graph is None else _stages_of(graph)


@lru_cache(maxsize=1024)
def _stages_of(text: str) -> list[Facts]:
    graph = decode_graph(json.loads(text))
    return [
        {
            "number": node.number,
            "kind": type(node).__name__,
            "inputs": [
                {"source": relation.source, "table": relation.table} for relation in node.inputs
            ],
        }
        for node in graph.nodes
    ]


def source_list(status: ProjectStatus | None, heard: Remembered) -> list[Facts]:
    sources = () if status is None else status.sources
    assert status is not None or not sources
    found = []
    for source in sources:
        lag = None if status is None else status.lag_of(source.name)
        facts = source_facts(source, heard.away.get(source.name))
        facts["lag_changes"], facts["lag_seconds"] = lag or (None, None)
        facts["change_rate"] = heard.change_rates.get(source.name, 0.0)
        facts["lookups"] = heard.lookups.get(source.name, 0)
        found.append(facts)
    return found


def source_facts(source: SourceStatus, away: str | None) -> Facts:
    message, hint = split_hint(source.error or away)
    state = "away" if message else "followed" if source.followed else "not followed"
    return {
        "name": source.name,
        "kind": source.kind,
        "state": state,
        "problem": message,
        "hint": hint,
        "position": source.position,
        "place": place_of(source),
        "log_kept": source.retained,
        "unit": source.unit,
        "warnings": list(source.warnings),
    }


def place_of(source: SourceStatus) -> str | None:
    """How far a source has committed, as its own tools write it."""
    position = source.position
    return None if position is None else position_text_of(source.positions, position)


def batch_facts(noted: NotedBatch) -> Facts:
    """A batch in a list; the names of some of its views."""
    report = noted.report
    return {
        "at": noted.at,
        "number": report.number,
        "where": report.where,
        "views": list(report.views[:5]),
        "view_count": len(report.views),
        "transactions": report.transactions,
        "changes": report.changes,
        "rows": report.rows,
        "lookups": sum(report.lookups.values()),
        "seconds": report.seconds,
        "freshness": report.freshness,
        "ts": report.ts,
        "phases": dict(report.phases),
    }


def view_page(head: Head, name: str, tallies: Mapping[str, ViewTally]) -> Facts | None:
    """What the page shows of one view beside its line in the list; None if it is not loaded."""
    stored = head.shown_views.get(name)
    if stored is None:
        return None
    before, versions = "", []
    for number, version in enumerate(stored.versions, 1):
        lines = changed_lines(before, version.text) if before else version.text.splitlines()
        versions.append(
            {
                "number": number,
                "ts": version.ts,
                "at": version.at,
                "causes": list(version.causes),
                "extent": version.extent,
                "lines": lines,
            }
        )
        before = version.text
    tally = tallies.get(name, ViewTally())
    return {
        "name": name,
        "sql": stored.versions[-1].text if stored.versions else stored.definition,
        "versions": versions[::-1],
        "columns": [{"name": f.name, "type": str(f.type)} for f in stored.shown_schema],
        "stages": stage_list(stored),
        "fresh": [[at, seconds] for at, seconds in tally.fresh],
        "horizon": stored.horizon,
    }


def proposal_list(proposals: Proposals) -> list[Facts]:
    """What waits for somebody's word."""
    return [proposal_facts(each) for each in proposals.list_proposals()]


def proposal_facts(proposed: Proposed) -> Facts:
    return {
        "view": proposed.view,
        "id": proposed.id,
        "at": proposed.at,
        "causes": list(proposed.version.causes),
        "rows": proposed.adaptation,
        "extent": proposed.version.extent,
        "lines": changed_lines(proposed.before, proposed.version.text) or ["(the same SQL)"],
    }
