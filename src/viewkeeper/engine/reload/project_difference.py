"""What two readings of a project's files differ in, and what became of it.

Each view has a fate of its own: added, edited, dropped, refused or unchanged. Of `viewkeeper.yml`
the names of its parts that are otherwise; some of them are what the process itself stands on, and
need a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from viewkeeper.engine.reload.reload_desk import ReloadAnswer
from viewkeeper.engine.report import StateChange
from viewkeeper.engine.settings.project_file import OWN_FIELDS, Settings, kept_place_of
from viewkeeper.errors import ViewkeeperError

RESTART_KEYS = ("warehouse", "storage", "local", "access", "registry", "spark")
"""What a running maintainer cannot change: its warehouse, its lock, its group, its session."""

_RESTART_HINT = "stop `viewkeeper run` and start it again"


def changed_keys(before: Settings, after: Settings) -> tuple[str, ...]:
    """The parts of the project file that are otherwise.

    >>> one = Settings(Path("."), Path("w"), {})
    >>> changed_keys(one, replace(one, freshness=1.0, local=Path("x")))
    ('freshness', 'local')
    """
    names = [each.name for each in fields(Settings) if each.name not in OWN_FIELDS]
    return tuple(name for name in names if getattr(before, name) != getattr(after, name))


def keep_fixed(before: Settings, after: Settings) -> tuple[Settings, tuple[str, ...]]:
    """The settings that a running maintainer can take, and the keys that it cannot."""
    # What a source keeps lies with the warehouse, which stays where it is, and as it was opened:
    # only that has the lock.
    homes = {Path(source.home).parent for source in before.sources.values()}
    home = homes.pop()
    sources = {
        name: replace(
            source,
            home=str(home / name),
            kept=source.kept and kept_place_of(before.warehouse, name),
        )
        for name, source in after.sources.items()
    }
    fixed = tuple(key for key in changed_keys(before, after) if key in RESTART_KEYS)
    kept = {key: getattr(before, key) for key in RESTART_KEYS if fixed}
    return replace(after, **{**kept, "sources": sources, "warehouse": before.warehouse}), fixed


@dataclass(frozen=True, slots=True)
class ProjectDifference:
    """What the files say now, compared with before: names of views, and keys of the settings."""

    added: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()

    @property
    def concerned(self) -> frozenset[str]:
        """The views whose files are otherwise."""
        return frozenset((*self.added, *self.edited, *self.dropped))


def compare_texts(before: Mapping[str, str], after: Mapping[str, str]) -> ProjectDifference:
    """What became of views, by the texts of their files.

    >>> sorted(compare_texts({"a": "1", "b": "2"}, {"b": "x", "d": "4"}).concerned)
    ['a', 'b', 'd']
    """
    both = [name for name in after if name in before]
    return ProjectDifference(
        added=tuple(name for name in after if name not in before),
        edited=tuple(name for name in both if before[name] != after[name]),
        dropped=tuple(name for name in before if name not in after),
        unchanged=tuple(name for name in both if before[name] == after[name]),
    )


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """What became of a change of the files; `refused` are all views that are refused now."""

    difference: ProjectDifference
    refused: Mapping[str, ViewkeeperError]

    def as_answer(self) -> ReloadAnswer:
        """The same as plain JSON."""
        found, refused = self.difference, self.refused
        return {
            "added": [name for name in found.added if name not in refused],
            "edited": [name for name in found.edited if name not in refused],
            "dropped": [name for name in found.dropped if name not in refused],
            "refused": {
                name: {"error": error.message, "detail": error.detail, "hint": error.hint}
                for name, error in sorted(refused.items())
            },
            "unchanged": [name for name in found.unchanged if name not in refused],
            "settings": list(found.settings),
            "needs_restart": list(found.needs_restart),
        }

    def state_changes(self) -> Iterator[StateChange]:
        """What is said of it; that views are refused is said where that is found."""
        taken = self.as_answer()
        words = {
            "added": "is added, and is loaded",
            "edited": "is edited, and its new SQL is taken",
            "dropped": "is dropped: its file is gone",
        }
        for fate, word in words.items():
            for name in taken[fate]:
                yield StateChange("view_taken", f'view "{name}" {word}', view=name)
        if self.difference.settings:
            keys = ", ".join(self.difference.settings)
            yield StateChange("project_taken", f"viewkeeper.yml: taken up: {keys}")
        yield from restart_changes(self.difference)


def restart_changes(found: ProjectDifference) -> Iterator[StateChange]:
    """What is said of settings that cannot be taken up."""
    if found.needs_restart:
        keys = ", ".join(found.needs_restart)
        yield StateChange(
            "project_refused", f"viewkeeper.yml: needs a restart: {keys}", _RESTART_HINT
        )
